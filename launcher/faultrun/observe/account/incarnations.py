"""One life of the worker group: when it ran, how far it came, and what of it had been done before."""

from dataclasses import dataclass, replace

from faultrun.core.recovery.resume_verdict import StartPlace, done_again, place_of
from faultrun.model.events import FirstStep
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.observe.account.timeline import Spending, Timeline

STOPPED = "stopped"
"""How an incarnation ends that was told to."""

FINISHED = "finished"
"""How an incarnation ends whose ranks all came to their end."""

STILL_RUNNING = "still running"

HEALED = "a missing rank came back"
"""How an incarnation ends in which the others trained on without it."""

SUPERVISOR_LOST = "supervisor lost"
"""How it ends whose supervisor was killed, and an incident in the middle of which that happened."""


@dataclass(slots=True, kw_only=True)
class IncarnationRecord:
    """One incarnation, from its plan on. Steps are global; None where no rank reported them.

    ``high_before``: the furthest step that any incarnation before had reached. ``after_fault``: the number of
    the incident that it follows. ``first`` is the step of the furthest rank when all had done one, ``began``
    the lowest that one did first. ``reports``: its ranks say how far they are; otherwise their logs may, of
    the first step and the last. ``uncounted``: what its log calls the first step need not be a global one.
    ``stuck_s``: since when it hung, until its end. ``unread``: it was not looked how far it was by its logs
    at its end. ``blind``: that is not known of an earlier one. ``repeated_steps``: how many of its steps an
    earlier one had done, None: unknown. ``standbys``: ranks that did not start cold. ``stayed``: workers
    lived on from the incarnation before, with their state. ``left_off`` is the furthest place that logs told
    before, ``place`` where its own begins, ``last`` where it ends, ``every`` so many steps lie between two.
    """

    number: int
    begin_s: float
    resumed_from: str
    resumed_step: int | None
    high_before: int | None
    after_fault: int | None
    blind: bool = False
    running_s: float | None = None
    reports: bool = False
    uncounted: bool = False
    first_step_s: float | None = None
    first: int | None = None
    began: int | None = None
    reached_step: int | None = None
    reached_s: float = 0.0
    stuck_s: float | None = None
    end_s: float = 0.0
    end: str = ""
    workers: int = 0
    standbys: int = 0
    stayed: bool = False
    unread: bool = True
    left_off: StartPlace | None = None
    place: StartPlace | None = None
    last: StartPlace | None = None
    every: int = 1
    repeated_steps: int | None = None

    @property
    def known_end(self) -> bool:
        """Whether it came no further than ``reached_step``, but for a minute of a rank that reports."""
        return self.reports or self.running_s is None or not self.unread

    @property
    def _trained_until_s(self) -> float:
        return self.end_s if self.stuck_s is None else self.stuck_s

    def now_at(self, *, reports_steps: bool) -> int | None:
        """How far it is: before its first step none is further than where it began, if steps are known."""
        return self.start_step if self.reached_step is None and reports_steps else self.reached_step

    @property
    def start_step(self) -> int | None:
        """The step it began behind: what it resumed from, unless its first step shows that it did not."""
        begun = None if self.began is None else self.began - 1
        if self.stayed:
            return self.high_before if begun is None else begun
        if self.resumed_from and self.resumed_step is None:
            return begun
        resumed = self.resumed_step or 0
        return resumed if begun is None else min(begun, resumed)

    @property
    def step_s(self) -> float | None:
        """Seconds a step, from what was reported; None while fewer than two reports are known."""
        if self.first is None or self.reached_step is None or self.first_step_s is None:
            return None
        done = self.reached_step - self.first
        reached_s = min(self.reached_s, self._trained_until_s)
        return (reached_s - self.first_step_s) / done if done > 0 else None

    def begins(self, first: FirstStep | FirstStepLogged, timeline: Timeline, at_s: float) -> int | None:
        """Every rank has done a step; return which. What its running time was so far was start."""
        self.reports = self.reports or isinstance(first, FirstStep)
        # As far as one line can show, a log may count anew in every epoch.
        by_log = first if isinstance(first, FirstStepLogged) else None
        self.uncounted = by_log is not None and (
            by_log.step is None if by_log.epoch in (None, 0) else by_log.in_epoch is None
        )
        step = None if self.uncounted else first.step
        if self.first_step_s is None:
            self.first_step_s, self.first = at_s, step
            self.began = None if step is None else place_of(first).step
            self.place = place_of(first) if by_log is not None else None
            if self.running_s is not None:
                timeline.relabel(self.running_s, at_s, Spending.START, self.number)
        return step

    def stepped(self, at_s: float, step: int) -> None:
        """The furthest rank is there."""
        if self.reached_step is None or step > self.reached_step:
            self.reached_step, self.reached_s = step, at_s

    def settle(self, timeline: Timeline, usual_step_s: float | None, *, reports_steps: bool) -> float:
        """Relabel its running time in ``timeline``; return the seconds that repeated lost steps.

        ``reports_steps``: ranks of this run do, so that silence means no step.
        """
        self.repeated_steps = self._repeated(reports_steps=reports_steps)
        if self.running_s is None:
            return 0.0
        if self.first_step_s is None:
            kind = Spending.START if reports_steps else Spending.UNREPORTED
            timeline.relabel(self.running_s, self.end_s, kind, self.number)
            return 0.0
        # Between two lines of a log the time is nearly known.
        nearly = self.every != 1 and self.high_before is not None and self.start_step is not None
        unmeasured = self.repeated_steps and self.high_before is None
        if unmeasured or (self.repeated_steps is None and (self.blind or not nearly)):
            timeline.relabel(self.first_step_s, self.end_s, Spending.UNREPORTED, self.number)
            return 0.0
        trained_s = self._trained_until_s - self.first_step_s
        until_s = self.first_step_s + self._repeated_s(trained_s, usual_step_s)
        return timeline.relabel(self.first_step_s, until_s, Spending.RECOMPUTE, self.number)

    def in_hindsight(self) -> "IncarnationRecord":
        """Correct the record once steps of this run are known: a life that told of none has done none."""
        mute = self.first_step_s is None and self.reached_step is None and self.known_end
        return replace(self, repeated_steps=0) if mute and not self.blind else self

    def _repeated(self, *, reports_steps: bool) -> int | None:
        """How many of its steps had been done before; None when its own are not known."""
        start, reached = self.start_step, self.reached_step
        if self.running_s is None:
            return 0
        if self.blind:
            return None
        if self.number and self.every != 1 and not self.reports:
            return None
        if self.left_off is not None and self.place is not None:
            again = done_again(self.left_off, self.place, self.every)
            own = None if self.first is None or reached is None else reached - self.first + 1
            own = own if self.last is None else done_again(self.last, self.place, 1)
            return again if again is None or own is None else min(again, own)
        if self.high_before is None:
            return 0 if reports_steps and (self.number == 0 or not self.uncounted) else None
        if reached is None and self.end == FINISHED:
            reached = self.high_before
        if reached is None:
            return 0 if reports_steps else None
        return None if start is None else max(0, min(reached, self.high_before) - start)

    def _repeated_s(self, trained_s: float, usual_step_s: float | None) -> float:
        """The time to reach again what had been reached, at its own speed, else at the usual one."""
        first = (self.start_step or 0) + 1 if self.first is None else self.first  # it belongs to the start
        lost = 0 if self.high_before is None else self.high_before - first
        if lost <= 0 or trained_s <= 0:
            return 0.0
        if self.reached_step is not None and self.reached_step > first:
            return trained_s * min(1.0, lost / (self.reached_step - first))
        return 0.0 if usual_step_s is None else min(trained_s, lost * usual_step_s)
