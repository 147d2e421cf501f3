"""When standbys are started, used and given up: stories without a process."""

from dataclasses import replace

from faultrun.core.standby.policy import ASKED_SETTLE_S, READY_S, SETTLE_S, UNSEEN_SETTLE_S, decide_standbys
from faultrun.core.standby.state import StandbyState
from faultrun.model.actions import (
    Action,
    DismissStandbys,
    GiveUpHandover,
    RaiseStandbys,
    SeatStandbys,
    Spawn,
    StartStandby,
    StartTimer,
)
from faultrun.model.events import Drained, GoGiven, NothingWhole, Timer, TimerFired, WorkerExit
from faultrun.model.exits import Signaled
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.observed.standby import EVERY_RANK, RoomFound, StandbyPhase
from faultrun.model.run import Phase, Step
from faultrun.model.topology import NodeId, NodeSlots, Topology
from support.stories.real_and_fake_node import Wanted, spawn_of
from support.stories.standby_story import Tale, rejoinable
from support.stories.story import NODE, first_plan, new_run

SURVEYED = NothingWhole(at_s=100.0, incarnation=0, refused=(), why="")


def look_at(at_s: float) -> StartTimer:
    return StartTimer(timer=Timer.STANDBY, at_s=at_s, incarnation=0)


def turns_off(action: Action) -> bool:
    return isinstance(action, DismissStandbys) and action.state is StandbyPhase.OFF


def test_without_a_wish_nothing_is_ever_ordered() -> None:
    tale = Tale(StandbyState())
    assert tale.workers_start().said == tale.train().said == tale.a_worker_dies().said == ()


def test_auto_lets_training_settle_and_a_number_does_not_wait_for_more_than_the_first_step() -> None:
    assert Tale().workers_start().said == (look_at(100.0 + UNSEEN_SETTLE_S),)
    assert Tale().workers_start().train().said == (look_at(100.0 + SETTLE_S),)
    asked = Tale(StandbyState(ranks=(0, 1), asked=True))
    assert asked.workers_start().said == (look_at(100.0 + ASKED_SETTLE_S),)
    assert asked.train().said == (look_at(100.0),)


def test_room_is_used_at_once() -> None:
    tale = Tale().workers_start().train()
    assert tale.finds_room().said == (StartStandby(incarnation=0, rank=0),)
    tale.standby(0, StandbyPhase.STARTING)
    assert tale.standby(0, StandbyPhase.READY).said == (StartStandby(incarnation=0, rank=1),)


def test_as_many_as_there_is_room_for_start_side_by_side_and_the_next_one_when_one_is_ready() -> None:
    tale = Tale(StandbyState(ranks=(0, 1, 2, 3)), workers=4).workers_start().train()
    assert tale.finds_room(2).said == tuple(StartStandby(incarnation=0, rank=rank) for rank in (0, 1))
    tale.standby(0, StandbyPhase.STARTING).standby(1, StandbyPhase.STARTING)
    after_0 = tale.standby(0, StandbyPhase.READY).said
    assert after_0 == (StartStandby(incarnation=0, rank=2), look_at(100.0 + READY_S))
    tale.standby(2, StandbyPhase.STARTING)
    assert tale.standby(1, StandbyPhase.READY).said[0] == StartStandby(incarnation=0, rank=3)


def test_one_of_several_nodes_has_standbys_for_the_ranks_that_it_is_given() -> None:
    other = NodeId("other")
    seats = Topology(nodes=(NodeSlots(node=other, slots=2), NodeSlots(node=NODE, slots=2)))
    tale = Tale(StandbyState(ranks=(0, 1)), seats=seats).is_seated(2, 3).workers_start().train()
    assert tale.finds_room().said == (StartStandby(incarnation=0, rank=2),)
    tale.standby(2, StandbyPhase.STARTING).standby(2, StandbyPhase.READY)
    tale.hears(Drained(at_s=0, incarnation=0, stragglers=(), swept=0, notes=()), Phase.SWEEPING)
    first, spawn = tale.is_seated(0, 1).said
    assert first == SeatStandbys(ranks=((2, 0), (3, 1)))
    assert isinstance(spawn, Spawn)
    assert spawn.standbys == {0}
    assert tale.standbys.ranks == (0, 1)


def test_a_spare_keeps_standbys_while_it_waits_and_they_take_the_ranks_that_it_is_given() -> None:
    seats = Topology(nodes=(NodeSlots(node=NodeId(""), slots=2),) * 2)
    tale = Tale(StandbyState(ranks=(0, 1), asked=True), seats=seats)
    waits = Phase.AWAITING_PLAN
    assert tale.hears(SURVEYED, waits).said == (look_at(100.0 + ASKED_SETTLE_S),)
    assert tale.time_comes(phase=waits).said == ()
    tale.now_s += ASKED_SETTLE_S
    assert tale.time_comes(phase=waits).said == (StartStandby(incarnation=0, rank=0),)
    tale.standby(0, StandbyPhase.STARTING, waits)
    assert tale.standby(0, StandbyPhase.READY, waits).said == (StartStandby(incarnation=0, rank=1),)
    tale.standby(1, StandbyPhase.STARTING, waits)
    raised, dismissed = tale.hears(SURVEYED, Phase.PREPARING).said
    assert raised == RaiseStandbys(ranks=frozenset({0}))
    assert isinstance(dismissed, DismissStandbys)
    assert (dismissed.ranks, dismissed.why) == ((1,), "the wait was over before it was ready")
    tale.standby(1, StandbyPhase.DISMISSED, Phase.PREPARING)
    first, spawn = tale.is_seated(2, 3).said
    assert first == SeatStandbys(ranks=((0, 2), (1, 3)))
    assert isinstance(spawn, Spawn)
    assert spawn.standbys == {2}
    assert tale.workers_start(2).standbys.phases == {}


def test_a_standby_of_a_spare_that_takes_a_place_beside_survivors_is_theirs() -> None:
    """A run of three ended in a bug here: a standby was parked under a rank that its node does not have."""
    a, b = NodeId("a"), NodeId("b")
    seats = Topology(nodes=tuple(NodeSlots(node=node, slots=1) for node in (a, b, NODE)))
    known = StandbyState(ranks=(0,), waits=True, phases={0: StandbyPhase.READY})
    plan = replace(first_plan(3, incarnation=1, kept=frozenset({0, 1})), topology=seats)
    spawn = Spawn(plan=plan, ranks=(2,), master_addr="here", master_port=1)
    given = GoGiven(at_s=101.0, incarnation=1, master_addr="here", master_port=1)
    known, step = decide_standbys(
        known, given, Step(state=rejoinable(phase=Phase.AWAITING_PLAN), actions=(spawn,), why="")
    )
    assert step.actions[0] == SeatStandbys(ranks=((0, 2),))
    assert [action.standbys for action in step.actions if isinstance(action, Spawn)] == [{2}]
    assert (known.ranks, tuple(known.phases)) == ((2,), (2,))


def test_a_spare_beside_others_on_a_busy_machine_waits_for_room_and_a_node_alone_never() -> None:
    seats = Topology(nodes=(NodeSlots(node=NodeId(""), slots=2),) * 2)
    tale = Tale(seats=seats)
    assert tale.hears(SURVEYED, Phase.AWAITING_PLAN).said == (look_at(100.0 + UNSEEN_SETTLE_S),)
    assert tale.time_comes(phase=Phase.AWAITING_PLAN).said == ()
    assert tale.finds_room(2, Phase.AWAITING_PLAN).said == tuple(
        StartStandby(incarnation=0, rank=rank) for rank in (0, 1)
    )
    assert Tale().hears(SURVEYED, Phase.AWAITING_PLAN).said == ()


def test_what_a_fence_ends_at_once_is_one_loss() -> None:
    tale = Tale(StandbyState(ranks=(0, 1, 2, 3)), workers=4).workers_start().train().finds_room(4)
    for rank in range(4):
        tale.standby(rank, StandbyPhase.LOST)
    assert (tale.standbys.failures, tale.standbys.ranks) == (1, (0, 1, 2, 3))


def test_room_was_room_in_the_life_in_which_it_was_found() -> None:
    tale = Tale(StandbyState(ranks=(0, 1, 2, 3)), workers=4).workers_start().train().finds_room(4)
    tale.a_worker_dies().workers_start().train()
    assert tale.time_comes().said == (StartStandby(incarnation=0, rank=0),)


def test_room_that_is_found_when_workers_have_ended_is_of_no_use() -> None:
    tale = Tale().workers_start().train().a_worker_dies()
    assert tale.hears(RoomFound(at_s=100.0, incarnation=0, at_once=2, why=""), Phase.DRAINING).said == ()


def test_a_step_that_a_log_tells_of_is_a_step() -> None:
    tale = Tale().workers_start()
    logged = FirstStepLogged(at_s=103.0, incarnation=0, rank=0, step=1)
    assert tale.hears(logged).said == (look_at(103.0 + SETTLE_S),)


def test_they_are_started_one_after_the_other() -> None:
    tale = Tale().workers_start().train().time_comes()
    assert tale.said == (StartStandby(incarnation=0, rank=0),)
    assert tale.standby(0, StandbyPhase.STARTING).said == (look_at(100.0 + READY_S),)
    assert tale.standby(0, StandbyPhase.READY).said == (StartStandby(incarnation=0, rank=1),)
    tale.standby(1, StandbyPhase.STARTING)
    assert tale.standby(1, StandbyPhase.READY).said == ()
    assert tale.standbys.usable == {0, 1}


def test_a_fault_wakes_those_that_are_ready_and_dismisses_the_one_that_is_not() -> None:
    tale = Tale().workers_start().train().time_comes().standby(0, StandbyPhase.STARTING)
    tale.standby(0, StandbyPhase.READY).standby(1, StandbyPhase.STARTING)
    wakes, dismisses = tale.a_worker_dies().said
    assert wakes == RaiseStandbys(ranks=frozenset({0}))
    assert isinstance(dismisses, DismissStandbys)
    assert (dismisses.ranks, dismisses.state) == ((1,), StandbyPhase.DISMISSED)
    assert tale.standby(1, StandbyPhase.DISMISSED, Phase.DRAINING).standbys.usable == {0}


def test_those_that_became_workers_are_replaced_once_training_goes_on() -> None:
    tale = Tale().has_two_ready().a_worker_dies().workers_start(0, 1)
    assert tale.standbys.usable == frozenset()
    assert tale.train().time_comes().said == (StartStandby(incarnation=0, rank=0),)


def test_a_standby_that_is_never_ready_is_lost() -> None:
    tale = Tale().workers_start().train().time_comes().standby(0, StandbyPhase.STARTING)
    tale.now_s += 1
    assert tale.time_comes().said == (look_at(100.0 + READY_S),)
    tale.now_s += READY_S
    (lost,) = tale.time_comes().said
    assert isinstance(lost, DismissStandbys)
    assert (lost.ranks, lost.state) == ((0,), StandbyPhase.LOST)


def test_three_that_are_lost_in_a_row_are_the_last_and_a_success_in_between_counts_anew() -> None:
    tale = Tale().workers_start().train().time_comes()
    for attempt in range(2):
        tale.standby(0, StandbyPhase.STARTING).standby(0, StandbyPhase.LOST)
        assert tale.said == (look_at(100.0 + 10.0 * (attempt + 1)),)
    tale.standby(1, StandbyPhase.TAKEN)
    for _ in range(2):
        assert isinstance(tale.standby(0, StandbyPhase.LOST).said[0], StartTimer)
    (off,) = tale.standby(0, StandbyPhase.LOST).said
    assert turns_off(off)
    tale.standby(EVERY_RANK, StandbyPhase.OFF)
    assert tale.train().time_comes().said == ()
    (again,) = tale.a_worker_dies().workers_start().said
    assert turns_off(again)


def test_a_warm_start_that_fails_before_its_first_step_is_followed_by_a_cold_one() -> None:
    tale = Tale().has_two_ready().a_worker_dies().workers_start(0)
    tale.a_worker_dies()
    assert tale.standbys.usable == frozenset(), "rank 1 has one, and it is not to be used"
    assert tale.workers_start().standbys.usable == {1}, "the cold start is under way: later ones may"


def test_three_such_starts_and_there_are_no_more_standbys() -> None:
    tale = Tale()
    for _ in range(3):
        tale.has_two_ready().a_worker_dies().workers_start(0, 1).a_worker_dies()
    assert any(map(turns_off, tale.said))


def test_a_warm_start_that_lives_long_enough_is_proved_without_anybody_reporting_steps() -> None:
    tale = Tale().has_two_ready().a_worker_dies().workers_start(0, 1)
    tale.now_s += UNSEEN_SETTLE_S
    tale.a_worker_dies()
    assert not tale.standbys.cold_next
    assert tale.standbys.suspicions == 0


def test_a_warm_start_is_not_proved_by_standbys_that_are_started_again() -> None:
    tale = Tale().has_two_ready().a_worker_dies().workers_start(0, 1)
    tale.finds_room().standby(0, StandbyPhase.STARTING).time_comes().a_worker_dies()
    assert tale.standbys.cold_next
    assert tale.standbys.suspicions == 1


def test_whoever_does_not_answer_the_hand_over_is_given_up_when_its_time_is_over() -> None:
    assert Tale().has_two_ready().a_worker_dies().time_comes(Timer.HANDOVER).said == (GiveUpHandover(),)


def test_nothing_is_started_while_workers_do_not_run() -> None:
    tale = Tale().workers_start().train().a_worker_dies()
    assert tale.hears(TimerFired(at_s=130.0, incarnation=0, timer=Timer.STANDBY), Phase.SWEEPING).said == ()


def test_the_doubts_are_said_when_workers_start() -> None:
    tale = Tale(StandbyState(doubts=("the program's source cannot be seen",)))
    (off,) = tale.workers_start().said
    assert isinstance(off, DismissStandbys)
    assert (off.ranks, off.state, off.why) == (
        (EVERY_RANK,),
        StandbyPhase.OFF,
        "the program's source cannot be seen",
    )
    assert tale.standby(EVERY_RANK, StandbyPhase.OFF).train().said == ()
    assert tale.a_worker_dies().workers_start().said == (off,), "each life's part of the journal has it"


def test_a_start_names_the_ranks_whose_standbys_may_take_their_place() -> None:
    tale = Tale().has_two_ready().a_worker_dies()
    go = GoGiven(at_s=100.0, incarnation=1, master_addr="127.0.0.1", master_port=1)
    step = Step(state=new_run(2), actions=(spawn_of(Wanted(), 1),), why="")
    _, step = decide_standbys(tale.standbys, go, step)
    assert step.actions == (replace(spawn_of(Wanted(), 1), standbys=frozenset({0, 1})),)


def test_a_peer_that_dies_before_the_first_step_after_a_replacement_casts_no_doubt_on_standbys() -> None:
    known = StandbyState(ranks=(0, 1), running=True, warm=True, settled_s=200.0)
    for _ in range(4):
        dies = WorkerExit(at_s=101.0, incarnation=0, node=NODE, rank=0, pid=1, status=Signaled(signum=9))
        replacing = Step(state=rejoinable(0, 1, phase=Phase.REPLACING), why="")
        known, step = decide_standbys(replace(known, running=True, warm=True), dies, replacing)
        assert not any(map(turns_off, step.actions))
    assert (known.suspicions, known.cold_next) == (0, False)


def test_where_survivors_do_not_stay_the_parked_are_ended() -> None:
    known = StandbyState(ranks=(0, 1), phases={0: StandbyPhase.PARKED, 1: StandbyPhase.READY})
    late = TimerFired(at_s=130.0, incarnation=0, timer=Timer.REJOIN)
    known, step = decide_standbys(known, late, Step(state=rejoinable(0, 1, phase=Phase.DRAINING), why=""))
    (ended,) = [action for action in step.actions if isinstance(action, DismissStandbys)]
    assert (ended.ranks, ended.state) == ((0,), StandbyPhase.DISMISSED)
    assert known.parked == ()
