"""The end of a run of several nodes: stopped, given up, or over before somebody comes."""

from dataclasses import replace

import pytest

from faultrun.model.events import GoGiven, PlanAdopted, RunFinished
from faultrun.model.exits import Exited
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.plan import Plan
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId
from faultrun.nodes.values.membership import BODIES, Tell
from faultrun.nodes.values.roster import PlanPhase
from support.nodes.etcd_in_memory import RULES, TIMES, Group, Member
from support.stories.story import POLICY, rule


@pytest.mark.parametrize("both", [True, False])
def test_a_stop_of_one_node_ends_its_part_and_a_stop_of_all_ends_the_run(both: bool) -> None:
    run = Group("a", "b", "c").starts()
    run["a"].says(NodeStatus.DRAINED, stop=StopSource.SIGTERM)
    run["b"].says(
        NodeStatus.DRAINED if both else NodeStatus.JOINED, stop=StopSource.SIGTERM if both else None, look=0
    )
    run.settles()
    if not both:
        assert run.phase == (0, PlanPhase.LOOK), "a may have saved when b had looked"
        for name in "bc":
            run[name].says(NodeStatus.JOINED, look=1)
    run.passes(3)
    (end,) = run["a"].was_told(RunFinished)
    assert isinstance(end, RunFinished)
    assert (end.exit_code, end.stopped) == (143, True)
    assert run.phase == ((0, PlanPhase.FINISHED) if both else (1, PlanPhase.PREPARE))
    assert bool(run["c"].was_told(PlanAdopted)) is not both


@pytest.mark.parametrize("name", ["a", "b"])
def test_an_unfit_node_ends_with_its_own_code_once_the_others_go_on_without_it(name: str) -> None:
    run = Group("a", "b", "c").starts()
    (other,) = {"a", "b"} - {name}
    run[name].says(NodeStatus.DRAINED, failure=(71, "no space"), unfit=True)
    run.settles()
    assert not run[name].was_told(RunFinished), "its incident is not answered yet"
    run[other].says(NodeStatus.JOINED, look=0)
    run.settles()
    for one in (other, "c"):
        run[one].says(NodeStatus.JOINED, look=1)
    run.passes(3)
    (end,) = run[name].was_told(RunFinished)
    assert isinstance(end, RunFinished)
    assert (end.exit_code, end.why, end.stopped) == (71, "no space; the other nodes go on", False)
    run.is_gone(name)
    run.settles().prepares(1).runs(1)
    assert run.phase == (1, PlanPhase.GO)
    assert all(run[one].was_told(PlanAdopted) and not run[one].was_told(RunFinished) for one in (other, "c"))


def test_a_run_that_is_given_up_tells_every_node_and_spare_the_same_of_its_last_incident() -> None:
    run = Group("a", "b", "c", rules=replace(RULES, policy=rule(max_restarts=0))).starts()
    fell = Incident(
        number=1, incarnation=0, at_s=1, cause=Cause.EXIT, rank=1, status=Exited(code=3), node=NodeId("b")
    )
    run["b"].says(NodeStatus.JOINED, incident=fell, look=0)
    run["a"].says(NodeStatus.JOINED, incident=replace(fell, cause=Cause.ELSEWHERE, rank=None), look=0)
    run.settles()
    told = [one.was_told(RunFinished)[0] for one in run.members]
    assert {(end.exit_code, end.aftermath.incident) for end in told} == {(3, fell)}  # type: ignore[attr-defined]
    revision = run.store.common().revision
    assert [end.revision for end in told] == [revision] * 3  # type: ignore[attr-defined]
    assert 0 < run["a"].was_told(GoGiven)[0].revision < revision  # type: ignore[attr-defined]


def test_a_wait_that_ends_the_run_tells_the_loss_that_began_it() -> None:
    run = Group("a", "b").starts()
    run.is_gone("b")
    run.settles()
    heard = Incident(number=1, incarnation=0, at_s=1, cause=Cause.ELSEWHERE, rank=None, status=None)
    run["a"].says(NodeStatus.JOINED, incident=heard, look=0)
    (end,) = run.passes(TIMES.node_wait_s + 1)["a"].was_told(RunFinished)
    assert isinstance(end, RunFinished)
    assert end.aftermath is not None
    assert (end.exit_code, end.aftermath.incident.cause, end.aftermath.incident.node) == (69, Cause.NODE, "b")


def test_the_end_is_told_although_what_is_known_of_its_incident_cannot_be_read() -> None:
    run = Group("a", "b").starts()
    for one in run.members:
        one.says(NodeStatus.DONE)
    run.settles()
    late = run["b"]
    late.told.clear()
    late.remembered = replace(late.remembered, told=(), ended_since_s=None)
    common = late.known.common
    assert common is not None
    assert common.header is not None
    late.hears = False
    late.known = replace(late.known, common=replace(common, header=replace(common.header, last="lost")))
    assert not [act for act in late.judges().acts if isinstance(act, Tell)]
    run.now_s += TIMES.leave_s
    assert [act for act in late.judges().acts if isinstance(act, Tell)]


def test_a_run_that_was_given_up_goes_on_with_a_fresh_budget_for_those_who_come_after() -> None:
    run = Group("a", "b", rules=replace(RULES, policy=replace(POLICY, max_restarts=0))).starts()
    fault = Incident(number=1, incarnation=0, at_s=0, cause=Cause.EXIT, rank=0, status=Exited(code=3))
    run["a"].says(NodeStatus.JOINED, incident=fault)
    run["b"].says(NodeStatus.JOINED)
    run.settles()
    assert run.phase == (0, PlanPhase.FINISHED)
    assert [end.exit_code for end in run["b"].was_told(RunFinished)] == [3]  # type: ignore[attr-defined]
    header = run.store.common().header
    assert header is not None
    last = run.store.parts()[f"{BODIES}{header.last}"]
    assert isinstance(last, Plan)
    assert (last.aftermath and last.aftermath.incident, last.ledger.incidents) == (fault, 1)
    for node in "ab":
        run.is_gone(node)
        run.members.append(again := Member(run, node))
        again.fact = replace(again.fact, boot=BootId(f"{node}2"), incarnation=0)
    run.settles()
    assert run.phase == (1, PlanPhase.PREPARE)
    assert f"{BODIES}{header.last}" not in run.store.parts()


def test_who_was_cut_off_without_workers_as_the_run_ended_is_told_that_and_begins_no_other() -> None:
    run = Group("a", "b", "c", rules=replace(RULES, policy=replace(POLICY, max_restarts=0))).starts()
    spare = run["c"]
    spare.hears = False
    assert spare.lease is not None
    run.store.drop(spare.lease.number)
    fault = Incident(number=1, incarnation=0, at_s=0, cause=Cause.EXIT, rank=0, status=Exited(code=3))
    run["a"].says(NodeStatus.JOINED, incident=fault)
    run["b"].says(NodeStatus.JOINED)
    run.settles()
    assert run.phase == (0, PlanPhase.FINISHED)
    for node in "ab":
        run.is_gone(node)
    spare.hears, spare.lease = True, None
    run.passes(TIMES.leave_s)
    assert [end.exit_code for end in spare.was_told(RunFinished)] == [3]  # type: ignore[attr-defined]


def test_who_comes_alone_after_a_run_that_ended_with_0_waits_and_ends_as_that_one_did() -> None:
    run = Group("a", "b").starts()
    for node in "ab":
        run[node].says(NodeStatus.DONE)
    run.settles()
    assert run.phase == (0, PlanPhase.FINISHED)
    for node in "ab":
        run.is_gone(node)
    run.members.append(late := Member(run, "c"))
    run.settles()
    assert (late.waits, late.was_told(RunFinished)) == ("another node", [])
    run.passes(61)
    (end,) = late.was_told(RunFinished)
    assert isinstance(end, RunFinished)
    why = "the run had ended: every rank finished; another node did not come within 1 min"
    assert (end.exit_code, end.why) == (0, why)
    run.settles()
    run.is_gone("c")
    run.members.append(later := Member(run, "d"))
    run.settles()
    run.passes(61)
    (end,) = later.was_told(RunFinished)
    assert isinstance(end, RunFinished)
    assert end.why == why, "who comes after that is told of the same end alone"
