"""When is silence a hang? A pure detector over what the ranks say in the progress page, or are seen to do.

It learns how long a step usually takes and has a silence looked into at a multiple of that, for a warning.
Much later, or at a limit that the user gave, it is acted on (``limits``). Only ranks that have done the
fewest steps count: ranks that are ahead wait for them. As long as one of them is within its limits nothing is
suspected, because the others may be waiting for that one; unless the kernel says that one is stopped (state
T), which is no way of being slow.

Without the SDK (``observe_logs``, ``suspect_quiet``) silence is a log that does not grow, together with no
processor time and no I/O. One rank that shows all three signs for the whole time is suspected once every
rank's log has been silent for as long: ranks that wait for it may spin in a collective, and burn processor
time. One whose process is stopped is suspected whatever the others print.

Time is the observer's own: when the observer itself was frozen (SIGSTOP, a
suspended laptop, a starved machine), the gap between two looks is not silence.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from faultrun.core.hangs.limits import (
    AUTO_S,
    DEFAULT,
    LOGGED_PAUSE_S,
    LONGEST_FACTOR,
    OUTSIDE,
    Beat,
    Looks,
    Pause,
    Quiet,
    Seen,
    Sign,
    Watch,
    acts_after,
    final_after,
    limit,
    quiet_acts_after,
    quiet_limit,
    silence,
    span_of,
    unusual_after,
)
from faultrun.model.observed.hang import HangWarned, Suspicion
from faultrun.model.observed.progress import WorkPhase

_LOOKS = 4
_AFTER_S = 0.005
_OFTEN_S, _LEARNING_S, _SELDOM_S, _RANK_S = 0.1, 0.1, 5.0, 0.03
_KEPT = 20
_WORTH_KEEPING_S = AUTO_S / LONGEST_FACTOR
"""A shorter pause raises no limit."""
_BUSY_SHARE = 0.02
_BUSY_IO_BYTES = 4096

_WAY = {WorkPhase.COLLECTIVE: 1, WorkPhase.UPDATING: 2}
"""How far within a step; whatever else a rank does, it has still to come to the collective."""


def observe(watch: Watch, beats: Iterable[Beat], now_s: float, interval_s: float) -> Watch:
    """Return the watch after one look at ``now_s``; looks are meant to be ``interval_s`` apart."""
    passed_s = _passed(watch, now_s, interval_s)
    clock_s = watch.clock_s + passed_s
    known = {one.beat.rank: one for one in watch.seen}
    seen = tuple(
        _seen(known.get(beat.rank), beat, clock_s - min(passed_s, max(0.0, now_s - beat.spoke_at_s)))
        for beat in beats
    )
    stepping = all(one.beat.phase not in OUTSIDE for one in seen if one.beat.begun)
    watch = replace(
        watch,
        at_s=now_s,
        clock_s=clock_s,
        stepping_s=watch.stepping_s + (passed_s if stepping else 0.0),
        saves=_left(watch.saves, known, seen, WorkPhase.SAVING),
        evaluations=_left(watch.evaluations, known, seen, WorkPhase.EVALUATING),
        seen=seen,
    )
    return _paced(_gone_on(watch, known))


def observe_logs(watch: Watch, signs: Iterable[Sign], now_s: float, interval_s: float) -> Watch:
    """Return the watch after one look at ``signs``: logs that grow, processor time and I/O of each rank."""
    passed_s, before_s = _passed(watch, now_s, interval_s), _spell(watch)
    clock_s = watch.clock_s + passed_s
    known = {one.sign.rank: one for one in watch.quiet}
    quiet = tuple(_quiet(known.get(sign.rank), sign, clock_s, passed_s) for sign in signs)
    watch = replace(watch, at_s=now_s, clock_s=clock_s, quiet=quiet, over=None)
    if _spell(watch) >= before_s:
        return watch
    paused_s = round(before_s, 3)
    if watch.looks.warned_of is not None:  # shorter: the warning was for what another way saw
        return watch if paused_s < watch.looks.looked_s else _ended(watch, paused_s)
    watch = replace(watch, looks=Looks())
    if paused_s <= max(_WORTH_KEEPING_S, watch.run.longest_s):
        return watch
    lively = max(quiet, key=lambda one: one.since_s)
    return _told(watch, Pause(rank=lively.sign.rank, paused_s=paused_s, warned=False))


def suspect(watch: Watch, stopped: frozenset[int] = frozenset(), *, share: float = 1.0) -> Suspicion | None:
    """Whom to look into now, if the job stands still. ``stopped`` are ranks whose process is in state T.

    With a ``share`` below 1 already after that part of the time until the look.
    """
    done = {one for one in watch.seen if one.beat.phase is WorkPhase.DONE}  # they may take their time to end
    begun = [one for one in watch.seen if one.beat.begun]
    begun = [one for one in begun if one not in done or silence(watch, one) >= limit(watch, one, stopped)]
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
    learnt = last.beat.stepped and last.beat.phase not in OUTSIDE
    acts_s, unusual_s = acts_after(watch, last), unusual_after(watch, last)
    over = [silence(watch, one) >= acts_after(watch, one) for one in behind]
    acts = all(over)  # those of the front that are not behind wait for these, however short that is
    if any(over) and not acts:
        return None  # a look now would be the last: nothing is due behind the limit
    return Suspicion(
        front=tuple(one.beat.rank for one in (*mute, *front)),
        behind=tuple(one.beat.rank for one in behind),
        silent_s=round(silence(watch, last), 3),
        limit_s=round(acts_s if acts else limit(watch, last, stopped), 3),
        usual_s=round(watch.usual_s, 6)
        if learnt and not _given(watch, last) and watch.usual_s is not None
        else None,
        needed_s=round(acts_s if acts else min(unusual_s, acts_s), 3),
        final=all(silence(watch, one) >= final_after(watch, one) for one in behind),
        acts=acts,
        acts_s=round(acts_s, 3),
        woken=watch.looks.woken,
    )


def suspect_logged(
    watch: Watch, ranks: frozenset[int], stopped: frozenset[int] = frozenset()
) -> Suspicion | None:
    """Suspect ranks by the steps in their logs; a rank of ``ranks`` whose log tells none may be who hangs."""
    if (found := suspect(watch, stopped)) is None:
        return None
    mute = tuple(sorted(ranks - {one.beat.rank for one in watch.seen}))
    behind, front = (*found.behind, *mute), (*found.front, *mute)
    return replace(found, front=front, behind=behind, final=False, acts=False, acts_s=0.0, by_log=True)


def suspect_quiet(
    watch: Watch, stopped: frozenset[int] = frozenset(), *, share: float = 1.0
) -> Suspicion | None:
    """Who shows no sign of life: who is ``stopped`` (state T), else all, once no rank logs anything."""
    limit_s, acts_s = share * quiet_limit(watch), quiet_acts_after(watch)
    mute = [one for one in watch.quiet if watch.clock_s - one.log_s >= limit_s]
    idle = [one for one in mute if watch.clock_s - one.work_s >= limit_s]
    halted = [one for one in idle if one.sign.rank in stopped]
    idle = halted or idle
    if not idle or (len(mute) < len(watch.quiet) and not halted):
        return None
    ranks = tuple(one.sign.rank for one in idle)
    silent_s = min(watch.clock_s - one.since_s for one in idle)
    acts = silent_s >= acts_s
    return Suspicion(
        front=ranks,
        behind=ranks,
        silent_s=silent_s,
        limit_s=acts_s if acts else limit_s,
        final=acts,
        acts=acts,
        acts_s=acts_s,
        woken=watch.looks.woken,
    )


def dismissed(watch: Watch, suspicion: Suspicion, excused_s: float = 0.0) -> Watch:
    """A rank was found at work: twice the patience, until the job moves again.

    Time without a processor (``excused_s``) was no silence.
    """
    if excused_s > 0:
        return replace(watch, clock_s=watch.clock_s - excused_s)
    return replace(watch, looks=watch.looks.dismissed(suspicion.silent_s))


def warned(watch: Watch, event: HangWarned) -> Watch:
    """A warning was given of this silence, and a rank that was stopped has been woken."""
    return replace(watch, looks=watch.looks.warned(event))


def told_once(watches: Sequence[Watch]) -> tuple[Pause | None, list[Watch]]:
    """Which pause to tell of, where several ways of seeing saw one end; the watches go on behind it.

    It is the longest that was seen. Once a warning is taken back, no other way takes it back again later.
    """
    if any(watch.over is not None and watch.over.warned for watch in watches):
        watches = [_ended(watch, _spell(watch)) for watch in watches]
    ended = [watch.over for watch in watches if watch.over is not None]
    over = max(ended, key=lambda one: (one.warned, one.paused_s), default=None)
    return over, [replace(watch, over=None) for watch in watches]


def interval(watch: Watch) -> float:
    """Seconds until the next look: a quarter of the shortest limit, or when the silence can be too long."""
    if not any(one.beat.begun for one in watch.seen):
        return min(max(1.0, min(_SELDOM_S, _RANK_S * len(watch.seen))), watch.policy.startup_s / _LOOKS)
    if watch.usual_s is None:
        return _LEARNING_S
    limits = [limit(watch, one) for one in watch.seen]
    low_s = min(watch.policy.step.low_s, DEFAULT.step.low_s)
    limits.append(max(low_s, watch.policy.factor * watch.usual_s))
    usual_s = min(_SELDOM_S, max(_OFTEN_S, min(limits) / _LOOKS))
    left_s = max(limit(watch, one) - silence(watch, one) for one in watch.seen)
    return min(usual_s, left_s + _AFTER_S) if left_s > 0 else usual_s


def _passed(watch: Watch, now_s: float, interval_s: float) -> float:
    """Observed seconds since the last look, without those in which the observer itself was frozen."""
    return max(0.0, min(now_s - watch.at_s, 2 * interval_s))


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


def _gone_on(watch: Watch, known: dict[int, Seen]) -> Watch:
    """Whether a pause ended at this look that was warned of, or that raises a limit."""
    spoke = [one for one in watch.seen if one.beat.rank in known and known[one.beat.rank].beat != one.beat]
    pauses = {one.beat.rank: round(one.since_s - known[one.beat.rank].since_s, 3) for one in spoke}
    if (warned_of := watch.looks.warned_of) is not None and warned_of in pauses:
        beat = known[warned_of].beat
        over = Pause(rank=warned_of, paused_s=pauses[warned_of], warned=True)
        watch = replace(watch, looks=Looks())
        return _told(watch, over, trained=_trains(beat), in_loop=beat.phase not in OUTSIDE)
    # What a rank did before its first step, or at its end, is no measure of a pause in training.
    trained = {rank: s for rank, s in pauses.items() if _trains(known[rank].beat)}
    rank = max(trained, key=lambda one: trained[one], default=-1)
    kept_s = LOGGED_PAUSE_S if watch.by_log else _WORTH_KEEPING_S
    if trained.get(rank, 0.0) <= max(kept_s, watch.run.longest_s):
        return replace(watch, over=None)
    return _told(watch, Pause(rank=rank, paused_s=trained[rank], warned=False))


def _told(watch: Watch, over: Pause, *, trained: bool = True, in_loop: bool = True) -> Watch:
    """The pause is worth a line. It raises what is acted on if the rank had ``trained`` before it.

    One ``in_loop`` that was warned of in vain is usual from now on.
    """
    longest_s = max(watch.run.longest_s, over.paused_s if trained else 0.0)
    forgiven_s = max(watch.forgiven_s, over.paused_s if over.warned and in_loop else 0.0)
    return replace(watch, over=over, forgiven_s=forgiven_s, run=replace(watch.run, longest_s=longest_s))


def _ended(watch: Watch, paused_s: float) -> Watch:
    """A warning is taken back: it was a pause, of so long by logs and consumption."""
    rank, watch = watch.looks.warned_of, replace(watch, looks=Looks())
    if rank is None or not watch.quiet:
        return watch
    return _told(watch, Pause(rank=rank, paused_s=round(paused_s, 3), warned=True))


def _spell(watch: Watch) -> float:
    """How long there has been no sign of life: from who was warned of, else from the most idle rank."""
    warned = next((one for one in watch.quiet if one.sign.rank == watch.looks.warned_of), None)
    if warned is not None:
        return watch.clock_s - warned.since_s
    log_s = min((watch.clock_s - one.log_s for one in watch.quiet), default=0.0)
    return min(log_s, max((watch.clock_s - one.work_s for one in watch.quiet), default=0.0))


def _quiet(before: Quiet | None, sign: Sign, clock_s: float, passed_s: float) -> Quiet:
    if before is None:
        return Quiet(sign=sign, log_s=clock_s, work_s=clock_s)
    old = before.sign
    works = sign.cpu_s - old.cpu_s > _BUSY_SHARE * passed_s or sign.io_bytes - old.io_bytes > _BUSY_IO_BYTES
    log_s = clock_s if sign.log_bytes != old.log_bytes else before.log_s
    return Quiet(sign=sign, log_s=log_s, work_s=clock_s if works else before.work_s)


def _trains(beat: Beat) -> bool:
    return beat.stepped and beat.phase is not WorkPhase.DONE


def _given(watch: Watch, one: Seen) -> bool:
    what, span = span_of(watch, one)
    return what in watch.policy.given and span.fixed and silence(watch, one) >= span.low_s


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
    paces = (*watch.paces, (watch.stepping_s - watch.front[1]) / steps)[-_KEPT:]
    return replace(watch, front=(slowest, watch.stepping_s), paces=paces, looks=Looks())
