"""Checkpoints that restarts could not get past."""

from dataclasses import replace

import pytest

from faultrun.core.quarantine import attempts_after, attempts_of, quarantined
from faultrun.model.actions import FindRecoveryPoint
from faultrun.model.checkpoint import Identity, RecoveryPoint
from faultrun.model.events import Timer, WorkersLost
from faultrun.model.evidence import DeathNote, FaultClass, Finding
from faultrun.model.incident import Cause, Incident
from faultrun.model.plan import Attempt, Ledger, Plan
from faultrun.model.progress import RankStep
from faultrun.model.run import Phase
from support.story import Story, checkpoint, first_plan


def plan(point: RecoveryPoint | None, *attempts: Attempt) -> Plan:
    return first_plan(1, incarnation=4, point=point, ledger=Ledger(attempts=attempts))


def test_one_step_past_it_clears_it() -> None:
    assert attempts_after(plan(checkpoint(5, "p"), Attempt(path="p", failures=1)), 6) == ()


def test_progress_that_nobody_saw_does_not_count_as_progress() -> None:
    assert attempts_after(plan(checkpoint(5, "p")), None) == (Attempt(path="p", failures=1),)
    stepless = replace(checkpoint(5, "p"), global_step=None)
    assert attempts_after(plan(stepless), 6) == (Attempt(path="p", failures=1),)


def test_a_run_that_began_from_nothing_accuses_no_checkpoint() -> None:
    other = Attempt(path="q", failures=1)
    assert attempts_after(plan(None, other), 3) == (other,)


def test_other_checkpoints_keep_their_count() -> None:
    other = Attempt(path="q", failures=2)
    found = attempts_after(plan(checkpoint(5, "p"), other), 5)
    assert found == (other, Attempt(path="p", failures=1))
    assert quarantined(found) == (other,)


def lying(identity: Identity, path: str = "last") -> RecoveryPoint:
    return replace(checkpoint(identity.global_step or 0, path), identity=identity)


def test_a_file_written_anew_under_the_old_name_is_not_accused_of_what_the_old_one_did() -> None:
    old, new = (Identity(inode=7, size_bytes=9, mtime_ns=step, global_step=step) for step in (5, 10))
    once = attempts_after(plan(lying(old)), None)
    twice = attempts_after(plan(lying(new), *once), None)
    assert [one.failures for one in twice] == [1, 1]
    assert quarantined(twice) == ()


def test_a_month_of_failures_with_a_new_state_each_does_not_grow_the_plan() -> None:
    attempts: tuple[Attempt, ...] = ()
    for step in range(500):
        point = lying(Identity(inode=7, size_bytes=9, mtime_ns=step))
        attempts = attempts_after(plan(point, *attempts), None)
    assert len(attempts) < 100


def test_a_checkpoint_that_failed_twice_is_not_asked_for_a_third_time() -> None:
    story = Story(1).begins(checkpoint(5, "p"))
    asked = []
    for _ in range(3):
        story.actions.clear()
        story.killed(0).recovers(checkpoint(5, "p"))
        asked += [survey.quarantine for survey in story.performed(FindRecoveryPoint)]
    assert [[one.path for one in quarantine] for quarantine in asked] == [[], ["p"], ["p"]]


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("download", FaultClass.TRANSIENT),
        ("disk-full", FaultClass.RESOURCE),
    ],
)
def test_what_no_file_can_cause_accuses_no_checkpoint(name: str, of: FaultClass) -> None:
    """Twice from the same file, before a step: the third start still has it."""
    down = Finding(name=name, fault_class=of, says="a service did not answer, there is no room")
    story = Story(1).begins(checkpoint(5))
    for _ in range(2):
        story.returned(0, 1, after_s=1).drained(DeathNote(rank=0, finding=down))
        (survey,) = story.performed(FindRecoveryPoint)
        assert survey.quarantine == ()
        story.chose(checkpoint(5))
        if story.phase is Phase.BACKING_OFF:
            story.rang(Timer.BACKOFF, after_s=60)
        story.prepared()
    assert story.phase is Phase.RUNNING


@pytest.mark.parametrize(
    ("name", "of", "accused"),
    [
        ("shared-memory", FaultClass.RESOURCE, False),
        ("xid", FaultClass.HARDWARE, False),
        ("host-memory", FaultClass.RESOURCE, True),
        ("traceback", FaultClass.UNKNOWN, True),
    ],
)
def test_memory_may_run_out_because_of_a_file_and_a_device_does_not_fail_for_one(
    name: str, of: FaultClass, accused: bool
) -> None:
    found = Finding(name=name, fault_class=of, says="it failed")
    about = {"number": 1, "incarnation": 4, "at_s": 1, "cause": Cause.EXIT, "rank": 0, "status": None}
    incident = Incident(**about, finding=found)  # type: ignore[arg-type]
    assert bool(attempts_of(incident, plan(checkpoint(5)))) is accused


@pytest.mark.parametrize(("reached", "left_out"), [(9, []), (5, ["p"]), (None, ["p"])])
def test_an_incarnation_that_trained_past_it_clears_it_although_it_went_with_its_supervisor(
    reached: int | None, left_out: list[str]
) -> None:
    story = Story(1).begins(checkpoint(5, "p")).killed(0).recovers(checkpoint(5, "p"))
    story.starts()
    if reached is not None:
        story.now(WorkersLost, steps=(RankStep(rank=0, step=reached),))
    story.chose(checkpoint(5, "p")).prepared()
    story.actions.clear()
    story.killed(0).drained()
    (survey,) = story.performed(FindRecoveryPoint)
    assert [one.path for one in survey.quarantine] == left_out
