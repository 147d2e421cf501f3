"""One incarnation while its lines are read: what of its running time was start, repetition, training."""

from dataclasses import dataclass

from faultrun.core.account_time import Timeline
from faultrun.model.account import Life, Spending


@dataclass(slots=True, kw_only=True)
class OpenLife:
    """Between its plan and its end. ``high_before``: the furthest step that any life before had reached."""

    number: int
    begin_s: float
    resumed_from: str
    resumed_step: int | None
    high_before: int | None
    after_fault: int | None
    running_s: float | None = None
    first_step_s: float | None = None
    first: int | None = None
    newest: int | None = None
    newest_s: float = 0.0

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
            reached = self.newest is not None or not reports_steps
            trained_from_s = self.running_s if reached else now_s
            timeline.relabel(self.running_s, trained_from_s, Spending.START, self.number)
        repeated_s = self._repeated_s(now_s - trained_from_s, usual_step_s)
        if repeated_s <= 0:
            return 0.0
        until_s = trained_from_s + repeated_s
        return timeline.relabel(trained_from_s, until_s, Spending.RECOMPUTE, self.number)

    def close(self, now_s: float, workers: int, end: str) -> Life:
        """The finished record."""
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
        )

    def _repeated_s(self, trained_s: float, usual_step_s: float | None) -> float:
        """The time to reach again what had been reached, at this life's own speed, else at the usual one."""
        if self.high_before is None or trained_s <= 0:
            return 0.0
        start = self.resumed_step if self.resumed_step is not None else 0
        lost = self.high_before - start
        if lost <= 0:
            return 0.0
        if self.newest is not None and self.newest > start:
            return trained_s * min(1.0, lost / (self.newest - start))
        if usual_step_s is not None:
            return min(trained_s, lost * usual_step_s)
        return 0.0
