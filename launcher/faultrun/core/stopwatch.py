"""Times every recovery, part by part, from the same events that ``decide`` sees. Decides nothing."""

from dataclasses import dataclass, replace

from faultrun.model.events import (
    Drained,
    Event,
    FirstStep,
    IncarnationStarted,
    PlanAdopted,
    Prepared,
    RunStarted,
    WorkerStarted,
)
from faultrun.model.hang import HangDetected
from faultrun.model.recovery import FirstStepLogged, RecoveryTimed
from faultrun.model.rendezvous import ClusterFormed, RanksMet
from faultrun.model.run import Phase
from faultrun.model.stop import StopRequested

_STEPS = (FirstStep, FirstStepLogged)
_ENDING = (Phase.DRAINING, Phase.KILLING, Phase.SWEEPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """When what happened in the recovery that is under way; None: not yet, or nobody told."""

    noticed_s: float
    detect_s: float = 0.0
    drained_s: float | None = None
    planned_s: float | None = None
    prepares_s: float | None = None
    prepared_s: float | None = None
    started_s: float | None = None
    met_s: float | None = None
    formed_s: float | None = None
    standbys: int = 0
    incarnation: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopwatch:
    """``steps`` and ``meets``: steps of this run were known, its ranks have met at our own scheduler."""

    phase: Phase = Phase.NEW
    steps: bool = False
    meets: bool = False
    marks: Marks | None = None


def look(watch: Stopwatch, event: Event, phase: Phase) -> tuple[Stopwatch, RecoveryTimed | None]:
    """Return the watch after ``event``, and the times of a recovery that it ended.

    ``phase`` is the run's after the same event.
    """
    before = watch.phase
    watch = replace(
        watch,
        phase=phase,
        steps=watch.steps or isinstance(event, _STEPS),
        meets=watch.meets or isinstance(event, RanksMet),
    )
    if isinstance(event, RunStarted | StopRequested):
        return replace(watch, marks=None), None
    if before is Phase.RUNNING and phase in _ENDING:
        detect_s = event.silent_s if isinstance(event, HangDetected) else 0.0
        return replace(watch, marks=Marks(noticed_s=event.at_s, detect_s=detect_s)), None
    if watch.marks is None:
        return watch, None
    marks = _marked(watch.marks, event)
    if before is not phase and phase is Phase.PREPARING:
        marks = replace(marks, prepares_s=event.at_s)
    if event.incarnation != marks.incarnation or not _over(watch, event):
        return replace(watch, marks=marks), None
    # A step that comes although none was expected is the end of the same recovery.
    return replace(watch, marks=None if isinstance(event, _STEPS) else marks), _timed(marks, event)


def _marked(marks: Marks, event: Event) -> Marks:
    match event:
        case Drained(at_s=at_s):
            return replace(marks, drained_s=at_s)
        case PlanAdopted(at_s=at_s):
            return replace(marks, planned_s=at_s)
        case Prepared(at_s=at_s):
            return replace(marks, prepared_s=at_s)
        case WorkerStarted(standby=True):
            return replace(marks, standbys=marks.standbys + 1)
        case IncarnationStarted(at_s=at_s, incarnation=incarnation):
            return replace(marks, started_s=at_s, incarnation=incarnation)
        case RanksMet(at_s=at_s, incarnation=marks.incarnation):
            return replace(marks, met_s=at_s)
        case ClusterFormed(at_s=at_s, incarnation=marks.incarnation):
            return replace(marks, formed_s=at_s)
        case _:
            return marks


def _over(watch: Stopwatch, event: Event) -> bool:
    """Whether nothing later will be told of this recovery."""
    if watch.steps:
        return isinstance(event, _STEPS)
    return isinstance(event, ClusterFormed if watch.meets else IncarnationStarted)


def _timed(marks: Marks, event: Event) -> RecoveryTimed | None:
    """None where this supervisor has not seen all of it."""
    moments = (marks.drained_s, marks.planned_s, marks.prepares_s, marks.prepared_s, marks.started_s)
    seen = [moment for moment in moments if moment is not None]
    if len(seen) < len(moments):
        return None
    drained_s, planned_s, prepares_s, prepared_s, started_s = seen
    last_s = next(one for one in (marks.formed_s, marks.met_s, started_s) if one is not None)
    return RecoveryTimed(
        at_s=event.at_s,
        incarnation=event.incarnation,
        total_s=_span(marks.noticed_s - marks.detect_s, event.at_s),
        detect_s=round(marks.detect_s, 6),
        drain_s=_span(marks.noticed_s, drained_s),
        choose_s=_span(drained_s, planned_s),
        pause_s=_span(planned_s, prepares_s),
        rewrite_s=_span(prepares_s, prepared_s),
        spawn_s=_span(prepared_s, started_s),
        import_s=None if marks.met_s is None else _span(started_s, marks.met_s),
        rendezvous_s=None
        if marks.formed_s is None or marks.met_s is None
        else _span(marks.met_s, marks.formed_s),
        first_step_s=_span(last_s, event.at_s) if isinstance(event, _STEPS) else None,
        standbys=marks.standbys,
    )


def _span(begin_s: float, end_s: float) -> float:
    return round(max(0.0, end_s - begin_s), 6)
