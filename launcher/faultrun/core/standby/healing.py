"""Newcomers for places that are empty while the others train: a part of ``core.standby.policy``.

A newcomer is a standby that is parked: it runs the program, at low priority, up to its first step and waits
there. It is one that was ready, for whatever rank, or is started as it is; a machine without standbys heals,
too. One that dies on its way costs the others nothing, and is tried again after a pause that grows.
"""

from dataclasses import replace

from faultrun.core.standby.state import StandbyState
from faultrun.model.actions import Action, DismissStandbys, ParkStandby, SeatStandbys, StartTimer
from faultrun.model.events import Event, FirstStep, PlanAdopted, Timer, TimerFired, WorkerExit, WorkerStarted
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.run import Phase, RunState

COMES_S = 300.0
"""So long a newcomer may import what it needs: it may hang where others do not, and is ended then."""
RETRY_S = 10.0
"""After the first that came in vain, twice as long after the second, and so on: it may be the place."""


def healed(standbys: StandbyState, event: Event, run: RunState) -> tuple[StandbyState, tuple[Action, ...]]:
    """What is known after ``event`` of newcomers for empty places, and what is to be done about them."""
    standbys = _after(standbys, event, run)
    missing = frozenset[int]() if run.plan is None else run.plan.missing - run.barred
    if run.phase not in (Phase.RUNNING, Phase.REPLACING) or run.life.finished:
        return _given_up(standbys, run.incarnation)
    if isinstance(event, TimerFired) and (late := _late(standbys, run, event.at_s)):
        why = f"it was not at its first step after {COMES_S:g} s"
        ends = DismissStandbys(incarnation=run.incarnation, ranks=late, state=StandbyPhase.LOST, why=why)
        return standbys, (ends,)
    if isinstance(event, PlanAdopted) and (slow := _slow(standbys, run, event.at_s)):
        return _dismissed(
            standbys, run.incarnation, slow, "all wait for it now, and one that begins is faster"
        )
    if run.phase is not Phase.RUNNING or run.life.rejoining or not missing - standbys.healing:
        return standbys, ()
    if event.at_s < standbys.heal_at_s:
        again = StartTimer(timer=Timer.NEWCOMER, at_s=standbys.heal_at_s, incarnation=run.incarnation)
        asks = isinstance(event, StandbyChanged | TimerFired | FirstStep)
        return standbys, ((again,) if asks else ())
    overdue_s = event.at_s + COMES_S
    wanted: list[Action] = [StartTimer(timer=Timer.NEWCOMER, at_s=overdue_s, incarnation=run.incarnation)]
    standbys = replace(standbys, overdue_s=overdue_s)
    for rank in sorted(missing - standbys.healing):
        if rank not in standbys.parked:
            standbys, seated = _seated(standbys, rank)
            standbys = replace(standbys, phases={**standbys.phases, rank: StandbyPhase.PARKING})
            wanted += (*seated, ParkStandby(incarnation=run.incarnation, rank=rank, heals=True))
        standbys = replace(standbys, healing=standbys.healing | {rank})
    return standbys, tuple(wanted)


def is_of_a_newcomer(standbys: StandbyState, event: Event) -> bool:
    """Whether ``event`` is about one of those, and says nothing of standbys that wait for a fault."""
    return isinstance(event, StandbyChanged) and event.rank in standbys.healing


def _after(standbys: StandbyState, event: Event, run: RunState) -> StandbyState:
    plan, life = run.plan, run.life
    match event:
        case StandbyChanged(rank=rank, state=StandbyPhase.PARKED) if rank in standbys.healing:
            return replace(standbys, phases={**standbys.phases, rank: StandbyPhase.PARKED})
        case StandbyChanged(rank=rank, state=StandbyPhase.LOST) if rank in standbys.healing:
            return _in_vain(_without(standbys, rank), event.at_s)
        case (
            StandbyChanged(rank=rank, state=StandbyPhase.TAKEN | StandbyPhase.DISMISSED)
            | WorkerStarted(rank=rank)
        ) if rank in standbys.healing:
            return _without(standbys, rank)
        case WorkerExit(rank=rank) if plan is not None and plan.heals and rank not in plan.kept:
            return _in_vain(standbys, event.at_s) if life.regroups else standbys
        case FirstStep() if plan is not None and not plan.missing:
            return replace(standbys, in_vain=0, heal_at_s=0.0)
        case _:
            return standbys


def _late(standbys: StandbyState, run: RunState, now_s: float) -> tuple[int, ...]:
    """Newcomers that are not at their first step yet, long after the last of them was started."""
    if not 0 < standbys.overdue_s <= now_s:
        return ()
    return tuple(sorted(standbys.healing - run.life.parked))


def _in_vain(standbys: StandbyState, now_s: float) -> StandbyState:
    in_vain = standbys.in_vain + 1
    return replace(standbys, in_vain=in_vain, heal_at_s=now_s + RETRY_S * in_vain)


def _given_up(standbys: StandbyState, incarnation: int) -> tuple[StandbyState, tuple[Action, ...]]:
    """No rank trains any more that they could join."""
    if not (ranks := tuple(sorted(standbys.healing))):
        return standbys, ()
    why = "no rank trains any more beside which it could take its place"
    return _dismissed(standbys, incarnation, ranks, why)


def _slow(standbys: StandbyState, run: RunState, now_s: float) -> tuple[int, ...]:
    """Newcomers that all wait for now, and that have been on their way for longer than one may take."""
    began_s = standbys.overdue_s - COMES_S
    comes = frozenset[int]() if run.plan is None else run.plan.newcomers & standbys.healing
    on_its_way = (rank for rank in sorted(comes) if standbys.phases.get(rank) is StandbyPhase.PARKING)
    most_s = min(run.windows.rejoin_s, run.windows.heal_s / 2)
    return tuple(on_its_way) if now_s - began_s >= most_s else ()


def _dismissed(
    standbys: StandbyState, incarnation: int, ranks: tuple[int, ...], why: str
) -> tuple[StandbyState, tuple[Action, ...]]:
    for rank in ranks:
        standbys = _without(standbys, rank)
    state = StandbyPhase.DISMISSED
    return standbys, (DismissStandbys(incarnation=incarnation, ranks=ranks, state=state, why=why),)


def _seated(standbys: StandbyState, rank: int) -> tuple[StandbyState, tuple[Action, ...]]:
    """With a standby that is ready as that of ``rank``, if there is one."""
    ready = [one for one in standbys.ranks if one in standbys.usable]
    if rank in ready or not ready:
        return standbys, ()
    now_of = {ready[0]: rank, rank: ready[0]}
    ranks = tuple(now_of.get(one, one) for one in standbys.ranks)
    phases = {now_of.get(one, one): phase for one, phase in standbys.phases.items()}
    return replace(standbys, ranks=ranks, phases=phases), (SeatStandbys(ranks=tuple(now_of.items())),)


def _without(standbys: StandbyState, rank: int) -> StandbyState:
    phases = {one: phase for one, phase in standbys.phases.items() if one != rank}
    return replace(standbys, phases=phases, healing=standbys.healing - {rank})
