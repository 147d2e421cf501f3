"""Several nodes start MindSpore's ranks for one and the same scheduler, whoever serves next."""

from dataclasses import replace

import pytest

from faultrun.core.phases.decide import decide
from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.model.actions import Publish, Spawn
from faultrun.model.events import Event, GoGiven, HelperExit, PlanAdopted, Prepared
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.plan import Plan
from faultrun.model.run import Life, Phase, Run, RunState
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from faultrun.nodes.values.roster import Roster, RosterEntry
from support.nodes.node_facts import fact_with, node_fact
from support.stories.story import POLICY, WINDOWS, first_plan

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
SEATS = Topology(nodes=(NodeSlots(node=A, slots=2), NodeSlots(node=B, slots=2)))
RULES = Rules(topology=SEATS, policy=POLICY)
OURS = first_plan(4, topology=SEATS)
LEFT = Incident(
    number=1, incarnation=0, at_s=5, cause=Cause.EXIT, rank=3, status=Exited(code=1),
    explanation="exited with code 1", node=B,
)  # fmt: skip
ELSEWHERE = replace(LEFT, cause=Cause.ELSEWHERE, rank=None, status=None, node=NodeId(""))


def waits(node: NodeId, **run: object) -> RunState:
    """A node without workers after ``OURS``."""
    return RunState(
        node=node, topology=SEATS, windows=WINDOWS, phase=Phase.AWAITING_PLAN,
        run=Run(plan=OURS, **run),  # type: ignore[arg-type]
    )  # fmt: skip


def fact(node: NodeId, incident: Incident | None = None, incarnation: int = 0, **more: object) -> NodeFact:
    joined = node_fact(
        node=node,
        boot=BootId(""),
        at_s=0,
        incarnation=incarnation,
        status=NodeStatus.JOINED,
        incident=incident,
    )
    return fact_with(joined, **more)  # type: ignore[arg-type]


def planned(*facts: NodeFact, after: Plan | None = OURS) -> Plan:
    found = next_step(RULES, after, {one.node: one for one in facts}, 10)
    assert isinstance(found, PlanAdopted), found
    return found.plan


def started(state: RunState, plan: Plan) -> tuple[Spawn, NodeFact]:
    """How the node starts its ranks for ``plan``, and what it says then."""
    number = plan.incarnation
    told: tuple[Event, ...] = (
        PlanAdopted(at_s=10, incarnation=number, plan=plan),
        Prepared(at_s=11, incarnation=number, master_port=8118, took_s=0),
        GoGiven(at_s=12, incarnation=number, master_addr="10.0.0.1", master_port=8118),
    )
    for event in told:
        step = decide(state, event)
        state = step.state
    (spawn,) = [action for action in step.actions if isinstance(action, Spawn)]
    (said,) = [action.fact for action in step.actions if isinstance(action, Publish)]
    return spawn, said


def test_ours_serves_only_if_it_can_serve_the_ranks_of_every_node() -> None:
    other = fact(B, native_scheduler=True)
    assert not planned(fact(A), fact(B), after=None).native_scheduler
    assert planned(fact(A), other, after=None).native_scheduler
    assert not planned(fact(A), fact(B), replace(other, node=C, incarnation=-1)).native_scheduler


def test_what_a_node_gave_up_stays_given_up_when_that_node_is_lost() -> None:
    plan = planned(fact(A, native_scheduler=True), fact(B))
    spawn, said = started(waits(B), plan)
    assert spawn.native_scheduler
    gone = fact(C, incarnation=-1)
    after = planned(fact_with(said, status=NodeStatus.JOINED), gone, after=plan)
    assert [seat.node for seat in after.topology.nodes] == [C, B]
    assert after.native_scheduler


def test_every_node_reads_it_in_the_plan_that_the_store_keeps_in_parts() -> None:
    plan = replace(planned(fact(A, native_scheduler=True), fact(B)), boots=(BootId("1"), BootId("2")))
    seats = zip(plan.topology.nodes, plan.boots, strict=True)
    entries = (
        RosterEntry(node=one.node, slots=2, boot=boot, peer_addr="", machine="") for one, boot in seats
    )
    roster = Roster(entries=tuple(entries))
    assert roster.completes(replace(plan, topology=Topology(nodes=()), boots=())) == plan


def test_a_node_that_never_could_holds_nobody_else_to_it() -> None:
    plan = planned(fact(A), fact(B, native_scheduler=True))
    spawn, said = started(replace(waits(B), native_scheduler=True), plan)
    assert spawn.native_scheduler
    assert said.native_scheduler
    assert not decide(
        replace(waits(B), native_scheduler=True), PlanAdopted(at_s=10, incarnation=1, plan=plan)
    ).state.run.native_scheduler


@pytest.mark.parametrize(
    ("status", "forming", "native"),
    [(Exited(code=1), True, True), (Exited(code=1), False, False), (Signaled(signum=9), True, False)],
    ids=["in init()", "through init()", "killed"],
)
def test_an_error_inside_init_is_held_against_the_scheduler_of_another_node(
    status: ExitStatus, forming: bool, native: bool
) -> None:
    cause = Cause.EXIT if isinstance(status, Exited) else Cause.SIGNAL
    left = replace(LEFT, status=status, cause=cause)
    plan = planned(fact(A, ELSEWHERE, forming=forming), fact(B, left))
    assert plan.native_scheduler is native
    assert plan.aftermath is not None
    assert (plan.aftermath.incident.cause is Cause.RENDEZVOUS) is native
    assert (plan.ledger.restarts == ()) is native
    if native:
        assert plan.aftermath.incident.explanation == (
            "rank 3 exited with code 1 in init() on node b, where the built-in scheduler serves it; "
            "MindSpore's own scheduler process serves the rest of the run"
        )


def test_a_scheduler_process_that_dies_is_named_with_its_node() -> None:
    trains = replace(waits(A), phase=Phase.RUNNING, life=Life(topology=SEATS, alive=frozenset({0, 1})))
    died = HelperExit(at_s=9, incarnation=0, name="scheduler", pid=7, status=Signaled(signum=9))
    incident = decide(trains, died).state.life.incident
    assert incident is not None
    assert incident.explanation == "scheduler of node a (pid 7) killed by SIGKILL while it was needed"
