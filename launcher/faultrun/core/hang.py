"""When is silence a hang? A pure detector over what the ranks say in the progress page.

It learns how long a step usually takes and calls a silence suspicious at a
multiple of that. Only ranks that have done the fewest steps count: whoever is
ahead waits for them. As long as one of them is within its limits nothing is
suspected, because the others may be waiting for that one; unless the kernel
says that one is stopped (state T), which is no way of being slow.

Time is the observer's own: when the observer itself was frozen (SIGSTOP, a
suspended laptop, a starved machine), the gap between two looks is not silence.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from faultrun.model.hang import HangPolicy, Span, Suspicion
from faultrun.model.progress import WorkPhase

STOPPED_S = 10.0
"""A stopped process (state T) does nothing slowly: it is called after this, whatever its phase may take."""

_LOOKS = 4
_AFTER_S = 0.005
_OFTEN_S, _LEARNING_S, _SELDOM_S = 0.1, 0.1, 5.0
_KEPT = 20
_ENOUGH = 3
_LONGEST_FACTOR = 3.0
_OUTSIDE = frozenset({WorkPhase.SAVING, WorkPhase.EVALUATING, WorkPhase.UNKNOWN, WorkPhase.DONE})
_WAY = {WorkPhase.COLLECTIVE: 1, WorkPhase.UPDATING: 2}
"""How far within a step; whatever else a rank does, it has still to come to the collective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One rank's slot of the progress page. ``spoke_at_s`` is when it said this, on the clock of ``observe``.

    ``begun``: the SDK runs in it. ``stepped``: it has finished a step of this incarnation.
    """

    rank: int
    begun: bool
    stepped: bool = False
    step: int = -1
    phase: WorkPhase = WorkPhase.COMPUTING
    spoke_at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A beat, and when on the observer's clock it was new, and its phase was."""

    beat: Beat
    since_s: float
    phase_since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What has been observed of one incarnation. ``clock_s`` counts observed seconds only.

    ``stepping_s`` counts those of them in which every rank was in its training
    loop; ``front`` is the step that all have finished, and when by that clock.
    """

    policy: HangPolicy
    at_s: float
    clock_s: float = 0.0
    stepping_s: float = 0.0
    seen: tuple[Seen, ...] = ()
    front: tuple[int, float] | None = None
    paces: tuple[float, ...] = ()
    saves: tuple[float, ...] = ()
    evaluations: tuple[float, ...] = ()
    patience: float = 1.0

    @property
    def usual_s(self) -> float | None:
        """How long a step usually takes; None while that is not known."""
        return median(self.paces) if len(self.paces) >= _ENOUGH else None


def observe(watch: Watch, beats: Iterable[Beat], now_s: float, interval_s: float) -> Watch:
    """Return the watch after one look at ``now_s``; looks are meant to be ``interval_s`` apart."""
    passed_s = max(0.0, min(now_s - watch.at_s, 2 * interval_s))
    clock_s = watch.clock_s + passed_s
    known = {one.beat.rank: one for one in watch.seen}
    seen = tuple(
        _seen(known.get(beat.rank), beat, clock_s - min(passed_s, max(0.0, now_s - beat.spoke_at_s)))
        for beat in beats
    )
    stepping = all(one.beat.phase not in _OUTSIDE for one in seen if one.beat.begun)
    watch = replace(
        watch,
        at_s=now_s,
        clock_s=clock_s,
        stepping_s=watch.stepping_s + (passed_s if stepping else 0.0),
        saves=_left(watch.saves, known, seen, WorkPhase.SAVING),
        evaluations=_left(watch.evaluations, known, seen, WorkPhase.EVALUATING),
        seen=seen,
    )
    return _paced(watch)


def suspect(watch: Watch, stopped: frozenset[int] = frozenset(), *, share: float = 1.0) -> Suspicion | None:
    """Whom to look into, if the job stands still. ``stopped`` are ranks whose process is in state T.

    With a ``share`` below 1 already after that part of the limit.
    """
    begun = [one for one in watch.seen if one.beat.begun and not _is_leaving(watch, one, stopped)]
    mute = [one for one in watch.seen if not one.beat.begun]
    if not begun and not watch.policy.speaks:
        return None
    fewest = min((one.beat.step for one in begun), default=-1)
    front = [one for one in begun if one.beat.step == fewest]
    late = [one for one in (*mute, *front) if silence(watch, one) >= share * limit(watch, one, stopped)]
    halted = [one for one in late if one.beat.rank in stopped]
    if not late or (len(late) < len(front) + len(mute) and not halted):
        return None
    if halted:
        front, mute = halted, []  # whatever the others do, they will have to wait for these
    behind = mute or _least_far(front)
    last = min(behind, key=lambda one: silence(watch, one))
    stepping = last.beat.stepped and last.beat.phase not in _OUTSIDE and not _span(watch, last).fixed
    return Suspicion(
        front=tuple(one.beat.rank for one in (*mute, *front)),
        behind=tuple(one.beat.rank for one in behind),
        silent_s=round(silence(watch, last), 3),
        limit_s=round(limit(watch, last, stopped), 3),
        usual_s=round(watch.usual_s, 6) if stepping and watch.usual_s is not None else None,
        needed_s=round(limit(replace(watch, patience=1.0), last, stopped), 3),
        final=all(silence(watch, one) >= _span(watch, one).high_s for one in (*mute, *front)),
    )


def dismissed(watch: Watch, excused_s: float = 0.0) -> Watch:
    """Somebody was found at work: twice the patience, until the job moves again.

    Time without a processor (``excused_s``) was no silence.
    """
    if excused_s > 0:
        return replace(watch, clock_s=watch.clock_s - excused_s)
    return replace(watch, patience=watch.patience * 2)


def silence(watch: Watch, one: Seen) -> float:
    """Observed seconds since the rank last said anything."""
    return watch.clock_s - one.since_s


def limit(watch: Watch, one: Seen, stopped: frozenset[int] = frozenset()) -> float:
    """How long the rank may be silent in what it does now."""
    span = _span(watch, one)
    learnt_s = _learnt(watch, one)
    allowed_s = span.high_s if learnt_s is None else min(max(learnt_s, span.low_s), span.high_s)
    allowed_s = min(allowed_s * watch.patience, max(span.high_s, allowed_s))
    return min(allowed_s, STOPPED_S) if one.beat.rank in stopped else allowed_s


def interval(watch: Watch) -> float:
    """Seconds until the next look: a quarter of the shortest limit, or when the silence can be too long."""
    if not any(one.beat.begun for one in watch.seen):
        return min(1.0, watch.policy.startup_s / _LOOKS)
    limits = [limit(watch, one) for one in watch.seen]
    if watch.policy.step.fixed:
        limits.append(watch.policy.step.low_s)
    elif watch.usual_s is not None:
        limits.append(max(watch.policy.step.low_s, watch.policy.factor * watch.usual_s))
    else:
        return _LEARNING_S
    usual_s = min(_SELDOM_S, max(_OFTEN_S, min(limits) / _LOOKS))
    left_s = max(limit(watch, one) - silence(watch, one) for one in watch.seen)
    return min(usual_s, left_s + _AFTER_S) if left_s > 0 else usual_s


def _is_leaving(watch: Watch, one: Seen, stopped: frozenset[int]) -> bool:
    """Whether it is done and still may take its time to end: nobody waits for its next step."""
    return one.beat.phase is WorkPhase.DONE and silence(watch, one) < limit(watch, one, stopped)


def _span(watch: Watch, one: Seen) -> Span:
    policy = watch.policy
    if not one.beat.begun:
        return Span(low_s=policy.startup_s, high_s=policy.startup_s)
    match one.beat.phase:
        case WorkPhase.SAVING:
            return policy.checkpoint
        case WorkPhase.EVALUATING | WorkPhase.UNKNOWN | WorkPhase.DONE:
            return policy.evaluation
        case _ if not one.beat.stepped or (watch.usual_s is None and not policy.step.fixed):
            return Span(low_s=policy.compile_s, high_s=policy.compile_s)
        case _:
            return policy.step


def _learnt(watch: Watch, one: Seen) -> float | None:
    """The multiple of what is usual; None while nothing is."""
    match one.beat.phase:
        case WorkPhase.SAVING:
            known = watch.saves
        case WorkPhase.EVALUATING | WorkPhase.UNKNOWN:
            known = watch.evaluations
        case WorkPhase.DONE:
            return None
        case _:
            usual_s = watch.usual_s
            if usual_s is None:
                return None
            return max(watch.policy.factor * usual_s, _LONGEST_FACTOR * max(watch.paces))
    return watch.policy.factor * max(known) if known else None


def _least_far(front: list[Seen]) -> list[Seen]:
    ways = [_WAY.get(one.beat.phase, 0) for one in front]
    least = min(ways, default=0)
    return [one for one, way in zip(front, ways, strict=True) if way == least]


def _seen(before: Seen | None, beat: Beat, spoke_s: float) -> Seen:
    """``spoke_s`` is when it spoke, in observed seconds; not before the last look."""
    if before is None:
        return Seen(beat=beat, since_s=spoke_s, phase_since_s=spoke_s)
    if before.beat == beat:
        return before
    phase_since_s = before.phase_since_s if before.beat.phase is beat.phase else spoke_s
    return Seen(beat=beat, since_s=spoke_s, phase_since_s=phase_since_s)


def _left(
    known: tuple[float, ...], before: dict[int, Seen], seen: tuple[Seen, ...], phase: WorkPhase
) -> tuple[float, ...]:
    """``known`` and how long those were in ``phase`` who have left it now."""
    took = [
        one.phase_since_s - before[one.beat.rank].phase_since_s
        for one in seen
        if one.beat.rank in before
        and before[one.beat.rank].beat.phase is phase
        and one.beat.phase is not phase
    ]
    return (*known, *took)[-_KEPT:] if took else known


def _paced(watch: Watch) -> Watch:
    """Learn from what the slowest has finished; the first step teaches nothing, for it compiles."""
    stepped = [one.beat for one in watch.seen if one.beat.begun]
    if not stepped or not all(beat.stepped for beat in stepped):
        return watch
    slowest = min(beat.step for beat in stepped)
    if watch.front is None or slowest < watch.front[0]:
        return replace(watch, front=(slowest, watch.stepping_s))
    steps = slowest - watch.front[0]
    if steps == 0:
        return watch
    pace_s = (watch.stepping_s - watch.front[1]) / steps
    paces = (*watch.paces, pace_s)[-_KEPT:]
    return replace(watch, front=(slowest, watch.stepping_s), paces=paces, patience=1.0)
