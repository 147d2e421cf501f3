"""Times every recovery, part by part, from the same events that ``decide`` sees. Decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from faultrun.model.events import (
    Drained,
    Event,
    FirstStep,
    IncarnationStarted,
    PlanAdopted,
    Prepared,
    RunStarted,
    Timer,
    TimerFired,
    WorkerStarted,
)
from faultrun.model.observed.hang import HangDetected, HangDismissed, HangSuspected
from faultrun.model.observed.mindspore_rendezvous import ClusterFormed, RanksMet
from faultrun.model.observed.recovery import FirstStepLogged, RecoveryTimed
from faultrun.model.observed.rejoin import DeathsExamined, RankCanRejoin, RankRejoined
from faultrun.model.run import Phase
from faultrun.model.stop import StopRequested

_STEPS = (FirstStep, FirstStepLogged)
_MARKED: Mapping[type, str] = {
    Drained: "drained",
    DeathsExamined: "drained",
    PlanAdopted: "planned",
    Prepared: "prepared",
    IncarnationStarted: "started",
    RanksMet: "met",
    ClusterFormed: "formed",
    RankRejoined: "formed",
}
_OF_THE_NEW = (RanksMet, ClusterFormed)
_ENDING = (Phase.REPLACING, Phase.DRAINING, Phase.KILLING, Phase.SWEEPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recovery:
    """The one that is under way. ``at_s``: when what had happened, for what has and was told.

    ``planned`` is the newest incarnation that this supervisor had a part in, or prepared for.
    """

    noticed_s: float
    planned: int
    detect_s: float = 0.0
    at_s: Mapping[str, float] = field(default_factory=dict)
    standbys: int = 0
    incarnation: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopwatch:
    """``steps`` and ``meets``: steps of this run were known, its ranks have met at our own scheduler.

    ``suspected`` is the newest suspicion of a hang that was not dismissed.
    """

    phase: Phase = Phase.NEW
    steps: bool = False
    meets: bool = False
    suspected: HangSuspected | None = None
    recovery: _Recovery | None = None


def look(watch: Stopwatch, event: Event, phase: Phase) -> tuple[Stopwatch, RecoveryTimed | None]:
    """Return the watch after ``event``, and the times of a recovery that it ended.

    ``phase`` is the run's after the same event.
    """
    before, suspected = watch.phase, watch.suspected
    watch = replace(
        watch,
        phase=phase,
        steps=watch.steps or isinstance(event, _STEPS),
        meets=watch.meets or isinstance(event, RanksMet),
        suspected=suspicion_after(suspected, event),
    )
    if isinstance(event, RunStarted | StopRequested):
        return replace(watch, recovery=None), None
    match event:
        case TimerFired(timer=Timer.HEAL) | RankCanRejoin(waits=True) if phase is Phase.REPLACING:
            return watch, None  # nothing has failed
    if before is Phase.RUNNING and phase in _ENDING:
        detect_s = silence_s(event, suspected) if isinstance(event, HangDetected) else 0.0
        recovery = _Recovery(noticed_s=event.at_s, planned=event.incarnation, detect_s=detect_s)
        return replace(watch, recovery=recovery), None
    if watch.recovery is None:
        return watch, None
    if isinstance(event, PlanAdopted) and event.plan.incarnation > watch.recovery.planned + 1:
        # Others recovered without this node; it takes a place in the recovery from a later fault.
        return replace(watch, recovery=None), None
    recovery = _marked(watch.recovery, event)
    if before is not phase and phase is Phase.PREPARING:
        recovery = replace(recovery, at_s={**recovery.at_s, "prepares": event.at_s})
    if event.incarnation != recovery.incarnation or not _over(watch, event):
        return replace(watch, recovery=recovery), None
    # A step that comes although none was expected is the end of the same recovery.
    return replace(watch, recovery=None if isinstance(event, _STEPS) else recovery), _timed(recovery, event)


def suspicion_after(suspected: HangSuspected | None, event: Event | None) -> HangSuspected | None:
    """The newest suspicion that stands after ``event``."""
    match event:
        case HangSuspected():
            return event
        case HangDismissed():
            return None
        case _:
            return suspected


def silence_s(hang: HangDetected, suspected: HangSuspected | None) -> float:
    """How long nothing had been heard when ``hang`` was told: looking into a suspicion takes time."""
    if suspected is None or suspected.incarnation != hang.incarnation:
        return hang.silent_s
    return max(hang.silent_s, hang.at_s - suspected.at_s + suspected.suspicion.silent_s)


def _marked(recovery: _Recovery, event: Event) -> _Recovery:
    if isinstance(event, WorkerStarted) and event.standby:
        return replace(recovery, standbys=recovery.standbys + 1)
    if isinstance(event, PlanAdopted):
        recovery = replace(recovery, planned=event.plan.incarnation)
    if isinstance(event, IncarnationStarted):
        recovery = replace(recovery, incarnation=event.incarnation)
    if isinstance(event, PlanAdopted) and event.plan.kept:
        at_once = dict.fromkeys(("drained", "prepares", "prepared"), event.at_s)
        examined = {name: at_s for name, at_s in recovery.at_s.items() if name == "drained"}
        recovery = replace(recovery, at_s={**recovery.at_s, **at_once, **examined})
    if isinstance(event, RankRejoined) and "started" in recovery.at_s:
        recovery = replace(recovery, at_s={**recovery.at_s, "met": recovery.at_s["started"]})
    mark = _MARKED.get(type(event))
    if mark is None or (isinstance(event, _OF_THE_NEW) and event.incarnation != recovery.incarnation):
        return recovery
    return replace(recovery, at_s={**recovery.at_s, mark: event.at_s})


def _over(watch: Stopwatch, event: Event) -> bool:
    """Whether nothing later will be told of this recovery."""
    if watch.steps:
        return isinstance(event, _STEPS)
    return isinstance(event, ClusterFormed if watch.meets else IncarnationStarted)


def _timed(recovery: _Recovery, event: Event) -> RecoveryTimed | None:
    """None where this supervisor has not seen all of it."""
    at_s = {**recovery.at_s, "noticed": recovery.noticed_s, "over": event.at_s}
    if not at_s.keys() >= {"drained", "planned", "prepares", "prepared", "started"}:
        return None

    def span(begin: str, end: str) -> float:
        return round(max(0.0, at_s[end] - at_s[begin]), 6)

    last = next(mark for mark in ("formed", "met", "started") if mark in at_s)
    return RecoveryTimed(
        at_s=event.at_s,
        incarnation=event.incarnation,
        total_s=round(max(0.0, event.at_s - recovery.noticed_s + recovery.detect_s), 6),
        detect_s=round(recovery.detect_s, 6),
        drain_s=span("noticed", "drained"),
        choose_s=span("drained", "planned"),
        pause_s=span("planned", "prepares"),
        rewrite_s=span("prepares", "prepared"),
        spawn_s=span("prepared", "started"),
        import_s=span("started", "met") if "met" in at_s else None,
        rendezvous_s=span("met", "formed") if {"met", "formed"} <= at_s.keys() else None,
        first_step_s=span(last, "over") if isinstance(event, _STEPS) else None,
        standbys=recovery.standbys,
    )
