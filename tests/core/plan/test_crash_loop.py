"""Stories of runs that fail again and again: which are ended, which are given another chance."""

from dataclasses import replace

import pytest

from faultrun.core.diagnosis.signatures import REFUSED
from faultrun.model.checkpoint import Identity, RecoveryPoint
from faultrun.model.events import PlanAdopted, Timer
from faultrun.model.exits import Exited, Signaled
from faultrun.model.observed.evidence import DeathNote, FaultClass, Finding, Raised, Signature
from faultrun.model.observed.saves import CheckpointsOpened
from faultrun.model.run import Phase
from faultrun.model.spec.run_spec import RestartPolicy
from support.stories.story import SIGKILL, SIGSEGV, Story, checkpoint

POLICY = RestartPolicy(max_restarts=3, window_s=3600, backoff_min_s=1, backoff_max_s=60)
BUG = Raised(kind="ValueError", message="bad batch 7", frame="train.py:3 in step")
DISK = Finding(name="disk-full", fault_class=FaultClass.RESOURCE, says="the disk is full")
PORT = Finding(name="address-in-use", fault_class=FaultClass.TRANSIENT, says="a port was taken")
FAULTY = Finding(name="xid", fault_class=FaultClass.HARDWARE, says="the device is faulty")
IMPORT = Finding(name="import", fault_class=FaultClass.DETERMINISTIC, says="cannot be imported")


def story(max_restarts: int = 3) -> Story:
    return Story(2, replace(POLICY, max_restarts=max_restarts)).begins()


def note_of(kind: str) -> Raised:
    return Raised(kind=kind, message="no batch", frame="train.py:3 in step")


def fails(
    story: Story,
    note: DeathNote,
    status: Exited | Signaled | None = None,
    *,
    save: int | RecoveryPoint | None = None,
) -> Story:
    """Rank 0 ends, the other follows; the next incarnation runs if there is one."""
    story.ended(0, status or Exited(code=1), after_s=1).ended(1, Signaled(signum=15)).drained(note)
    story.chose(checkpoint(save) if isinstance(save, int) else save)
    if story.phase is Phase.BACKING_OFF:
        story.now_s = story.plan.start_at_s
        story.rang(Timer.BACKOFF)
    return story if story.state.done else story.prepared()


def note(raised: Raised | None = BUG, finding: Finding | None = None, *, reports: bool = False) -> DeathNote:
    return DeathNote(rank=0, raised=raised, finding=finding, reports=reports)


def test_the_same_exception_at_the_same_line_is_not_tried_a_third_time() -> None:
    run = fails(story(), note())
    assert not run.state.done
    other_number = replace(BUG, message="bad batch 8")
    assert fails(run, note(other_number)).state.exit_code == 93
    assert "the same failure twice without progress: ValueError: bad batch # at train.py:3" in run.whys[-1]


def test_a_failure_at_the_very_step_that_was_saved_is_the_same_when_it_is_met_again_at_once() -> None:
    run = fails(story().reported(r0=18, r1=19), note(), save=19)
    assert not run.state.done
    assert fails(run, note(), save=19).state.exit_code == 93


def test_a_failure_far_from_where_the_next_life_began_is_another_one() -> None:
    run = fails(story().reported(r0=30, r1=30), note(), save=19)
    assert not fails(run, note(), save=19).state.done


def test_another_line_is_another_failure_and_the_budget_decides() -> None:
    run = story()
    for line in (3, 4, 5):
        fails(run, note(replace(BUG, frame=f"train.py:{line} in step")))
    assert not run.state.done
    assert fails(run, note(replace(BUG, frame="train.py:6 in step"))).state.exit_code == 1


def test_a_failure_at_random_steps_with_progress_between_is_never_ended() -> None:
    run = story()
    for done in range(30):
        run.reported(r0=3 * done + 2)
        fails(run, note())
    assert not run.state.done


def test_progress_may_be_a_newer_save_although_no_step_was_new() -> None:
    run = story().reported(r0=100)
    fails(run, note(), save=10)
    for save in (20, 30, 40, 50, 60):
        run.reported(r0=save + 5)
        fails(run, note(), save=save)
    assert not run.state.done


def rewritten(mtime_ns: int, **told: int) -> RecoveryPoint:
    """The one file of a script that says its ``epoch``, or nothing at all."""
    identity = Identity(inode=7, size_bytes=9, mtime_ns=mtime_ns, **told)
    point = replace(checkpoint(0, "last"), global_step=None, epoch=identity.epoch, step_in_epoch=None)
    return replace(point, identity=identity)


def test_a_later_epoch_is_progress_where_no_step_is_told() -> None:
    run = story()
    for epoch in range(2, 30, 2):
        fails(run, note(), save=rewritten(epoch, epoch=epoch))
    assert not run.state.done


def test_the_same_epoch_saved_again_is_none() -> None:
    run = fails(story(), note(), save=rewritten(1, epoch=2))
    assert not run.state.done
    assert fails(run, note(), save=rewritten(2, epoch=2)).state.exit_code == 93


def test_a_new_save_that_tells_nothing_is_no_proof_of_a_loop_and_no_refund() -> None:
    run = story()
    for life in range(3):
        fails(run, note(), save=rewritten(life))
    assert not run.state.done
    assert fails(run, note(), save=rewritten(3)).state.exit_code == 1
    assert "restarts within 1 h are used up" in run.whys[-1]


@pytest.mark.parametrize("told", [["epoch"], []])
def test_who_saves_after_loading_is_not_unable_to_load(told: list[str]) -> None:
    def saved(life: int) -> RecoveryPoint:
        return rewritten(life, **dict.fromkeys(told, life))

    loader = note(Raised(kind="RuntimeError", message="flaky", frame="train.py:9 in load"))
    run = fails(story(max_restarts=9), loader, save=saved(1))
    for life in (2, 3, 3, 3):
        run.now(CheckpointsOpened, paths=("last",))
        fails(run, loader, save=saved(life))
    assert not run.state.done
    run.now(CheckpointsOpened, paths=("last",))
    older = replace(checkpoint(0, "older"), identity=Identity(inode=8, size_bytes=9, mtime_ns=0))
    fails(run, loader, save=older).now(CheckpointsOpened, paths=("older",))
    assert fails(run, loader, save=older).state.exit_code == 93
    assert "cannot load what it saved" in run.whys[-1]


def test_the_same_failure_from_an_older_checkpoint_is_another_attempt() -> None:
    run = story().reported(r0=10)
    fails(run, note(), save=10)
    fails(run, note(replace(BUG, message="torn")), save=10)
    fails(run, note(replace(BUG, message="torn")), save=5)
    assert not run.state.done


@pytest.mark.parametrize("left", [note_of("RuntimeError"), note_of("SubprocessError"), None])
def test_a_failure_that_may_pass_is_a_loop_only_when_every_attempt_of_the_budget_ended_like_it(
    left: Raised | None,
) -> None:
    status = Exited(code=1) if left is not None else Signaled(signum=SIGSEGV)
    run = story().reported(r0=10)
    fails(run, note(left), status)
    for _ in range(2):
        run.reported(r0=10)
        fails(run, note(left), status)
    assert not run.state.done
    run.reported(r0=10)
    assert fails(run, note(left), status).state.exit_code == 93
    assert "the same failure 4 times without progress: " in run.whys[-1]
    assert "3 of 3 restarts within 1 h are used up without progress past step 10" in run.whys[-1]


@pytest.mark.parametrize(
    "finding",
    [
        Finding(name="download", fault_class=FaultClass.TRANSIENT, says="a service did not answer"),
        Finding(name="file", fault_class=FaultClass.TRANSIENT, says="a file could not be used"),
        Finding(name="nccl", fault_class=FaultClass.CONSEQUENCE, says="a collective broke"),
        DISK,
    ],
)
def test_weather_is_waited_out_and_never_says_do_not_restart_me(finding: Finding) -> None:
    run = story().reported(r0=4)
    for _ in range(3):
        fails(run, note(BUG, finding), Exited(code=9))
    assert not run.state.done
    waits = [event.plan.start_at_s - event.at_s for event, _ in run.steps if isinstance(event, PlanAdopted)]
    assert waits[1:] == sorted(waits[1:])
    assert waits[-1] > waits[1] == 0
    assert fails(run, note(BUG, finding), Exited(code=9)).state.exit_code == 9


def test_two_alike_are_no_loop_however_small_the_budget() -> None:
    run = fails(story(max_restarts=1), note(note_of("RuntimeError")))
    assert fails(run, note(note_of("RuntimeError")), Exited(code=5)).state.exit_code == 5


def test_a_loop_is_counted_anew_after_progress_and_after_another_failure() -> None:
    run = story(max_restarts=2).reported(r0=3)
    for kind in ("RuntimeError", "OtherError", "RuntimeError"):
        fails(run, note(note_of(kind)), Exited(code=4))
    assert run.state.exit_code == 4


def test_an_exception_from_the_deep_of_a_long_life_is_tried_again_although_nobody_reports_steps() -> None:
    run = story()
    run.now_s += 7200
    assert not fails(run, note(BUG, IMPORT)).state.done
    assert fails(run, note(BUG, IMPORT)).state.exit_code == 93


def test_being_killed_from_outside_proves_nothing_however_often() -> None:
    run = story(max_restarts=5)
    for _ in range(5):
        fails(run, note(None), Signaled(signum=SIGKILL))
    assert not run.state.done
    assert fails(run, note(None), Signaled(signum=SIGKILL)).state.exit_code == 137


def test_out_of_memory_twice_at_the_same_step_is_a_loop() -> None:
    killer = Finding(name="oom-killer", fault_class=FaultClass.RESOURCE, says="out of memory")
    run = story().reported(r0=4)
    fails(run, note(None, killer), Signaled(signum=SIGKILL))
    run.reported(r0=4)
    assert fails(run, note(None, killer), Signaled(signum=SIGKILL)).state.exit_code == 93


def test_who_reports_steps_and_fails_before_the_first_is_not_restarted() -> None:
    run = fails(story(), note(reports=True))
    assert run.state.exit_code == 93
    assert "not restarted: it failed before the first step" in run.whys[-1]


@pytest.mark.parametrize("finding", [PORT, None])
def test_unless_the_cause_passes_by_itself(finding: Finding | None) -> None:
    status = Exited(code=1) if finding is not None else Signaled(signum=SIGKILL)
    assert not fails(story(), note(None, finding, reports=True), status).state.done


def hangs_twice(*, proved: bool) -> Story:
    run = story().is_silent(0).hangs(0, step=None, proved=proved)
    fails(run, note(None, reports=True), Signaled(signum=SIGKILL))
    assert not run.state.done
    return fails(
        run.is_silent(0).hangs(0, step=None, proved=proved),
        note(None, reports=True),
        Signaled(signum=SIGKILL),
    )


def test_the_same_hang_twice_ends_the_run_only_if_the_kernel_proved_it() -> None:
    assert hangs_twice(proved=True).state.exit_code == 93
    assert not hangs_twice(proved=False).state.done


def test_what_may_pass_is_tried_again_even_before_the_first_step() -> None:
    assert not fails(story(), note(None, DISK, reports=True)).state.done
    assert not fails(story(), note(note_of("RuntimeError"), reports=True)).state.done


def test_a_script_that_cannot_import_is_not_restarted_whether_it_reports_steps_or_not() -> None:
    assert fails(story(), note(BUG, IMPORT)).state.exit_code == 93


def test_a_refusal_by_our_sdk_is_tried_once_in_whichever_life_it_comes() -> None:
    run = story().reported(r0=5)
    fails(run, note(reports=True), save=5)
    refused = Finding(name=REFUSED, fault_class=FaultClass.DETERMINISTIC, says="refused by faultrun.sdk")
    assert fails(run, note(BUG, refused, reports=True), save=5).state.exit_code == 93
    assert "the SDK refuses this program, and would again: ValueError" in run.whys[-1]


def test_a_later_incarnation_that_fails_before_its_first_step_has_its_second_chance() -> None:
    run = story().reported(r0=5)
    fails(run, note(reports=True))
    fails(run, note(reports=True))
    assert not run.state.done


def test_a_faulty_device_ends_with_the_workers_own_code_so_that_another_machine_is_tried() -> None:
    run = story().reported(r0=5)
    fails(run, note(BUG, FAULTY), Exited(code=7))
    run.reported(r0=5)
    assert fails(run, note(BUG, FAULTY), Exited(code=7)).state.exit_code == 7


def test_with_restarts_turned_off_the_worker_s_own_code_is_kept() -> None:
    assert fails(story(max_restarts=0), note(reports=True), Exited(code=3)).state.exit_code == 3


@pytest.mark.parametrize(
    ("steps", "same"),
    [((5, 5), True), ((5, 6), True), ((5, 7), False), ((None, 5), False), ((None, None), True)],
)
def test_steps_beside_each_other_are_the_same(steps: tuple[int | None, int | None], same: bool) -> None:
    first, second = (Signature(what="x", step=step) for step in steps)
    assert first.same_as(second) is same
    assert second.same_as(first) is same


def test_a_run_that_was_given_up_has_its_attempts_again_and_goes_on_from_its_newest_checkpoint() -> None:
    run = fails(fails(story().reported(r0=18, r1=18), note(), save=19), note(), save=19)
    assert (run.state.exit_code, run.state.incidents) == (93, 2)
    run.starts().chose(checkpoint(19)).prepared()
    assert (run.plan.point, run.state.incarnation, run.state.incidents) == (checkpoint(19), 2, 2)
    assert not fails(run, note(), save=19).state.done, "its first failure since somebody changed something"
    assert fails(run, note(), save=19).state.exit_code == 93
    assert run.state.incidents == 4


def test_a_budget_that_was_used_up_is_whole_again_when_the_run_is_started_again() -> None:
    run = story(max_restarts=1)
    for _ in range(2):
        fails(fails(run, note(None, PORT)), note(None, PORT))
        assert (run.state.exit_code, run.state.given_up) == (1, True)
        run.starts().chose().prepared()
    assert not run.state.done
