"""A host of several is lost, a spare takes its place, and the ranks of the others keep their processes."""

from dataclasses import replace

import pytest

from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.core.plan.waiting import Waiting
from faultrun.model.actions import Prepare, Publish, Spawn, StartTimer, SweepRanks
from faultrun.model.events import GoGiven, PlanAdopted, Timer
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.observed.elastic import Accused, NodeAside, SlotLedger
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.plan import Plan
from faultrun.model.run import Phase
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from faultrun.nodes.protocol.plan_events import news_for_supervisor
from faultrun.nodes.values.membership import KnownKeys
from faultrun.nodes.values.roster import PlanHeader, PlanPhase, Roster, RosterEntry
from support.nodes.node_facts import as_far_as_said, fact_with
from support.stories.story import POLICY, STAYING, Story, first_plan

A, B, C, D = (NodeId(name) for name in "abcd")
SEATS = Topology(nodes=(NodeSlots(node=A, slots=2), NodeSlots(node=B, slots=2), NodeSlots(node=C, slots=2)))
BOOT = BootId("b")
PLAN = first_plan(6, topology=SEATS, boots=(BOOT,) * 3)
RULES = Rules(topology=SEATS, policy=POLICY, lease_ttl_s=10, stays=True)
LOST = "node b was lost: it ended, or etcd heard nothing of it for 10 s; ranks 2 3"


def fact(node: NodeId, status: NodeStatus, kept: tuple[int, ...] = (), **more: object) -> NodeFact:
    incident = Incident(
        number=1, incarnation=0, at_s=1, cause=Cause.ELSEWHERE, rank=None, status=None, explanation=LOST
    )
    plain = as_far_as_said(
        node=node,
        boot=BOOT,
        at_s=1,
        incarnation=0,
        status=status,
        incident=incident if status is NodeStatus.REPLACING else None,
        kept=frozenset(kept),
        meeting_port=7000 if status is NodeStatus.REPLACING else 0,
        addr=f"10.0.0.{node}",
        high_step=41,
    )
    return fact_with(plain, **more)  # type: ignore[arg-type]


TRAINS = (fact(A, NodeStatus.RUNNING), fact(C, NodeStatus.RUNNING))
FREE = (fact(A, NodeStatus.REPLACING, (0, 1)), fact(C, NodeStatus.REPLACING, (4, 5)))
SPARE = fact(D, NodeStatus.JOINED, incarnation=-1, arrived=4)


def answer(*facts: NodeFact, plan: Plan = PLAN, rules: Rules = RULES) -> object:
    return next_step(rules, plan, {one.node: one for one in facts}, 2.0)


def test_once_its_lease_is_over_the_others_are_freed_and_nobody_is_planned_before_all_are() -> None:
    told = answer(*TRAINS, SPARE)
    assert isinstance(told, IncarnationOver)
    assert (told.incarnation, told.stays, told.why) == (0, True, LOST)
    assert answer(FREE[0], TRAINS[1], SPARE) == replace(told)
    assert answer(*TRAINS, fact(B, NodeStatus.RUNNING), SPARE) == Waiting(reason="the end of the workers"), (
        "as long as it has a lease"
    )


def test_the_plan_keeps_all_that_live_and_gives_the_lost_seat_to_the_spare_that_came_first() -> None:
    later = replace(SPARE, node=NodeId("0"), arrived=5)
    lacks = fact_with(SPARE, node=NodeId("e"), arrived=1, lacks="its mount is gone")
    told = answer(*FREE, lacks, SPARE, later)
    assert isinstance(told, PlanAdopted)
    plan = told.plan
    assert (plan.incarnation, plan.kept, plan.since, plan.point) == (1, frozenset({0, 1, 4, 5}), 0, None)
    assert [seat.node for seat in plan.topology.nodes] == [A, D, C]
    assert (plan.meets_at, plan.boots) == ("10.0.0.a:7000", (BOOT,) * 3)
    assert [(one.node, one.by, one.ranks) for one in plan.replaced] == [(B, D, (2, 3))]
    assert plan.ledger.restarts == ()  # a lost node is charged to nobody
    assert plan.aftermath is not None
    incident = plan.aftermath.incident
    assert (incident.cause, incident.node, incident.together, incident.explanation) == (
        *(Cause.NODE, B),
        *((2, 3), LOST),
    )


@pytest.mark.parametrize(
    ("why", "facts", "rules"),
    [
        ("no spare", TRAINS, RULES),
        ("the spare was told to stop", (*TRAINS, replace(SPARE, stop=StopSource.SIGTERM)), RULES),
        ("the spare cannot start workers", (*TRAINS, replace(SPARE, failure=(71, "disk"))), RULES),
        ("nobody is to stay", (*TRAINS, SPARE), replace(RULES, stays=False)),
        ("another was told to stop", (TRAINS[0], replace(TRAINS[1], stop=StopSource.SIGTERM), SPARE), RULES),
        ("another has given up", (TRAINS[0], fact_with(TRAINS[1], status=NodeStatus.DRAINED), SPARE), RULES),
        ("another has finished", (TRAINS[0], fact_with(TRAINS[1], status=NodeStatus.DONE), SPARE), RULES),
        ("another is no further than ready", (TRAINS[0], fact(C, NodeStatus.READY), SPARE), RULES),
        ("another has another boot", (TRAINS[0], replace(TRAINS[1], boot=BootId("x")), SPARE), RULES),
        ("nobody listens", (*(fact_with(one, meeting_port=0) for one in FREE), SPARE), RULES),
        ("the spare is gone", FREE, RULES),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_else_all_begin_anew(why: str, facts: tuple[NodeFact, ...], rules: Rules) -> None:
    told = answer(*facts, rules=rules)
    assert isinstance(told, IncarnationOver), why
    assert not told.stays


def test_two_lost_hosts_need_two_spares() -> None:
    one = answer(FREE[0], SPARE)
    assert isinstance(one, IncarnationOver)
    assert not one.stays
    two = answer(FREE[0], SPARE, fact_with(SPARE, node=NodeId("e"), arrived=5))
    assert isinstance(two, PlanAdopted)
    assert [seat.node for seat in two.plan.topology.nodes] == [A, D, NodeId("e")]
    assert two.plan.kept == frozenset({0, 1})


def test_the_spare_is_waited_for_and_its_own_loss_frees_the_others_again() -> None:
    told = answer(*FREE, SPARE)
    assert isinstance(told, PlanAdopted)
    on = [fact_with(one, incarnation=1, status=NodeStatus.RUNNING) for one in FREE]
    assert answer(*on, SPARE, plan=told.plan) == Waiting(reason="d to hear the plan")
    ready = fact_with(SPARE, incarnation=1, status=NodeStatus.READY)
    assert isinstance(answer(*on, ready, plan=told.plan), GoGiven)
    again = answer(*on, replace(SPARE, node=NodeId("e")), plan=told.plan)
    assert isinstance(again, IncarnationOver)
    assert (again.incarnation, again.stays) == (1, True)
    gave_up = replace(SPARE, incarnation=1, failure=(71, "no room"))
    over = answer(*on, gave_up, plan=told.plan)
    assert isinstance(over, IncarnationOver)
    assert not over.stays


def test_a_run_that_has_become_smaller_begins_anew_and_one_whose_slot_is_only_accused_does_not() -> None:
    accused = SlotLedger(accused=Accused(node=B, slot=0, failures=1, at_s=1))
    told = answer(*FREE, SPARE, plan=replace(PLAN, slots=accused))
    assert isinstance(told, PlanAdopted)
    assert told.plan.kept
    smaller = replace(accused, nodes=(NodeAside(node=D, incarnation=0, why="its ranks failed twice"),))
    over = answer(*FREE, SPARE, plan=replace(PLAN, slots=smaller))
    assert isinstance(over, IncarnationOver)
    assert not over.stays


KEPT = replace(
    PLAN,
    incarnation=1,
    topology=Topology(nodes=tuple(replace(seat, node=D) if seat.node == B else seat for seat in SEATS.nodes)),
    kept=frozenset({0, 1, 4, 5}),
    since=0,
    meets_at="10.0.0.a:7000",
)


def spare() -> Story:
    """The node that waits, with the plan that gives it the lost node's place."""
    story = Story(2, POLICY, STAYING)
    story.agreement_is_silent = True
    story.state = replace(story.state, node=D)
    return story.starts(D).chose().planned(KEPT)


def test_the_spare_prepares_for_the_plan_and_starts_newcomers_that_are_waited_for() -> None:
    story = spare()
    assert story.phase is Phase.PREPARING
    (prepare,) = story.performed(Prepare)
    assert prepare.plan.point is None
    story.prepared()
    assert story.performed(Publish)[-1].fact.word is NodeStatus.READY
    story.tell(GoGiven(at_s=story.now_s, incarnation=1, master_addr="10.0.0.1", master_port=1))
    (spawn,) = [action for action in story.actions if isinstance(action, Spawn)]
    assert (spawn.ranks, spawn.plan.started) == ((2, 3), 0)
    (timer,) = story.performed(StartTimer)
    assert (timer.timer, timer.at_s) == (Timer.REJOIN, story.now_s + 15)
    assert story.state.life.rejoining == frozenset({2, 3})
    assert not story.rejoined(2, 3).performed(SweepRanks), "nobody of this node has died"
    assert (story.phase, story.state.life.rejoining) == (Phase.RUNNING, frozenset())


def test_newcomers_that_have_no_state_for_their_shards_have_all_begin_anew() -> None:
    story = spare().prepared()
    story.tell(GoGiven(at_s=story.now_s, incarnation=1, master_addr="10.0.0.1", master_port=1))
    story.cannot_rejoin(2, "there is no step that all ranks have")
    assert story.phase is Phase.DRAINING
    assert story.incident.explanation == "rank 2 cannot rejoin: there is no step that all ranks have"


def test_newcomers_of_a_spare_that_do_not_come_in_time_end_the_wait() -> None:
    story = spare().prepared()
    story.tell(GoGiven(at_s=story.now_s, incarnation=1, master_addr="10.0.0.1", master_port=1))
    assert story.rang(Timer.REJOIN, after_s=15).phase is Phase.DRAINING


def test_only_a_node_with_no_ranks_to_keep_takes_the_plan_as_its_beginning() -> None:
    boots = {A: BOOT, C: BOOT, D: BOOT}
    roster = Roster(
        entries=tuple(
            RosterEntry(node=seat.node, slots=2, boot=boots[seat.node], peer_addr="")
            for seat in KEPT.topology.nodes
        )
    )
    body = replace(KEPT, topology=Topology(nodes=()), boots=())
    header = PlanHeader(incarnation=1, phase=PlanPhase.GO, roster="r", body="b", run_s=1)

    def heard(one: NodeFact) -> list[str]:
        told = news_for_supervisor(one, KnownKeys(), header, roster, body, 1.0)
        return [type(event).__name__ for event in told]

    assert heard(SPARE) == [PlanAdopted.__name__]
    assert heard(fact_with(SPARE, incarnation=1, status=NodeStatus.READY)) == [GoGiven.__name__]
    assert heard(FREE[0]) == [PlanAdopted.__name__]
    assert heard(fact_with(FREE[0], status=NodeStatus.DRAINED)) == []
    assert heard(replace(SPARE, node=B, boot=BootId("again"))) == []
