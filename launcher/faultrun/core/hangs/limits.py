"""How long a rank may be silent: until that is unusual, and until something is done about it.

Pure: the values that ``detector`` keeps, and the limits that follow from them. What is unusual is learnt from
what the ranks took before. What is acted on are the user's limits or, where none was given, minutes: a look
from outside cannot tell waiting from hanging, and a rank that works must not be killed.
"""

from dataclasses import dataclass, replace

from faultrun.model.observed.hang import Activity, HangPolicy, HangWarned, PauseHistory, Span
from faultrun.model.observed.progress import WorkPhase

AUTO_S = 300.0
"""Without a limit by the user no rank is replaced sooner."""

LONGEST_FACTOR = 10.0
"""Nor before so many times the longest pause that the run has come through."""

OUTSIDE = frozenset({WorkPhase.SAVING, WorkPhase.EVALUATING, WorkPhase.UNKNOWN, WorkPhase.DONE})
"""What a rank does outside of the training loop."""

DEFAULT = HangPolicy()
_ENOUGH = 3
_OF_LATE_FACTOR, _AGAIN_FACTOR = 3.0, 2.0


STOPPED_S = 10.0
"""A stopped process (state T) does nothing slowly: it is looked into then, whatever it does."""

LOGGED = Span(low_s=20.0, high_s=86_400.0)
"""Between these bounds a silence of a log that tells steps is unusual."""

LOGGED_PAUSE_S = 5.0
"""By its log the longest pause is learnt from here on: three times as much is within the bounds anyway."""

REPEAT_S = 60.0
"""A warning is repeated after this, and then each time that the silence has doubled."""

_SOONEST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """What came of the looks at the present silence. All times are lengths of the silence.

    A look that finds a rank at work says nothing, any other warns; neither kills a rank. ``warned_of`` is
    the rank that was warned of, None before a warning. The last look was at ``looked_s`` (0: none yet), the
    next is at ``again_s``, or at ``halted_s`` if the process is stopped by then. It was ``woken`` that often.
    """

    warned_of: int | None = None
    looked_s: float = 0.0
    again_s: float = 0.0
    halted_s: float = STOPPED_S
    woken: int = 0

    def due_s(self, *, unusual_s: float, acts_s: float, final_s: float) -> float:
        """The length of the silence at the next look.

        At ``acts_s`` something is done about it, unless a rank works, for which
        there is no more excuse from ``final_s`` on.
        """
        if self.looked_s <= 0:
            return min(unusual_s, acts_s)
        ahead = (at_s for at_s in (acts_s, final_s) if at_s > self.looked_s)
        return min(max(self.again_s, unusual_s), *ahead, float("inf"))

    def dismissed(self, silent_s: float) -> "Looks":
        """A rank was found at work: the next look is when the silence has doubled."""
        halted_s = max(self.halted_s, silent_s + _SOONEST_S)
        return replace(self, looked_s=silent_s, again_s=2 * silent_s, halted_s=halted_s)

    def warned(self, event: HangWarned) -> "Looks":
        """A warning was given; the next comes later, and each after that later still.

        A rank that was stopped has been woken: soon it is seen whether it was stopped again, or goes on.
        """
        silent_s, woken = event.silent_s, event.stance is Activity.STOPPED
        soon_s = min(STOPPED_S, max(_SOONEST_S, silent_s))
        return Looks(
            warned_of=event.rank,
            looked_s=silent_s,
            again_s=silent_s + STOPPED_S if woken else max(REPEAT_S, 2 * silent_s),
            halted_s=silent_s + (soon_s if woken else STOPPED_S),
            woken=self.woken + woken,
        )


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
class Sign:
    """What one rank and its children have done since their start: log, processor time, I/O."""

    rank: int
    log_bytes: int
    cpu_s: float
    io_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """A sign, and when on the observer's clock the log last grew, and the rank last worked."""

    sign: Sign
    log_s: float
    work_s: float

    @property
    def since_s(self) -> float:
        """When it last gave any sign of life."""
        return max(self.log_s, self.work_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A silence after which the rank went on; ``warned``: of this one a warning was given."""

    rank: int
    paused_s: float
    warned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What has been observed of one incarnation. ``clock_s`` counts observed seconds only.

    By the SDK's words the ranks are ``seen``, by logs and consumption they are ``quiet``.
    ``stepping_s`` counts those of them in which every rank was in its training
    loop; ``front`` is the step that all have finished, and when by that clock.
    ``over`` is a pause worth telling that ended at the last look. ``forgiven_s``
    is the longest in the loop that was warned of in vain: it is usual by now. ``by_log``: steps are read in
    logs, which do not say whether a rank saves or evaluates: any pause that there was may come again.
    """

    policy: HangPolicy
    at_s: float
    clock_s: float = 0.0
    stepping_s: float = 0.0
    seen: tuple[Seen, ...] = ()
    quiet: tuple[Quiet, ...] = ()
    front: tuple[int, float] | None = None
    paces: tuple[float, ...] = ()
    saves: tuple[float, ...] = ()
    evaluations: tuple[float, ...] = ()
    looks: Looks = Looks()
    run: PauseHistory = PauseHistory()
    over: Pause | None = None
    forgiven_s: float = 0.0
    by_log: bool = False

    @property
    def usual_s(self) -> float | None:
        """How long a step usually takes; None while that is not known."""
        return _median(self.paces) if len(self.paces) >= _ENOUGH else None


def _median(values: tuple[float, ...]) -> float:
    """What ``statistics`` says, which would bring decimal numbers and fractions into PID 1."""
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[~middle]) / 2


def silence(watch: Watch, one: Seen) -> float:
    """Observed seconds since the rank last said anything."""
    return watch.clock_s - one.since_s


def limit(watch: Watch, one: Seen, stopped: frozenset[int] = frozenset()) -> float:
    """How long the rank may be silent until it is looked into, for the first time or again."""
    due_s = watch.looks.due_s(
        unusual_s=unusual_after(watch, one), acts_s=acts_after(watch, one), final_s=final_after(watch, one)
    )
    return min(due_s, watch.looks.halted_s) if one.beat.rank in stopped else due_s


def quiet_acts_after(watch: Watch) -> float:
    """The silence of logs and consumption, in seconds, after which ranks are replaced; one limit for all."""
    if "quiet" in watch.policy.given:
        return watch.policy.quiet_s
    raised_s = _AGAIN_FACTOR * watch.run.hung_limit_s
    return max(watch.policy.quiet_s, AUTO_S, LONGEST_FACTOR * watch.run.longest_s, raised_s)


def quiet_limit(watch: Watch) -> float:
    """How many seconds logs and consumption may be silent until that is looked into; one limit for all."""
    acts_s = quiet_acts_after(watch)
    unusual_s = min(max(REPEAT_S, _AGAIN_FACTOR * watch.forgiven_s), acts_s / 2)
    return watch.looks.due_s(unusual_s=unusual_s, acts_s=acts_s, final_s=acts_s)


def unusual_after(watch: Watch, one: Seen) -> float:
    """How long a silence is usual in what the rank does now."""
    what, span = span_of(watch, one)
    if what in watch.policy.given and span.fixed:
        span = _bounds(DEFAULT, what)
    usual_s = _between(span, _learnt(watch, one))
    return max(usual_s, min(REPEAT_S, _AGAIN_FACTOR * watch.forgiven_s)) if what == "step" else usual_s


def acts_after(watch: Watch, one: Seen) -> float:
    """The silence after which the rank is replaced: the user's limit, else minutes.

    A rank that was replaced at this step, or behind it, without a proof gets
    twice the time: what takes so long at the same step again may be no hang.
    """
    what, span = span_of(watch, one)
    run, known = watch.run, what in watch.policy.given
    again = run.hung_step is not None and one.beat.step <= run.hung_step
    raised_s = _AGAIN_FACTOR * run.hung_limit_s if again else 0.0
    if known and span.fixed:
        return span.low_s
    if known:
        return min(span.high_s, max(raised_s, _between(span, _learnt(watch, one))))
    return max(AUTO_S, LONGEST_FACTOR * run.longest_s, unusual_after(watch, one), raised_s)


def final_after(watch: Watch, one: Seen) -> float:
    """The silence after which a rank that was found at work has no more excuse."""
    return max(span_of(watch, one)[1].high_s, acts_after(watch, one))


def span_of(watch: Watch, one: Seen) -> tuple[str, Span]:
    """What limits the rank now, by the name that the options use."""
    policy = watch.policy
    if not one.beat.begun:
        what = "startup"
    elif one.beat.phase is WorkPhase.SAVING:
        what = "checkpoint"
    elif one.beat.phase in OUTSIDE:
        what = "evaluation"
    elif not one.beat.stepped or (watch.usual_s is None and not policy.step.fixed):
        what = "compile"
    else:
        what = "step"
    return what, _bounds(policy, what)


def _bounds(policy: HangPolicy, what: str) -> Span:
    whole_s = {"startup": policy.startup_s, "compile": policy.compile_s}.get(what)
    if whole_s is not None:
        return Span(low_s=whole_s, high_s=whole_s)
    return {"checkpoint": policy.checkpoint, "evaluation": policy.evaluation}.get(what, policy.step)


def _between(span: Span, learnt_s: float | None) -> float:
    return span.high_s if learnt_s is None else min(max(learnt_s, span.low_s), span.high_s)


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
            if (usual_s := watch.usual_s) is None:
                return None
            longest_s = max(*watch.paces, watch.run.longest_s if watch.by_log else 0.0)
            return max(watch.policy.factor * usual_s, _OF_LATE_FACTOR * longest_s)
    return watch.policy.factor * max(known) if known else None
