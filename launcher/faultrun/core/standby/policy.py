"""When standbys are started, used and given up: a small machine of its own, beside the one in ``decide``.

It sees the same events, and what it wants done joins the same step: journaled, then performed by the
executor; ``StandbyChanged`` comes of it. A wrong answer here costs a cold start and never a run: of all this
``decide`` notes only which are parked. A supervisor begins with none, so its state is not replayed.
"""

from collections.abc import Sequence
from dataclasses import replace

from faultrun.core.standby.healing import healed, is_of_a_newcomer
from faultrun.core.standby.state import StandbyState, is_crowded, needs, short_on_device
from faultrun.model.actions import (
    Action,
    DismissStandbys,
    GiveUpHandover,
    ParkStandby,
    RaiseStandbys,
    SeatStandbys,
    Spawn,
    StartStandby,
    StartTimer,
)
from faultrun.model.events import Event, FirstStep, IncarnationStarted, Timer, TimerFired, WorkerStarted
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.observed.rejoin import RankCanRejoin
from faultrun.model.observed.standby import EVERY_RANK, MemoryUsed, RoomFound, StandbyChanged, StandbyPhase
from faultrun.model.run import Phase, RunState, Step

SETTLE_S = 20.0
"""With ``auto``: how long after its first step a run that leaves no processor free has none. Later they cost
it as much as at once; but a run that is shorter does not pay for what it never needs."""

UNSEEN_SETTLE_S = 30.0
"""How long after the start workers have settled where neither they nor their logs tell of a step."""

UNSEEN_ROOM_S = 10.0
"""From when on, there, processors that stand idle are taken: the longest imports that we know, a Trainer's,
are over after 7 s, and most of what a model needs of memory is taken."""

ASKED_SETTLE_S = 5.0
"""How long after the start workers have settled if the user named a number and no steps are reported."""

READY_S = 300.0
HANDOVER_S = 3.0
"""It answers in milliseconds, or once its pages are back from a busy disk; a cold start takes longer."""
_RETRY_S = 10.0
_MOST_FAILURES = 3
_AT_ONCE_S = 1.0
_MOST_SUSPICIONS = 3

_Decided = tuple[StandbyState, tuple[Action, ...]]


def decide_standbys(standbys: StandbyState, event: Event, step: Step) -> tuple[StandbyState, Step]:
    """Return what is known after ``event``, and ``step`` with what is to be done about standbys.

    Workers that it starts may take the places of those that are ready.
    """
    of_a_newcomer = is_of_a_newcomer(standbys, event)
    standbys, healing = healed(standbys, event, step.state)
    standbys, wanted = (standbys, ()) if of_a_newcomer else _decide(standbys, event, step.state)
    standbys, seated = _seated(standbys, step)
    actions = (_warm(action, standbys) for action in step.actions)
    return standbys, replace(step, actions=(*seated, *actions, *healing, *wanted))


def waits_for_a_seat(run: RunState) -> bool:
    """Whether this is one of several nodes that has no workers and was told of none, as a spare."""
    return run.phase is Phase.AWAITING_PLAN and len(run.topology.nodes) > 1


def _warm(action: Action, standbys: StandbyState) -> Action:
    if not isinstance(action, Spawn):
        return action
    parked = frozenset(standbys.parked) if action.plan.kept else frozenset()
    return replace(action, standbys=standbys.usable | parked)


def _decide(standbys: StandbyState, event: Event, run: RunState) -> _Decided:  # noqa: PLR0911  one row a case
    running = run.phase is Phase.RUNNING
    if not standbys.ranks:
        said = standbys.doubts and running and isinstance(event, IncarnationStarted)
        return standbys, ((_off(run.incarnation, "; ".join(standbys.doubts)),) if said else ())
    if standbys.parked and not running and run.phase is not Phase.REPLACING:
        return _unpark(standbys, event, run)
    if (standbys.running and not running) or standbys.waits is not waits_for_a_seat(run):
        changes = _workers_end if standbys.running else _wait_changes
        return changes(standbys, event.at_s, run)
    match event:
        case IncarnationStarted(at_s=at_s) if running:
            settled_s = at_s + (ASKED_SETTLE_S if standbys.asked else UNSEEN_SETTLE_S)
            begun = replace(
                standbys, running=True, proved=False, settled_s=settled_s, cold_next=False, at_once=1
            )
            return begun, (_look_at(settled_s, run),)
        case WorkerStarted(standby=True, rank=rank):
            return replace(_without(standbys, rank), warm=True), ()
        case FirstStep(at_s=at_s) | FirstStepLogged(at_s=at_s) if (
            running and event.incarnation == run.incarnation
        ):
            due_s = at_s if standbys.asked else at_s + SETTLE_S
            return replace(standbys, proved=True), (_look_at(due_s, run),)
        case RoomFound(at_s=at_s) | TimerFired(timer=Timer.STANDBY, at_s=at_s) if running:
            at_once = event.at_once if isinstance(event, RoomFound) else standbys.at_once
            return _look(replace(standbys, at_once=at_once), at_s, run)
        case RoomFound() | TimerFired(timer=Timer.STANDBY) if standbys.waits:
            return _while_it_waits(standbys, event, run)
        case RankCanRejoin() | MemoryUsed() if running:
            return _uses(standbys, event, run)
        case TimerFired(timer=Timer.HANDOVER):
            return standbys, (GiveUpHandover(),)
        case StandbyChanged():
            return _changed(standbys, event, run)
        case _:
            return standbys, ()


def _seated(standbys: StandbyState, step: Step) -> _Decided:
    """Give ranks that have no standby of their own one that is ready for another, as workers are started.

    A standby compares by itself what it has read of its rank, and leaves its place to a cold start if that
    differs. Beside survivors only some are started, or all of a spare that takes a place there.
    """
    spawn = next((action for action in step.actions if isinstance(action, Spawn)), None)
    if spawn is None:
        return standbys, ()
    seats = spawn.plan.topology.ranks_of(step.state.node) if spawn.plan.kept else spawn.ranks
    now_of = _places(standbys, spawn.ranks, seats)
    seated: list[Action] = []
    if left := tuple(rank for rank in standbys.phases if rank in {*standbys.ranks} - now_of.keys()):
        why, number = "the run has fewer workers", spawn.plan.incarnation
        seated.append(DismissStandbys(incarnation=number, ranks=left, state=StandbyPhase.DISMISSED, why=why))
    if standbys.phases and any(old != new for old, new in now_of.items()):
        seated.append(SeatStandbys(ranks=tuple(now_of.items())))
    coming = {rank: phase for rank, phase in standbys.phases.items() if rank in standbys.healing}
    phases = {now_of[rank]: phase for rank, phase in standbys.phases.items() if rank in now_of}
    return replace(standbys, ranks=tuple(now_of.values()), phases={**coming, **phases}), tuple(seated)


def _places(standbys: StandbyState, starts: Sequence[int], seats: Sequence[int]) -> dict[int, int]:
    """Whom each serves from now on, of the ranks ``seats`` of this node, of which ``starts`` are started.

    One that is ready has no rank until it is needed; one that has run the program as a rank is that rank's.
    """
    able = standbys.usable | {*standbys.parked}
    alone = [rank for rank in starts if rank not in able]
    idle = [rank for rank in standbys.ranks if rank in standbys.usable and rank not in starts]
    places = dict(zip(idle, alone, strict=False))
    taken = {*places.values()}
    places |= {rank: rank for rank in standbys.ranks if rank not in places and rank in {*seats} - taken}
    free = [rank for rank in seats if rank not in places.values()]
    places |= dict(zip([rank for rank in standbys.ranks if rank not in places], free, strict=False))
    return {rank: places[rank] for rank in standbys.ranks if rank in places}


def _unpark(standbys: StandbyState, event: Event, run: RunState) -> _Decided:
    """No survivor stays: who has run the program already is of no use to a start from a checkpoint."""
    parked = standbys.parked
    for rank in parked:
        standbys = _without(standbys, rank)
    why = "it had run the program for survivors that did not stay"
    gone = DismissStandbys(incarnation=run.incarnation, ranks=parked, state=StandbyPhase.DISMISSED, why=why)
    standbys, wanted = _decide(standbys, event, run)
    return standbys, (gone, *wanted)


def _park(standbys: StandbyState, run: RunState) -> _Decided:
    """One after the other, once every rank here can outlive the others: it costs what a start costs.

    With fewer than one a rank none is: it could serve that rank alone. Nor is one whose rank has not said
    what it needs.
    """
    here = {*run.seats.ranks_of(run.node)}
    able = run.life.rejoinable >= here and run.windows.rejoin_s > 0 and {*standbys.ranks} >= here
    may = standbys.memory.keys() - standbys.kept_ready
    ready = [rank for rank, phase in standbys.phases.items() if phase is StandbyPhase.READY and rank in may]
    if not able or not ready or StandbyPhase.PARKING in standbys.phases.values():
        return standbys, ()
    rank, told = ready[0], [standbys.memory[one] for one in sorted(here & standbys.memory.keys())]
    parks = ParkStandby(
        incarnation=run.incarnation,
        rank=rank,
        needs_bytes=standbys.memory[rank].host_bytes,
        short=short_on_device(rank, told, standbys.parked, asked=standbys.asked),
    )
    return replace(standbys, phases={**standbys.phases, rank: StandbyPhase.PARKING}), (parks,)


def _uses(standbys: StandbyState, event: RankCanRejoin | MemoryUsed, run: RunState) -> _Decided:
    """Where a device fills up, its ranks come first: their standbys begin anew, and wait without it."""
    if isinstance(event, RankCanRejoin):
        return _park(standbys, run)
    standbys = needs(standbys, event)
    alike = (rank for rank, told in standbys.memory.items() if told.device == event.device)
    parked = tuple(rank for rank in alike if rank in standbys.parked)
    if not is_crowded(event) or not parked:
        return _park(standbys, run)
    why = f"{event.device}, where its rank trains, has {event.free_bytes >> 20} MiB left"
    gone = DismissStandbys(incarnation=run.incarnation, ranks=parked, state=StandbyPhase.DISMISSED, why=why)
    standbys = replace(standbys, kept_ready=standbys.kept_ready | {*parked})
    return standbys, (gone, _look_at(event.at_s + _RETRY_S, run))


def _wait_changes(standbys: StandbyState, now_s: float, run: RunState) -> _Decided:
    """A wait for a seat begins, or is over: it has got one, or the run has ended.

    No rank trains here, but others may on the same machine, and most waits are over at once.
    """
    if standbys.waits:
        return replace(standbys, waits=False), _make_way(standbys, run.incarnation, "the wait was over")
    settled_s = now_s + (ASKED_SETTLE_S if standbys.asked else UNSEEN_SETTLE_S)
    return replace(standbys, waits=True, settled_s=settled_s, at_once=1), (_look_at(settled_s, run),)


def _while_it_waits(standbys: StandbyState, event: RoomFound | TimerFired, run: RunState) -> _Decided:
    if isinstance(event, RoomFound):
        standbys = replace(standbys, at_once=event.at_once, settled_s=event.at_s)
    return _look(standbys, event.at_s, run) if event.at_s >= standbys.settled_s else (standbys, ())


def _make_way(standbys: StandbyState, incarnation: int, why: str) -> tuple[Action, ...]:
    """Workers are to be started: those that are ready may be asked soon, the others are in the way."""
    wanted: list[Action] = []
    hopeful = standbys.usable | {*standbys.parked}
    if hopeful:
        wanted.append(RaiseStandbys(ranks=hopeful))
    if standbys.starting:
        wanted.append(
            DismissStandbys(
                incarnation=incarnation,
                ranks=standbys.starting,
                state=StandbyPhase.DISMISSED,
                why=f"{why} before it was ready",
            )
        )
    return tuple(wanted)


def _workers_end(standbys: StandbyState, now_s: float, run: RunState) -> _Decided:
    """A fault or the end: the processors belong to the survivors' saves and to the restart."""
    begins_anew = run.phase is not Phase.REPLACING  # else a peer's death is why the first step did not come
    suspicious = begins_anew and standbys.warm and not standbys.proved and now_s < standbys.settled_s
    suspicions = standbys.suspicions + suspicious
    standbys = replace(standbys, running=False, warm=False, cold_next=suspicious, suspicions=suspicions)
    wanted = _make_way(standbys, run.incarnation, "the workers ended")
    if suspicions >= _MOST_SUSPICIONS:
        why = f"{suspicions} starts with standbys failed before their first step"
        wanted = (*wanted, _off(run.incarnation, why))
    return standbys, wanted


def _look(standbys: StandbyState, now_s: float, run: RunState) -> _Decided:
    """Start those that are missing, so many at once; give up those that are never ready."""
    starting, overdue_s = standbys.starting, standbys.starting_since_s + READY_S
    if starting and now_s >= overdue_s:
        why = f"not ready after {READY_S:g} s"
        lost = DismissStandbys(incarnation=run.incarnation, ranks=starting, state=StandbyPhase.LOST, why=why)
        return standbys, (lost,)
    missing = [rank for rank in standbys.ranks if rank not in standbys.phases]
    next_ones = missing[: max(0, standbys.at_once - len(starting))]
    wanted = [StartStandby(incarnation=run.incarnation, rank=rank) for rank in next_ones]
    return standbys, (*wanted, *((_look_at(overdue_s, run),) if starting else ()))


def _changed(standbys: StandbyState, event: StandbyChanged, run: RunState) -> _Decided:
    if event.rank not in (EVERY_RANK, *standbys.ranks):
        return standbys, ()  # said before this node got its ranks
    known = replace(standbys, phases={**standbys.phases, event.rank: event.state})
    match event.state:
        case StandbyPhase.STARTING:
            return replace(known, starting_since_s=event.at_s), (_look_at(event.at_s + READY_S, run),)
        case StandbyPhase.READY:
            if standbys.phases.get(event.rank) is StandbyPhase.PARKING:
                known = replace(known, kept_ready=known.kept_ready | {event.rank})
            known, parks = _park(known, run) if run.phase is Phase.RUNNING else (known, ())
            keeps = standbys.waits or run.phase is Phase.RUNNING
            known, wanted = _look(known, event.at_s, run) if keeps else (known, ())
            return known, (*parks, *wanted)
        case StandbyPhase.PARKING:
            return known, ()
        case StandbyPhase.PARKED:
            return _park(known, run) if run.phase is Phase.RUNNING else (known, ())
        case StandbyPhase.TAKEN:
            return replace(standbys, failures=0), ()
        case StandbyPhase.DISMISSED:
            return _without(standbys, event.rank), ()
        case StandbyPhase.LOST:
            return _lost(_without(standbys, event.rank), event, run)
        case StandbyPhase.OFF:
            dismissed = DismissStandbys(
                incarnation=event.incarnation,
                ranks=tuple(standbys.phases),
                state=StandbyPhase.DISMISSED,
                why=event.why,
            )
            return StandbyState(doubts=(event.why,)), ((dismissed,) if standbys.phases else ())


def _lost(standbys: StandbyState, event: StandbyChanged, run: RunState) -> _Decided:
    """Try again later, a few times. What ends several at once, as a fence does, is one failure."""
    last = standbys.last_lost
    at_once = last is not None and last.rank != event.rank and event.at_s - last.at_s < _AT_ONCE_S
    failures = standbys.failures + (not at_once)
    standbys = replace(standbys, failures=failures, last_lost=event)
    if failures < _MOST_FAILURES:
        return standbys, (_look_at(event.at_s + _RETRY_S * failures, run),)
    why = f"{failures} standbys were lost in a row; the last one: {event.why}"
    return standbys, (_off(run.incarnation, why),)


def _look_at(at_s: float, run: RunState) -> StartTimer:
    return StartTimer(timer=Timer.STANDBY, at_s=at_s, incarnation=run.incarnation)


def _off(incarnation: int, why: str) -> DismissStandbys:
    """No standbys for the rest of this run."""
    return DismissStandbys(incarnation=incarnation, ranks=(EVERY_RANK,), state=StandbyPhase.OFF, why=why)


def _without(standbys: StandbyState, rank: int) -> StandbyState:
    return replace(standbys, phases={one: phase for one, phase in standbys.phases.items() if one != rank})
