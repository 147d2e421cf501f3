"""When standbys are started, used and given up: a small machine of its own, beside the one in ``decide``.

It sees the same events and names orders; ``supervisor.standbys`` carries them
out and answers with ``StandbyChanged``. A wrong answer here costs a cold
start and never a run: nothing in ``decide`` depends on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from faultrun.model.events import Event, FirstStep, IncarnationStarted, Timer, TimerFired, WorkerStarted
from faultrun.model.run import Phase
from faultrun.model.standby import EVERY_RANK, StandbyChanged, StandbyPhase

SETTLE_S = 20.0
"""With ``auto``: how long training has been under way before the first standby is started."""

UNSEEN_SETTLE_S = 30.0
"""The same, from the start of the workers, where nobody reports steps."""

ASKED_SETTLE_S = 5.0
"""The same where the user named a number and nobody reports steps."""

READY_S = 300.0
HANDOVER_S = 1.0
_RETRY_S = 10.0
_MOST_FAILURES = 3
_MOST_SUSPICIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStandby:
    """Start the standby of ``rank``."""

    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismiss:
    """End these standbys; ``state`` is what they are called from now on."""

    ranks: tuple[int, ...]
    state: StandbyPhase
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAlive:
    """A restart is likely: full priority for those that are ready, and a sign of life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpHandover:
    """Whoever has got a rank and not answered by now is replaced by a cold start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """Have ``Timer.STANDBY`` fire at ``at_s``."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOff:
    """No standbys for the rest of this run."""

    why: str


StandbyAction = StartStandby | Dismiss | LookAlive | GiveUpHandover | Wake | TurnOff


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyState:
    """What is known of the standbys. ``ranks`` are those that shall have one; none: standbys are off.

    ``running``: workers run. ``proved``: they have trained, or lived long enough. ``warm``: some
    of them were standbys. ``cold_next``: the next start shall not use any. ``suspicions`` counts
    warm starts that failed before they were proved.
    """

    ranks: tuple[int, ...] = ()
    asked: bool = False
    seats: Mapping[int, StandbyPhase] = field(default_factory=dict)
    starting_since_s: float = 0.0
    running: bool = False
    proved: bool = False
    warm: bool = False
    cold_next: bool = False
    failures: int = 0
    suspicions: int = 0

    @property
    def usable(self) -> frozenset[int]:
        """Ranks whose standby may be given its place now."""
        ready = {rank for rank, state in self.seats.items() if state is StandbyPhase.READY}
        return frozenset() if self.cold_next else frozenset(ready)

    @property
    def starting(self) -> tuple[int, ...]:
        """Ranks whose standby is not ready yet."""
        return tuple(rank for rank, state in self.seats.items() if state is StandbyPhase.STARTING)


def decide_standbys(
    care: StandbyState, event: Event, phase: Phase
) -> tuple[StandbyState, tuple[StandbyAction, ...]]:
    """Return what is known after ``event`` and what to do. ``phase`` is the run's after the same event."""
    if not care.ranks:
        return care, ()
    if care.running and phase is not Phase.RUNNING:
        care, orders = _workers_end(care)
        return care, orders
    match event:
        case IncarnationStarted(at_s=at_s) if phase is Phase.RUNNING:
            settle_s = ASKED_SETTLE_S if care.asked else UNSEEN_SETTLE_S
            return replace(care, running=True, proved=False, cold_next=False), (Wake(at_s=at_s + settle_s),)
        case WorkerStarted(standby=True, rank=rank):
            return replace(_without(care, rank), warm=True), ()
        case FirstStep(at_s=at_s):
            due_s = at_s if care.asked else at_s + SETTLE_S
            return replace(care, proved=True), (Wake(at_s=due_s),)
        case TimerFired(timer=Timer.HANDOVER):
            return care, (GiveUpHandover(),)
        case TimerFired(timer=Timer.STANDBY, at_s=at_s) if phase is Phase.RUNNING:
            return _look(replace(care, proved=True), at_s)
        case StandbyChanged():
            return _changed(care, event, phase)
        case _:
            return care, ()


def _workers_end(care: StandbyState) -> tuple[StandbyState, tuple[StandbyAction, ...]]:
    """A fault or the end: the processors belong to the survivors' saves and to the restart."""
    suspicious = care.warm and not care.proved
    suspicions = care.suspicions + suspicious
    care = replace(care, running=False, warm=False, cold_next=suspicious, suspicions=suspicions)
    orders: list[StandbyAction] = [LookAlive()]
    if care.starting:
        why = "the workers ended before it was ready"
        orders.append(Dismiss(ranks=care.starting, state=StandbyPhase.DISMISSED, why=why))
    if suspicions >= _MOST_SUSPICIONS:
        orders.append(TurnOff(why=f"{suspicions} starts with standbys failed before their first step"))
    return care, tuple(orders)


def _look(care: StandbyState, now_s: float) -> tuple[StandbyState, tuple[StandbyAction, ...]]:
    """Start the next one that is missing, one at a time; give up one that is never ready."""
    if care.starting:
        left_s = care.starting_since_s + READY_S - now_s
        if left_s > 0:
            return care, (Wake(at_s=now_s + left_s),)
        why = f"not ready after {READY_S:g} s"
        return care, (Dismiss(ranks=care.starting, state=StandbyPhase.LOST, why=why),)
    missing = [rank for rank in care.ranks if rank not in care.seats]
    return (care, (StartStandby(rank=missing[0]),)) if missing else (care, ())


def _changed(
    care: StandbyState, event: StandbyChanged, phase: Phase
) -> tuple[StandbyState, tuple[StandbyAction, ...]]:
    match event.state:
        case StandbyPhase.STARTING:
            care = replace(_seated(care, event), starting_since_s=event.at_s)
            return care, (Wake(at_s=event.at_s + READY_S),)
        case StandbyPhase.READY:
            care = _seated(care, event)
            return _look(care, event.at_s) if phase is Phase.RUNNING else (care, ())
        case StandbyPhase.TAKEN:
            return replace(care, failures=0), ()
        case StandbyPhase.DISMISSED:
            return _without(care, event.rank), ()
        case StandbyPhase.LOST:
            return _lost(_without(care, event.rank), event)
        case StandbyPhase.OFF:
            everybody = tuple(care.seats)
            dismiss = Dismiss(ranks=everybody, state=StandbyPhase.DISMISSED, why=event.why)
            return StandbyState(), ((dismiss,) if everybody else ())


def _lost(care: StandbyState, event: StandbyChanged) -> tuple[StandbyState, tuple[StandbyAction, ...]]:
    """Try again later, a few times."""
    failures = care.failures + 1
    care = replace(care, failures=failures)
    if failures >= _MOST_FAILURES:
        return care, (TurnOff(why=f"{failures} standbys were lost in a row; the last one: {event.why}"),)
    return care, (Wake(at_s=event.at_s + _RETRY_S * failures),)


def _seated(care: StandbyState, event: StandbyChanged) -> StandbyState:
    return replace(care, seats={**care.seats, event.rank: event.state})


def _without(care: StandbyState, rank: int) -> StandbyState:
    if rank == EVERY_RANK:
        return replace(care, seats={})
    return replace(care, seats={one: state for one, state in care.seats.items() if one != rank})
