"""When standbys are started, used and given up: a small machine of its own, beside the one in ``decide``.

It sees the same events, and what it wants done joins the same step: journaled, then performed by the world,
which answers with ``StandbyChanged``. A wrong answer here costs a cold start and never a run: nothing in
``decide`` depends on it. A supervisor begins with none, so its state is not replayed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from faultrun.model.actions import (
    Action,
    DismissStandbys,
    GiveUpHandover,
    RaiseStandbys,
    Spawn,
    StartStandby,
    StartTimer,
)
from faultrun.model.events import (
    Event,
    FirstStep,
    IncarnationStarted,
    Timer,
    TimerFired,
    WorkerStarted,
)
from faultrun.model.recovery import FirstStepLogged
from faultrun.model.run import Phase, RunState, Step
from faultrun.model.standby import EVERY_RANK, RoomFound, StandbyChanged, StandbyPhase

SETTLE_S = 20.0
"""With ``auto``: how long after its first step a run that leaves no processor free has none. Later they cost
it as much as at once; but a run that is shorter does not pay for what it never needs."""

UNSEEN_SETTLE_S = 30.0
"""The same, from the start of the workers, where neither they nor their logs tell of a step."""

UNSEEN_ROOM_S = 10.0
"""From when on, there, processors that stand idle are taken: the longest imports that we know, a Trainer's,
are over after 7 s, and most of what a model needs of memory is taken."""

ASKED_SETTLE_S = 5.0
"""The same where the user named a number and nobody reports steps."""

READY_S = 300.0
HANDOVER_S = 1.0
_RETRY_S = 10.0
_MOST_FAILURES = 3
_MOST_SUSPICIONS = 3

_Decided = tuple["StandbyState", tuple[Action, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyState:
    """What is known of the standbys. ``ranks`` are those that shall have one; none: standbys are off.

    Before workers run only how many they are counts: one of several nodes does not know its ranks yet.
    ``doubts`` are why there are none; every life says so, for those who read no more than its journal.
    ``at_once``: how many may be on their way side by side. ``running``: workers run. ``proved``: they have
    trained; after ``settled_s`` they have lived long enough. ``warm``: some of them were standbys.
    ``cold_next``: the next start shall not use any. ``suspicions`` counts warm starts that failed before
    they were proved.
    """

    ranks: tuple[int, ...] = ()
    asked: bool = False
    doubts: tuple[str, ...] = ()
    phases: Mapping[int, StandbyPhase] = field(default_factory=dict)
    starting_since_s: float = 0.0
    at_once: int = 1
    running: bool = False
    proved: bool = False
    settled_s: float = 0.0
    warm: bool = False
    cold_next: bool = False
    failures: int = 0
    suspicions: int = 0

    @property
    def usable(self) -> frozenset[int]:
        """Ranks whose standby may be given its place now."""
        ready = {rank for rank, phase in self.phases.items() if phase is StandbyPhase.READY}
        return frozenset() if self.cold_next else frozenset(ready)

    @property
    def starting(self) -> tuple[int, ...]:
        """Ranks whose standby is not ready yet."""
        return tuple(rank for rank, phase in self.phases.items() if phase is StandbyPhase.STARTING)


def decide_standbys(standbys: StandbyState, event: Event, step: Step) -> tuple[StandbyState, Step]:
    """Return what is known after ``event``, and ``step`` with what is to be done about standbys.

    Workers that it starts may take the places of those that are ready.
    """
    standbys, wanted = _decide(standbys, event, step.state)
    actions = (_warm(action, standbys) for action in step.actions)
    return standbys, replace(step, actions=(*actions, *wanted))


def _warm(action: Action, standbys: StandbyState) -> Action:
    return replace(action, standbys=standbys.usable) if isinstance(action, Spawn) else action


def _decide(standbys: StandbyState, event: Event, run: RunState) -> _Decided:
    running = run.phase is Phase.RUNNING
    if not standbys.ranks:
        said = standbys.doubts and running and isinstance(event, IncarnationStarted)
        return standbys, ((_off(run.incarnation, "; ".join(standbys.doubts)),) if said else ())
    if standbys.running and not running:
        return _workers_end(standbys, event.at_s, run.incarnation)
    match event:
        case IncarnationStarted(at_s=at_s) if running:
            settled_s = at_s + (ASKED_SETTLE_S if standbys.asked else UNSEEN_SETTLE_S)
            begun = replace(
                standbys, running=True, proved=False, settled_s=settled_s, cold_next=False, at_once=1
            )
            begun, strangers = _seated(begun, run)
            return begun, (*strangers, _look_at(settled_s, run))
        case WorkerStarted(standby=True, rank=rank):
            return replace(_without(standbys, rank), warm=True), ()
        case FirstStep(at_s=at_s) | FirstStepLogged(at_s=at_s) if running:
            due_s = at_s if standbys.asked else at_s + SETTLE_S
            return replace(standbys, proved=True), (_look_at(due_s, run),)
        case RoomFound(at_s=at_s) | TimerFired(timer=Timer.STANDBY, at_s=at_s) if running:
            at_once = event.at_once if isinstance(event, RoomFound) else standbys.at_once
            return _look(replace(standbys, at_once=at_once), at_s, run)
        case TimerFired(timer=Timer.HANDOVER):
            return standbys, (GiveUpHandover(),)
        case StandbyChanged():
            return _changed(standbys, event, run)
        case _:
            return standbys, ()


def _seated(standbys: StandbyState, run: RunState) -> _Decided:
    """The ranks that this node has now; standbys of those that it had before serve nobody here."""
    ranks = tuple(run.seats.ranks_of(run.node))[: len(standbys.ranks)]
    gone = tuple(rank for rank in standbys.phases if rank not in ranks)
    if not gone:
        return replace(standbys, ranks=ranks), ()
    why = "this node has other ranks now"
    dismissed = DismissStandbys(
        incarnation=run.incarnation, ranks=gone, state=StandbyPhase.DISMISSED, why=why
    )
    return replace(standbys, ranks=ranks), (dismissed,)


def _workers_end(standbys: StandbyState, now_s: float, incarnation: int) -> _Decided:
    """A fault or the end: the processors belong to the survivors' saves and to the restart."""
    suspicious = standbys.warm and not standbys.proved and now_s < standbys.settled_s
    suspicions = standbys.suspicions + suspicious
    standbys = replace(standbys, running=False, warm=False, cold_next=suspicious, suspicions=suspicions)
    wanted: list[Action] = []
    if standbys.usable:
        wanted.append(RaiseStandbys(ranks=standbys.usable))
    if standbys.starting:
        wanted.append(
            DismissStandbys(
                incarnation=incarnation,
                ranks=standbys.starting,
                state=StandbyPhase.DISMISSED,
                why="the workers ended before it was ready",
            )
        )
    if suspicions >= _MOST_SUSPICIONS:
        why = f"{suspicions} starts with standbys failed before their first step"
        wanted.append(_off(incarnation, why))
    return standbys, tuple(wanted)


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
    known = replace(standbys, phases={**standbys.phases, event.rank: event.state})
    match event.state:
        case StandbyPhase.STARTING:
            return replace(known, starting_since_s=event.at_s), (_look_at(event.at_s + READY_S, run),)
        case StandbyPhase.READY:
            return _look(known, event.at_s, run) if run.phase is Phase.RUNNING else (known, ())
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
    """Try again later, a few times."""
    failures = standbys.failures + 1
    standbys = replace(standbys, failures=failures)
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
