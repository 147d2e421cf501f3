"""Checkpoints that restarts could not get past."""

from dataclasses import replace

import pytest

from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.core.recovery.quarantine import attempts_after, attempts_of, attempts_seen, quarantined
from faultrun.model.actions import FindRecoveryPoint
from faultrun.model.checkpoint import Identity, RecoveryPoint
from faultrun.model.events import GoGiven, PlanAdopted, Timer, WorkersLost
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.observed.evidence import DeathNote, FaultClass, Finding
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.observed.progress import RankStep
from faultrun.model.observed.recovery import Began, ResumeChecked
from faultrun.model.plan import Attempt, Ledger, Plan
from faultrun.model.run import Phase
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from support.nodes.node_facts import fact_with, node_fact
from support.stories.story import NODE, POLICY, Story, checkpoint, first_plan


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


@pytest.mark.parametrize(("reached", "left_out"), [(6, []), (5, ["p"]), (None, ["p"])])
@pytest.mark.parametrize("cause", [Cause.SIGNAL, Cause.FENCE])
def test_ranks_that_stayed_and_trained_past_it_clear_it_although_their_plan_begins_nowhere(
    cause: Cause, reached: int | None, left_out: list[str]
) -> None:
    accused = Attempt(
        path="p", failures=2, identity=Identity(inode=1, size_bytes=2, mtime_ns=3, global_step=5)
    )
    stayed = replace(plan(None, accused), kept=frozenset({0}), since=3)
    assert [one.path for one in attempts_of(incident_of(cause, reached), stayed)] == left_out
    fact = said(NODE, "b", reached=-1 if reached is None else reached)
    assert [one.path for one in attempts_seen(stayed, [fact])] == left_out


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
    ("name", "of"), [("download", FaultClass.TRANSIENT), ("disk-full", FaultClass.RESOURCE)]
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


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize(("reached", "left_out"), [(9, []), (5, ["p"]), (None, ["p"])])
def test_an_incarnation_that_trained_past_it_clears_it_although_its_supervisor_was_killed(
    reached: int | None, left_out: list[str], twice: bool
) -> None:
    story = Story(1).begins(checkpoint(5, "p")).killed(0).recovers(checkpoint(5, "p"))
    story.starts()
    if reached is not None:
        story.now(WorkersLost, steps=(RankStep(rank=0, step=reached),))
    if twice:
        story.starts()
    story.chose(checkpoint(5, "p")).prepared()
    assert left_out_after_a_fault(story) == left_out


@pytest.mark.parametrize(("began", "left_out"), [(Began.AS_CHOSEN, []), (Began.ELSEWHERE, ["p"])])
def test_a_first_step_that_counts_on_from_it_clears_it_where_only_logs_tell_of_steps(
    began: Began, left_out: list[str]
) -> None:
    story = Story(1).begins(checkpoint(5, "p")).killed(0).recovers(checkpoint(5, "p"))
    story.now(ResumeChecked, began=began, why="", step=6, chosen_step=5, by_log=True)
    story.starts().now(WorkersLost, steps=(RankStep(rank=0, step=9),), by_log=True)
    story.chose(checkpoint(5, "p")).prepared()
    assert left_out_after_a_fault(story) == left_out


def left_out_after_a_fault(story: Story) -> list[str]:
    story.actions.clear()
    story.killed(0).drained()
    (survey,) = story.performed(FindRecoveryPoint)
    return [one.path for one in survey.quarantine]


@pytest.mark.parametrize(("step", "left_out"), [(9, []), (5, ["p"])])
def test_an_incarnation_that_trained_past_it_clears_it_although_the_run_was_told_to_stop(
    step: int, left_out: list[str]
) -> None:
    story = Story(1).begins(checkpoint(5, "p")).killed(0).recovers(checkpoint(5, "p"))
    story.reported(r0=step).told_to_stop().returned(0, 143).drained()
    assert story.phase is Phase.FINISHED
    story.starts().chose(checkpoint(5, "p")).prepared()
    assert left_out_after_a_fault(story) == left_out


@pytest.mark.parametrize(("step", "failures"), [(9, []), (5, [1])])
@pytest.mark.parametrize("name", ["disk-full", "xid"])
def test_who_trained_past_it_clears_it_however_it_failed(name: str, step: int, failures: list[int]) -> None:
    of = FaultClass.HARDWARE if name == "xid" else FaultClass.RESOURCE
    found = Finding(name=name, fault_class=of, says="it failed")
    about = {"number": 1, "incarnation": 4, "at_s": 1, "cause": Cause.EXIT, "rank": 0, "status": None}
    incident = Incident(**about, finding=found, step=step)  # type: ignore[arg-type]
    once = plan(checkpoint(5, "p"), Attempt(path="p", failures=1))
    assert [one.failures for one in attempts_of(incident, once)] == failures


ONCE = Attempt(path="p", failures=1)
TWO = Topology(nodes=(NodeSlots(node=NODE, slots=1), NodeSlots(node=NodeId("other"), slots=1)))


def two_nodes(*attempts: Attempt) -> Plan:
    return replace(plan(checkpoint(5, "p"), *attempts), topology=TWO, boots=(BootId("b"), BootId("o")))


def said(node: NodeId, boot: str, incident: Incident | None = None, **more: object) -> NodeFact:
    return node_fact(
        node=node,
        boot=BootId(boot),
        at_s=0,
        incarnation=4,
        status=NodeStatus.JOINED,
        incident=incident,
        point=checkpoint(5, "p"),
        more_points=(checkpoint(3, "older"),),
        **more,
    )


def incident_of(cause: Cause, step: int | None = None) -> Incident:
    return Incident(number=1, incarnation=4, at_s=1, cause=cause, rank=None, status=None, step=step)


def following(*facts: NodeFact, after: Plan) -> Plan:
    rules = Rules(topology=TWO, policy=POLICY)
    answer = next_step(rules, after, {one.node: one for one in facts}, 1.0)
    assert isinstance(answer, PlanAdopted), answer
    return answer.plan


@pytest.mark.parametrize(
    ("followed_at", "reached", "failures"), [(None, 9, []), (9, -1, []), (5, 5, [1]), (None, -1, [1])]
)
def test_ranks_of_any_node_that_trained_past_it_clear_it_when_a_node_is_lost(
    followed_at: int | None, reached: int, failures: list[int]
) -> None:
    here = said(NODE, "b", incident_of(Cause.ELSEWHERE, followed_at))
    came_back = said(NodeId("other"), "o2", reached=reached)
    next_plan = following(here, came_back, after=two_nodes(ONCE))
    assert [one.failures for one in next_plan.ledger.attempts] == failures
    assert next_plan.point is not None and next_plan.point.path == "p"


def test_a_checkpoint_that_failed_twice_is_left_out_by_all_whatever_those_offer_who_only_followed() -> None:
    followed = said(NODE, "b", incident_of(Cause.ELSEWHERE))
    failed = said(NodeId("other"), "o", incident_of(Cause.EXIT))
    failed = fact_with(failed, point=checkpoint(3, "older"), more_points=())
    next_plan = following(followed, failed, after=two_nodes(ONCE))
    assert next_plan.point is not None and next_plan.point.path == "older"


def test_a_checkpoint_that_failed_twice_is_better_than_none() -> None:
    alone = {"more_points": ()}
    followed = fact_with(said(NODE, "b", incident_of(Cause.ELSEWHERE)), **alone)  # type: ignore[arg-type]
    failed = fact_with(said(NodeId("other"), "o", incident_of(Cause.EXIT)), **alone)  # type: ignore[arg-type]
    next_plan = following(followed, failed, after=two_nodes(ONCE))
    assert next_plan.point is not None and next_plan.point.path == "p"


def test_a_node_whose_ranks_only_followed_accuses_nothing_by_itself() -> None:
    story = Story(1)
    story.agreement_is_silent = True
    story.starts().chose(checkpoint(5, "p")).planned(two_nodes(ONCE)).prepared()
    story.tell(GoGiven(at_s=0, incarnation=4, master_addr="", master_port=1))
    story.tell(IncarnationOver(at_s=1, incarnation=4, why="node other was lost", node=NodeId("other")))
    story.actions.clear()
    story.returned(0, 143).drained()
    (survey,) = story.performed(FindRecoveryPoint)
    assert survey.quarantine == ()
    assert survey.fault_at_s is not None


def test_a_checkpoint_is_not_left_out_because_a_lost_node_broke_the_connections_of_another() -> None:
    broken = replace(incident_of(Cause.EXIT), fault_class=FaultClass.CONSEQUENCE)
    next_plan = following(said(NODE, "b", broken), said(NodeId("other"), "o2"), after=two_nodes(ONCE))
    assert next_plan.point is not None and next_plan.point.path == "p"
    assert next_plan.ledger.attempts == (ONCE,)
