"""Who comes for an empty place: a standby that is ready, or the program as it is; what follows its end."""

from dataclasses import replace

import pytest

from faultrun.core.standby.healing import COMES_S, RETRY_S
from faultrun.core.standby.policy import decide_standbys
from faultrun.core.standby.state import StandbyState
from faultrun.model.actions import Action, DismissStandbys, ParkStandby, SeatStandbys, Spawn, StartTimer
from faultrun.model.events import (
    Event,
    FirstStep,
    GoGiven,
    PlanAdopted,
    Timer,
    TimerFired,
    WorkerExit,
    WorkerStarted,
)
from faultrun.model.exits import Signaled
from faultrun.model.observed.rejoin import RankRejoined
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.run import Phase, RunState, Step
from support.stories.story import NODE, STAYING, first_plan, in_phase

READY, PARKING, PARKED = StandbyPhase.READY, StandbyPhase.PARKING, StandbyPhase.PARKED
KEPT = frozenset({0, 2})


def empty(
    *missing: int, phase: Phase = Phase.RUNNING, rejoining: frozenset[int] = frozenset(), heals: bool = False
) -> RunState:
    """Three workers' places, of which some are empty; ``rejoining`` are on their way into the group."""
    state = in_phase(phase, 3)
    plan = first_plan(3, incarnation=1, kept=KEPT, missing=frozenset(missing), heals=heals)
    life = replace(state.life, alive=KEPT, rejoining=rejoining, regroups=int(heals))
    return replace(state, run=replace(state.run, plan=plan), life=life, windows=STAYING)


def hear(
    known: StandbyState, event: Event, run: RunState, *actions: Action
) -> tuple[StandbyState, tuple[Action, ...]]:
    known, step = decide_standbys(known, event, Step(state=run, actions=actions, why=""))
    overdue = StartTimer(timer=Timer.NEWCOMER, at_s=event.at_s + COMES_S, incarnation=1)
    return known, tuple(one for one in step.actions if one != overdue)


def rejoined(at_s: float = 101.0) -> RankRejoined:
    return RankRejoined(at_s=at_s, incarnation=1, rank=2, step=7)


def changed(rank: int, state: StandbyPhase, at_s: float = 102.0) -> StandbyChanged:
    return StandbyChanged(at_s=at_s, incarnation=1, rank=rank, state=state)


def on_its_way() -> StandbyState:
    known, _ = hear(StandbyState(), rejoined(), empty(1))
    return known


def parks(rank: int) -> ParkStandby:
    return ParkStandby(incarnation=1, rank=rank, heals=True)


def test_without_standbys_the_program_is_started_as_it_is_once_the_others_are_one_group() -> None:
    known, said = hear(StandbyState(), rejoined(), empty(1, rejoining=frozenset({0})))
    assert said == ()
    known, said = hear(known, rejoined(), empty(1))
    assert (said, known.phases, known.healing) == ((parks(1),), {1: PARKING}, frozenset({1}))
    assert hear(known, rejoined(), empty(1))[1] == ()


def test_a_newcomer_that_hangs_in_its_imports_is_ended_and_another_one_comes() -> None:
    known = on_its_way()
    rang = TimerFired(at_s=101.0 + COMES_S, incarnation=1, timer=Timer.NEWCOMER)
    parked = replace(empty(1), life=replace(empty(1).life, parked=frozenset({1})))
    assert hear(known, rang, parked)[1] == ()
    known, (ends,) = hear(known, rang, empty(1))
    assert isinstance(ends, DismissStandbys)
    assert (ends.ranks, ends.state) == ((1,), StandbyPhase.LOST)
    known, _ = hear(known, changed(1, StandbyPhase.LOST, rang.at_s), empty(1))
    assert (known.healing, known.heal_at_s) == (frozenset(), rang.at_s + RETRY_S)


@pytest.mark.parametrize("heal_s", [600.0, 10.0])
@pytest.mark.parametrize("came", ["long ago", "just now", "to its first step"])
def test_all_wait_for_a_fresh_newcomer_where_the_one_on_its_way_takes_too_long(
    came: str, heal_s: float
) -> None:
    known = on_its_way()
    if came == "to its first step":
        known, _ = hear(known, changed(1, PARKED), empty(1))
    run = replace(empty(heals=True), windows=replace(STAYING, heal_s=heal_s))
    assert run.plan is not None
    spawn = Spawn(plan=run.plan, ranks=(1,), master_addr="", master_port=1)
    after_s = min(STAYING.rejoin_s, heal_s / 2) - 1.0 * (came == "just now")
    adopted = PlanAdopted(at_s=101.0 + after_s, incarnation=2, plan=run.plan)
    known, said = hear(known, adopted, run, spawn)
    if came != "long ago":
        assert said == (replace(spawn, standbys=frozenset({1})),)
        return
    assert said[0] == spawn
    (ends,) = said[1:]
    assert isinstance(ends, DismissStandbys)
    assert (ends.ranks, ends.state, known.healing) == ((1,), StandbyPhase.DISMISSED, frozenset())


def test_two_places_have_a_newcomer_each() -> None:
    assert hear(StandbyState(), rejoined(), empty(1, 2))[1] == (parks(1), parks(2))


def test_a_standby_that_is_ready_comes_for_any_rank() -> None:
    known = StandbyState(ranks=(0,), running=True, phases={0: READY})
    known, said = hear(known, rejoined(), empty(1))
    assert said == (SeatStandbys(ranks=((0, 1), (1, 0))), parks(1))
    assert (known.ranks, known.phases) == ((1,), {1: PARKING})


def test_where_every_rank_has_one_its_own_comes_and_one_that_is_on_its_way_is_left_alone() -> None:
    known = StandbyState(ranks=(0, 1, 2), running=True, phases={0: READY, 1: READY, 2: PARKED})
    assert hear(known, rejoined(), empty(1))[1] == (parks(1),)
    coming = replace(known, phases={0: READY, 1: PARKING, 2: PARKED})
    known, said = hear(coming, rejoined(), empty(1))
    assert (said, known.healing) == ((), frozenset({1}))


def test_it_is_the_worker_that_a_plan_starts_beside_the_others() -> None:
    known, _ = hear(on_its_way(), changed(1, PARKED), empty(1))
    run = empty(heals=True)
    assert run.plan is not None
    spawn = Spawn(plan=run.plan, ranks=(1,), master_addr="", master_port=1)
    go = GoGiven(at_s=103.0, incarnation=2, master_addr="", master_port=1)
    known, said = hear(known, go, run, spawn)
    assert said == (replace(spawn, standbys=frozenset({1})),)
    started = WorkerStarted(at_s=103.0, incarnation=2, node=NODE, rank=1, pid=9, standby=True)
    known, _ = hear(known, started, run)
    assert (known.phases, known.healing) == ({}, frozenset())


@pytest.mark.parametrize("ranks", [(), (1,)])
def test_one_that_dies_on_its_way_is_tried_again_after_a_pause_that_grows_and_turns_nothing_off(
    ranks: tuple[int, ...],
) -> None:
    known = replace(on_its_way(), ranks=ranks)
    at_s = 110.0
    for number in range(1, 5):
        known, said = hear(known, changed(1, StandbyPhase.LOST, at_s), empty(1))
        again_s = at_s + number * RETRY_S
        assert said == (StartTimer(timer=Timer.NEWCOMER, at_s=again_s, incarnation=1),)
        assert hear(known, rejoined(again_s - 1), empty(1))[1] == ()
        known, said = hear(known, TimerFired(at_s=again_s, incarnation=1, timer=Timer.NEWCOMER), empty(1))
        assert said == (parks(1),)
        at_s = again_s + 1
    known, _ = hear(known, FirstStep(at_s=at_s, incarnation=2, step=9), empty())
    assert (known.in_vain, known.heal_at_s) == (0, 0.0)


def test_one_that_dies_as_it_comes_in_is_tried_again_later_too() -> None:
    gone = WorkerExit(at_s=120.0, incarnation=2, node=NODE, rank=1, pid=9, status=Signaled(signum=9))
    known, _ = hear(StandbyState(), gone, empty(phase=Phase.REPLACING, heals=True))
    assert (known.in_vain, known.heal_at_s) == (1, 120.0 + RETRY_S)


def test_it_waits_on_while_another_rank_dies_and_goes_when_nobody_trains_any_more() -> None:
    known, said = hear(on_its_way(), rejoined(), empty(1, phase=Phase.REPLACING))
    assert (said, known.healing) == ((), frozenset({1}))
    known, said = hear(known, rejoined(), empty(1, phase=Phase.DRAINING))
    why = "no rank trains any more beside which it could take its place"
    gone = DismissStandbys(incarnation=1, ranks=(1,), state=StandbyPhase.DISMISSED, why=why)
    assert (said, known.phases, known.healing) == ((gone,), {}, frozenset())
