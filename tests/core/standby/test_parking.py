"""Which standbys run the program ahead, and which are kept ready: for any rank, or for want of room."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.standby.policy import decide_standbys
from faultrun.core.standby.state import StandbyState, margin_bytes, short_on_device
from faultrun.model.actions import (
    DismissStandbys,
    ParkStandby,
    RaiseStandbys,
    SeatStandbys,
    Spawn,
    StartTimer,
)
from faultrun.model.events import Event, GoGiven, WorkerExit
from faultrun.model.exits import Signaled
from faultrun.model.observed.rejoin import RankCanRejoin
from faultrun.model.observed.standby import MemoryUsed, StandbyChanged, StandbyPhase
from faultrun.model.run import Phase, RunState, Step
from support.stories.standby_story import Tale, rejoinable
from support.stories.story import NODE, first_plan, in_phase

MIB, GIB = 1 << 20, 1 << 30
READY, PARKED = StandbyPhase.READY, StandbyPhase.PARKED
CAN = RankCanRejoin(at_s=101.0, incarnation=0, rank=0)


def uses(rank: int, needs: int = 0, *, device: str = "", total: int = 80 * GIB, **more: int) -> MemoryUsed:
    """What a rank says; it holds ``needs`` of its device, and the driver says that the rest is free."""
    known = {"device": device, "device_bytes": needs, "free_bytes": total - needs, "total_bytes": total}
    fields = {**known, **more} if device else {}
    return MemoryUsed(at_s=101.0, incarnation=0, rank=rank, host_bytes=GIB, **fields)  # type: ignore[arg-type]


def two_ready(*told: MemoryUsed, asked: bool = False) -> StandbyState:
    ready = Tale().has_two_ready().standbys
    return replace(ready, asked=asked, memory={one.rank: one for one in told})


def parking(state: RunState, event: Event, standbys: StandbyState) -> tuple[StandbyState, list[ParkStandby]]:
    standbys, step = decide_standbys(standbys, event, Step(state=state, why=""))
    return standbys, [action for action in step.actions if isinstance(action, ParkStandby)]


def changed(rank: int, state: StandbyPhase) -> StandbyChanged:
    return StandbyChanged(at_s=102.0, incarnation=0, rank=rank, state=state)


def test_once_every_rank_can_rejoin_standbys_are_parked_one_after_the_other() -> None:
    known, parked = parking(rejoinable(0), CAN, two_ready(uses(0), uses(1)))
    assert parked == []
    known, parked = parking(rejoinable(0, 1), CAN, known)
    assert parked == [ParkStandby(incarnation=0, rank=0, needs_bytes=GIB)]
    assert (known.parked, known.usable) == ((0,), frozenset({1}))
    assert parking(rejoinable(0, 1), CAN, known)[1] == []
    known, parked = parking(rejoinable(0, 1), changed(0, PARKED), known)
    assert ([one.rank for one in parked], known.parked) == ([1], (0, 1))


def test_none_is_parked_before_its_rank_has_said_what_it_needs() -> None:
    known, parked = parking(rejoinable(0, 1), CAN, two_ready())
    assert parked == []
    _, parked = parking(rejoinable(0, 1), uses(1), known)
    assert [one.rank for one in parked] == [1]


def test_with_fewer_than_one_a_rank_they_are_kept_ready() -> None:
    fewer = replace(two_ready(uses(0), uses(1)), ranks=(0,), phases={0: READY})
    known, parked = parking(rejoinable(0, 1), CAN, fewer)
    assert (parked, known.usable) == ([], frozenset({0}))


@pytest.mark.parametrize("dead", range(4))
def test_one_standby_serves_whatever_rank_dies(dead: int) -> None:
    known = StandbyState(ranks=(0,), running=True, phases={0: READY})
    kept = frozenset(range(4)) - {dead}
    known, spawned = starts(known, (dead,), kept)
    assert ({*spawned.standbys}, {*known.ranks}) == ({dead}, {dead})


@given(
    st.integers(2, 5).flatmap(
        lambda world: st.tuples(
            st.just(world),
            st.integers(1, world),
            st.lists(st.sampled_from([None, READY, PARKED]), min_size=world, max_size=world),
            st.sets(st.integers(0, world - 1), min_size=1, max_size=world - 1),
        )
    )
)
def test_as_many_of_the_dead_are_served_as_can_be(
    drawn: tuple[int, int, list[StandbyPhase | None], set[int]],
) -> None:
    """Whoever has run the program serves its rank alone; no standby is lost, and none serves two."""
    world, count, drawn_phases, dead = drawn
    phases = {rank: phase for rank, phase in enumerate(drawn_phases[:count]) if phase is not None}
    before = StandbyState(ranks=tuple(range(count)), running=True, phases=phases)
    after, spawned = starts(before, tuple(sorted(dead)), frozenset(range(world)) - dead)
    own = {rank for rank in dead if phases.get(rank) is PARKED}
    ready = sum(phase is READY for phase in phases.values())
    assert len(spawned.standbys & dead) == len(own) + min(ready, len(dead) - len(own))
    assert sorted(map(str, after.phases.values())) == sorted(map(str, phases.values()))
    assert len({*after.ranks}) == count
    assert {rank for rank, phase in after.phases.items() if phase is PARKED} == {
        rank for rank, phase in phases.items() if phase is PARKED
    }


def starts(known: StandbyState, ranks: tuple[int, ...], kept: frozenset[int]) -> tuple[StandbyState, Spawn]:
    """These ranks are started beside those that are kept."""
    world = len(ranks) + len(kept)
    spawn = Spawn(
        plan=first_plan(world, incarnation=1, kept=kept), ranks=ranks, master_addr="here", master_port=1
    )
    go = GoGiven(at_s=101.0, incarnation=1, master_addr="here", master_port=1)
    state = in_phase(Phase.RUNNING, world)
    known, step = decide_standbys(known, go, Step(state=state, actions=(spawn,), why=""))
    (spawned,) = [action for action in step.actions if isinstance(action, Spawn)]
    return known, spawned


def test_a_parked_standby_serves_a_plan_that_keeps_ranks_and_no_other() -> None:
    known = StandbyState(ranks=(0, 1), running=True, phases={0: StandbyPhase.PARKED, 1: StandbyPhase.READY})
    dies = WorkerExit(at_s=101.0, incarnation=0, node=NODE, rank=0, pid=1, status=Signaled(signum=9))
    known, step = decide_standbys(known, dies, Step(state=rejoinable(0, 1, phase=Phase.REPLACING), why=""))
    assert step.actions == (RaiseStandbys(ranks=frozenset({0, 1})),)
    plan = first_plan(2, incarnation=1, kept=frozenset({1}))
    spawn = Spawn(plan=plan, ranks=(0,), master_addr="here", master_port=1)
    _, step = decide_standbys(known, dies, Step(state=rejoinable(0, 1), actions=(spawn,), why=""))
    assert [action.standbys for action in step.actions if isinstance(action, Spawn)] == [{0, 1}]
    assert not [action for action in step.actions if isinstance(action, SeatStandbys)]


def test_a_device_with_room_for_both_is_shared_and_one_without_keeps_its_standby_ready() -> None:
    fits = [uses(0, 30 * GIB, device="cuda a"), uses(1, 30 * GIB, device="cuda b")]
    assert parking(rejoinable(0, 1), CAN, two_ready(*fits))[1][0].short == ""
    _, (parks,) = parking(rejoinable(0, 1), CAN, two_ready(uses(0, 39 * GIB, device="cuda a"), fits[1]))
    assert parks.short == "cuda a has 81920 MiB, and 79872 would be used with it, with 4096 to stay free"


def test_one_that_had_no_room_is_ready_for_any_rank_and_not_asked_again() -> None:
    known, (parks,) = parking(rejoinable(0, 1), CAN, two_ready(uses(0, 39 * GIB, device="cuda a"), uses(1)))
    assert parks.rank == 0
    known, parked = parking(rejoinable(0, 1), changed(0, READY), known)
    assert ([one.rank for one in parked], known.usable) == ([1], frozenset({0}))
    assert parking(rejoinable(0, 1), CAN, known)[1] == []


@pytest.mark.parametrize("asked", [True, False])
def test_where_the_driver_says_nothing_only_a_user_has_one_parked(*, asked: bool) -> None:
    silent = uses(0, 0, device="npu 0", total_bytes=0)
    _, (parks,) = parking(rejoinable(0, 1), CAN, two_ready(silent, uses(1), asked=asked))
    assert parks.short == ("" if asked else "nothing says how much memory npu 0 has")


def test_a_rank_that_grows_gets_the_room_of_those_that_are_parked_on_its_device() -> None:
    told = [uses(rank, 10 * GIB, device="cuda a") for rank in (0, 1)]
    known = replace(two_ready(*told), phases={0: PARKED, 1: PARKED})
    full = uses(1, 60 * GIB, device="cuda a", free_bytes=GIB)
    known, step = decide_standbys(known, full, Step(state=rejoinable(0, 1), why=""))
    gone, again = step.actions
    assert isinstance(gone, DismissStandbys)
    assert (gone.ranks, gone.why) == ((0, 1), "cuda a, where its rank trains, has 1024 MiB left")
    assert isinstance(again, StartTimer)
    for rank in gone.ranks:
        known, _ = parking(rejoinable(0, 1), changed(rank, StandbyPhase.DISMISSED), known)
        known, parked = parking(rejoinable(0, 1), changed(rank, READY), known)
        assert parked == [], "it would be in the way again"


def test_another_device_that_is_full_is_no_reason() -> None:
    known = replace(two_ready(uses(0, 10 * GIB, device="cuda a"), uses(1)), phases={0: PARKED})
    full = uses(1, 60 * GIB, device="cuda b", free_bytes=GIB)
    _, step = decide_standbys(known, full, Step(state=rejoinable(0, 1), why=""))
    assert step.actions == ()


def test_what_a_rank_has_needed_once_it_needs_again() -> None:
    known, _ = parking(rejoinable(0), uses(0, 60 * GIB, device="cuda a"), two_ready())
    known, _ = parking(rejoinable(0), uses(0, 10 * GIB, device="cuda a"), known)
    assert known.memory[0].device_bytes == 60 * GIB


@given(st.integers(1, 4), st.integers(0, 20), st.integers(0, 2), st.integers(8, 80), st.data())
def test_never_more_than_the_device_has_whoever_looked_at_it(
    ranks: int, needs_gib: int, context_gib: int, total_gib: int, data: st.DataObject
) -> None:
    """Each rank sees the others' memory as used besides; that is no context, and counts once."""
    total, needs, context = total_gib * GIB, needs_gib * GIB, context_gib * GIB
    beside = (ranks - 1) * (needs + context) + context
    told = [uses(rank, needs, device="cuda a", total=total, beside_bytes=beside) for rank in range(ranks)]
    parked = data.draw(st.sets(st.integers(0, ranks - 1), max_size=ranks - 1))
    rank = data.draw(st.sampled_from(sorted({*range(ranks)} - parked)))
    would = (ranks + len(parked) + 1) * (needs + context) + margin_bytes(total)
    assert bool(short_on_device(rank, told, parked, asked=False)) is (would > total)
