"""A rank of one node dies, and those of all nodes stay; and every doubt in which all begin anew."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.core.plan.waiting import Waiting
from faultrun.model.actions import (
    ExamineDeaths,
    FindRecoveryPoint,
    FreeSurvivors,
    Kill,
    Publish,
    RaiseAlarm,
    RequestGasp,
    Spawn,
    StartTimer,
)
from faultrun.model.events import GoGiven, PlanAdopted, Timer
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.observed.node_fact import NodeFact, NodeReplacing, NodeStatus
from faultrun.model.observed.rejoin import SurvivorsFreed
from faultrun.model.plan import Plan
from faultrun.model.run import Phase
from faultrun.model.spec.windows import Windows
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from faultrun.nodes.protocol.plan_events import news_for_supervisor
from faultrun.nodes.values.membership import Fence, KnownKeys
from faultrun.nodes.values.roster import PlanHeader, PlanPhase, Roster, RosterEntry
from support.nodes.node_facts import as_far_as_said, fact_with, flat
from support.stories.story import NODE, POLICY, STAYING, WINDOWS, Story, checkpoint, first_plan

OTHER = NodeId("other")
SEATS = Topology(nodes=(NodeSlots(node=NODE, slots=2), NodeSlots(node=OTHER, slots=2)))
PLAN = first_plan(4, topology=SEATS, boots=(BootId("b"), BootId("b")))
RULES = Rules(topology=SEATS, policy=POLICY)


def training(able: tuple[int, ...] = (0, 1), windows: Windows = STAYING) -> Story:
    """This node has ranks 0 and 1; the others are elsewhere."""
    story = Story(2, POLICY, windows)
    story.agreement_is_silent = True
    story.starts().chose().planned(PLAN).prepared()
    story.tell(GoGiven(at_s=story.now_s, incarnation=0, master_addr="10.0.0.1", master_port=1))
    story.can_rejoin(*able).reported(r0=41, r1=41)
    story.actions.clear()
    return story


def over(story: Story, *, stays: bool, incarnation: int = 0) -> Story:
    return story.now(IncarnationOver, incarnation=incarnation, why="rank 3 fell", node=OTHER, stays=stays)


def freed(story: Story, port: int = 7000, why: str = "") -> Story:
    return story.now(SurvivorsFreed, meeting_port=port, why=why)


def keeping(*kept: int, incarnation: int = 1) -> Plan:
    return replace(PLAN, incarnation=incarnation, kept=frozenset(kept), since=0, meets_at="10.0.0.1:7000")


def stated(story: Story) -> NodeFact:
    return story.performed(Publish)[-1].fact


def test_a_spare_whose_place_is_given_up_looks_again_for_what_was_saved_since_it_came() -> None:
    story = Story(2, POLICY, STAYING)
    story.agreement_is_silent = True
    story.starts().chose(checkpoint(30)).planned(keeping(2, 3, incarnation=4)).prepared()
    story.actions.clear()
    over(story, stays=False, incarnation=4)
    assert [type(action) for action in story.actions] == [FindRecoveryPoint]
    told = stated(story.chose(checkpoint(80)))
    assert (told.word, told.incarnation) == (NodeStatus.JOINED, 4)
    assert told.resume.point is not None
    assert told.resume.point.global_step == 80


def test_the_others_are_told_to_stay_and_the_agreement_once_it_is_known_where_all_can_meet() -> None:
    story = training().killed(1)
    assert story.phase is Phase.REPLACING
    kinds = [type(action) for action in story.actions]
    assert kinds == [FreeSurvivors, RaiseAlarm, StartTimer, ExamineDeaths]
    (alarm,) = story.performed(RaiseAlarm)
    assert (alarm.incarnation, alarm.stays, alarm.why) == (0, True, "rank 1 killed by SIGKILL")
    freed(story)
    assert not story.performed(Publish)
    told = stated(story.examined())
    assert isinstance(told.status, NodeReplacing)
    assert (told.status.kept, told.status.meeting_port) == (frozenset({0}), 7000)
    assert told.left.incident is not None
    assert (told.left.incident.rank, told.left.incident.step) == (1, 41)
    (spawn,) = story.planned(keeping(0, 2, 3)).performed(Spawn)
    assert (story.phase, spawn.ranks, spawn.master_addr, spawn.master_port) == (
        *(Phase.RUNNING, (1,)),
        *("10.0.0.1", 1),
    )


def test_a_rank_that_hangs_is_dead_before_another_node_hears_of_it() -> None:
    story = training().hangs(1)
    assert [type(action) for action in story.actions] == [Kill, StartTimer]
    story.killed(1)
    assert [type(action) for action in story.actions[2:]] == [
        *(FreeSurvivors, RaiseAlarm),
        *(StartTimer, ExamineDeaths),
    ]
    (alarm,) = story.performed(RaiseAlarm)
    assert (alarm.stays, alarm.why) == (True, "rank 1 hung")
    told = stated(freed(story).examined())
    assert told.status == NodeReplacing(kept=frozenset({0}), meeting_port=7000, left=told.left)
    assert told.left.incident is not None
    assert (told.left.incident.cause, told.left.incident.rank) == (Cause.HANG, 1)


def test_a_death_elsewhere_frees_the_ranks_of_this_node_and_nobody_is_started_here() -> None:
    story = over(training(), stays=True)
    assert (story.phase, story.performed(RequestGasp)) == (Phase.REPLACING, [])
    story = over(training(), stays=True)
    assert [type(action) for action in story.actions] == [FreeSurvivors, StartTimer]
    told = stated(freed(over(story, stays=True)))
    assert told.status == NodeReplacing(kept=frozenset({0, 1}), meeting_port=7000, left=told.left)
    assert told.left.incident is not None
    assert told.left.incident.cause is Cause.ELSEWHERE
    (spawn,) = story.planned(keeping(0, 1, 2)).performed(Spawn)
    assert (story.phase, spawn.ranks) == (Phase.RUNNING, ())
    story.rejoined(0, 1)
    assert story.state.life.rejoining == frozenset()


def test_a_node_whose_ranks_have_all_died_starts_them_beside_the_survivors_of_another() -> None:
    story = freed(training().killed(0).killed(1)).examined()
    assert flat(stated(story))["kept"] == frozenset()
    (spawn,) = story.planned(keeping(2, 3)).performed(Spawn)
    assert (story.phase, spawn.ranks) == (Phase.RUNNING, (0, 1))


def test_bad_memory_is_repaired_in_place_over_nodes_too() -> None:
    story = training().has_bad_memory(1)
    assert not [action for action in story.actions if isinstance(action, Publish)]
    assert story.performed(RaiseAlarm)[0].stays
    assert flat(stated(freed(story)))["kept"] == frozenset({0, 1})


@pytest.mark.parametrize(
    ("why", "story"),
    [
        ("one cannot", lambda: training(able=(0,))),
        ("not wanted", lambda: training(windows=WINDOWS)),
        ("one has finished", lambda: training().returned(1)),
    ],
)
def test_where_one_of_another_node_cannot_stay_all_begin_anew(why: str, story: Callable[[], Story]) -> None:
    told = over(story(), stays=True)
    assert told.phase is Phase.DRAINING, why
    (alarm,) = told.performed(RaiseAlarm)
    assert not alarm.stays
    assert not told.performed(FreeSurvivors)


@pytest.mark.parametrize(
    ("doubt", "happens"),
    [
        ("another node cannot", lambda story: over(story, stays=False)),
        ("this node cannot listen", lambda story: freed(story, 0, "no port")),
        ("no plan comes", lambda story: story.rang(Timer.REJOIN, after_s=15)),
        ("a survivor cannot", lambda story: story.cannot_rejoin(0)),
        ("a rank finishes", lambda story: story.returned(0)),
        ("a stop", lambda story: story.told_to_stop()),
    ],
)
def test_every_doubt_before_the_plan_ends_in_a_drain_with_the_death_as_the_incident(
    doubt: str, happens: Callable[[Story], Story]
) -> None:
    story = training().killed(1)
    story.actions.clear()
    happens(story)
    assert story.phase in (Phase.DRAINING, Phase.SWEEPING), doubt
    assert (story.incident.rank, story.incident.cause) == (1, Cause.SIGNAL)
    raised = story.performed(RaiseAlarm)
    assert doubt == "another node cannot" or [one.stays for one in raised] == [False]


def test_a_survivor_that_dies_as_the_plan_comes_ends_it_on_every_node() -> None:
    story = freed(training().killed(1)).examined().killed(0)
    story.actions.clear()
    story.planned(keeping(0, 2, 3))
    assert (story.phase, story.performed(Spawn)) == (Phase.SWEEPING, [])
    raised = [one for one in story.steps[-1][1].actions if isinstance(one, RaiseAlarm)]
    alarms = [(one.incarnation, one.stays) for one in raised]
    assert alarms == [(0, False), (1, False)]
    assert story.whys[-1].startswith("rank 0, which incarnation 1 keeps, died on node here")


def test_a_plan_that_keeps_ranks_is_not_for_a_node_that_has_given_them_up() -> None:
    story = over(freed(training().killed(1)).examined(), stays=False)
    story.killed(0).drained().chose()
    assert story.phase is Phase.AWAITING_PLAN
    story.planned(keeping(0, 2, 3))
    assert (story.phase, story.state.incarnation) == (Phase.AWAITING_PLAN, 0)


def fact(node: NodeId, status: NodeStatus, kept: tuple[int, ...] = (), **more: object) -> NodeFact:
    incident = Incident(number=1, incarnation=0, at_s=1, cause=Cause.SIGNAL, rank=3, status=None)
    elsewhere = replace(incident, cause=Cause.ELSEWHERE, rank=None)
    plain = as_far_as_said(
        node=node,
        boot=BootId("b"),
        at_s=1,
        incarnation=0,
        status=status,
        incident=incident if node == OTHER else elsewhere,
        kept=frozenset(kept),
        meeting_port=7000,
        addr="10.0.0.1",
        high_step=41,
    )
    return fact_with(plain, **more)  # type: ignore[arg-type]


STRUCK = fact(OTHER, NodeStatus.REPLACING, (2,))
FREE = fact(NODE, NodeStatus.REPLACING, (0, 1))


def answer(*facts: NodeFact, plan: Plan = PLAN) -> object:
    return next_step(RULES, plan, {one.node: one for one in facts}, 2.0)


def test_once_all_are_free_the_plan_keeps_them_all_and_says_where_they_meet() -> None:
    told = answer(FREE, STRUCK)
    assert isinstance(told, PlanAdopted)
    plan = told.plan
    assert (plan.incarnation, plan.kept, plan.since) == (1, frozenset({0, 1, 2}), 0)
    assert (plan.meets_at, plan.boots, plan.point) == ("10.0.0.1:7000", PLAN.boots, None)
    assert len(plan.ledger.restarts) == 1  # charged like a restart of all
    assert plan.aftermath is not None
    assert plan.aftermath.incident.rank == 3
    following = (fact_with(FREE, status=NodeStatus.RUNNING, incarnation=1), STRUCK)
    assert answer(*following, plan=plan) == Waiting(reason=f"{OTHER} to hear the plan")


def test_nobody_is_kept_while_ranks_of_a_node_still_train() -> None:
    assert answer(fact_with(FREE, status=NodeStatus.RUNNING), STRUCK) == Waiting(
        reason=f"the ranks of {NODE} to be free"
    )


@pytest.mark.parametrize(
    "other",
    [
        fact_with(FREE, status=NodeStatus.JOINED),
        fact_with(FREE, status=NodeStatus.DRAINED),
        fact_with(FREE, status=NodeStatus.DONE),
        fact_with(FREE, status=NodeStatus.READY),
        replace(FREE, stop=StopSource.SIGTERM),
        replace(FREE, boot=BootId("again")),
        fact_with(FREE, meeting_port=0),
    ],
    ids=lambda one: f"{one.word.value} {one.stop} {one.boot} {flat(one).get('meeting_port')}",
)
def test_where_one_node_cannot_nobody_stays(other: NodeFact) -> None:
    struck = fact_with(STRUCK, meeting_port=flat(other).get("meeting_port", 7000))
    told = answer(other, struck)
    assert isinstance(told, IncarnationOver)
    assert (told.incarnation, told.stays) == (0, False)


def test_without_a_restart_left_nobody_stays() -> None:
    rules = replace(RULES, policy=replace(POLICY, max_restarts=0))
    assert isinstance(next_step(rules, PLAN, {NODE: FREE, OTHER: STRUCK}, 2.0), IncarnationOver)


def test_whose_survivors_were_given_up_before_the_plan_was_there_ends_it_for_all() -> None:
    told = answer(FREE, STRUCK)
    assert isinstance(told, PlanAdopted)
    gone = fact_with(STRUCK, status=NodeStatus.DRAINED)
    over = answer(fact_with(FREE, incarnation=1, status=NodeStatus.RUNNING), gone, plan=told.plan)
    assert isinstance(over, IncarnationOver)
    assert over.incarnation == 1


ROSTER = Roster(
    entries=tuple(
        RosterEntry(node=seat.node, slots=seat.slots, boot=BootId("b"), peer_addr="") for seat in SEATS.nodes
    )
)
KEPT = replace(keeping(0, 1, 2), topology=Topology(nodes=()), boots=())


def heard(one: NodeFact, body: Plan | None, incarnation: int = 1) -> list[str]:
    header = PlanHeader(incarnation=incarnation, phase=PlanPhase.GO, roster="r", body="b", run_s=1)
    told = news_for_supervisor(one, KnownKeys(), header, ROSTER, body, 1.0)
    return [type(event).__name__ for event in told]


def test_survivors_hear_of_the_plan_that_keeps_them_and_of_no_other_but_as_their_end() -> None:
    assert heard(FREE, KEPT) == [PlanAdopted.__name__]
    assert heard(FREE, None) == [], "nobody knows yet whether it keeps them"
    assert heard(FREE, replace(KEPT, kept=frozenset())) == [IncarnationOver.__name__]
    assert heard(replace(FREE, boot=BootId("again")), KEPT) == [Fence.__name__]
    assert heard(fact_with(FREE, status=NodeStatus.RUNNING), KEPT) == [IncarnationOver.__name__]
    assert heard(fact_with(FREE, status=NodeStatus.JOINED), KEPT) == []
