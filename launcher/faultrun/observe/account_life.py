"""One incarnation while its lines are read: what of its running time was start, repetition, training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from faultrun.observe.account_model import Life, Spending
from faultrun.observe.account_time import Timeline

FINISHED = "finished"
"""How a life ends whose ranks all came to their end."""


def may_count_anew(line: Mapping[str, Any]) -> bool:
    """Whether the step that a log told of may be one of its epoch only, as far as one line can show."""
    return (
        line.get("epoch") not in (None, 0)
        and line.get("event") != "FirstStep"
        and line.get("in_epoch") is None
    )


@dataclass(slots=True, kw_only=True)
class OpenLife:
    """Between its plan and its end. ``high_before``: the furthest step that any life before had reached.

    ``reports``: its ranks say how far they are; otherwise their logs may, of the first step and the last.
    ``uncounted``: what its log calls the first step need not be a global one.
    """

    number: int
    begin_s: float
    resumed_from: str
    resumed_step: int | None
    high_before: int | None
    after_fault: int | None
    running_s: float | None = None
    reports: bool = False
    uncounted: bool = False
    first_step_s: float | None = None
    first: int | None = None
    newest: int | None = None
    newest_s: float = 0.0

    @property
    def start_step(self) -> int | None:
        """The step it began behind: what it resumed from, unless its first step shows that it did not."""
        begun = None if self.first is None else self.first - 1
        if self.resumed_from and self.resumed_step is None:
            return begun
        resumed = self.resumed_step or 0
        return resumed if begun is None else min(begun, resumed)

    @property
    def step_s(self) -> float | None:
        """Seconds a step, from what was reported; None while fewer than two reports are known."""
        if (
            self.first is None
            or self.newest is None
            or self.first_step_s is None
            or self.newest <= self.first
        ):
            return None
        return (self.newest_s - self.first_step_s) / (self.newest - self.first)

    def first_step(self, timeline: Timeline, at_s: float, step: int | None) -> None:
        """Every rank has done a step; what its running time was so far was start."""
        if self.first_step_s is None:
            self.first_step_s, self.first = at_s, step
            if self.running_s is not None:
                timeline.relabel(self.running_s, at_s, Spending.START, self.number)

    def stepped(self, at_s: float, step: int) -> None:
        """The furthest rank is there."""
        if self.newest is None or step > self.newest:
            self.newest, self.newest_s = step, at_s

    def settle(
        self, timeline: Timeline, now_s: float, usual_step_s: float | None, reports_steps: bool
    ) -> float:
        """Relabel its running time in ``timeline``; return the seconds that repeated lost steps."""
        if self.running_s is None:
            return 0.0
        trained_from_s = self.first_step_s
        if trained_from_s is None:
            kind = Spending.START if reports_steps else Spending.UNREPORTED
            timeline.relabel(self.running_s, now_s, kind, self.number)
            return 0.0
        repeated_s = self._repeated_s(now_s - trained_from_s, usual_step_s)
        if repeated_s <= 0:
            return 0.0
        until_s = trained_from_s + repeated_s
        return timeline.relabel(trained_from_s, until_s, Spending.RECOMPUTE, self.number)

    def close(self, now_s: float, workers: int, end: str, *, reports_steps: bool) -> Life:
        """The finished record. ``reports_steps``: ranks of this run do, so that silence means no step."""
        return Life(
            number=self.number,
            begin_s=self.begin_s,
            running_s=self.running_s,
            first_step_s=self.first_step_s,
            end_s=now_s,
            workers=workers,
            resumed_from=self.resumed_from,
            resumed_step=self.resumed_step,
            reached_step=self.newest,
            end=end,
            repeated_steps=self._repeated(end, reports_steps=reports_steps),
        )

    def _repeated(self, end: str, *, reports_steps: bool) -> int | None:
        """How many of its steps had been done before; None when its own are not known."""
        start, reached = self.start_step, self.newest
        if self.high_before is None:
            return 0 if reports_steps and (self.number == 0 or not self.uncounted) else None
        if reached is None and end == FINISHED:
            reached = self.high_before
        if reached is None:
            return 0 if reports_steps or self.running_s is None else None
        return None if start is None else max(0, min(reached, self.high_before) - start)

    def _repeated_s(self, trained_s: float, usual_step_s: float | None) -> float:
        """The time to reach again what had been reached, at this life's own speed, else at the usual one."""
        if self.high_before is None or trained_s <= 0:
            return 0.0
        start = self.start_step or 0
        lost = self.high_before - start
        if lost <= 0:
            return 0.0
        if self.newest is not None and self.newest > max(start, self.first or 0):
            return trained_s * min(1.0, lost / (self.newest - start))
        if usual_step_s is not None:
            return min(trained_s, lost * usual_step_s)
        return 0.0
