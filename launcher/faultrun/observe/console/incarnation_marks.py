"""Where one life of a run ends and the next begins, as a line between the logs of both."""

from datetime import datetime

from faultrun.core.humanize import several
from faultrun.journal.lines import JournalLine, moment
from faultrun.model.events import IncarnationStarted
from faultrun.model.plan import Plan, Reason
from faultrun.observe.account.records import what_happened
from faultrun.observe.run_view import RunView


class LifeMarks:
    """Takes a journal's lines in order. ``ended``: the run is over, and what is said of that."""

    def __init__(self) -> None:
        self._view = RunView()
        self._marks: dict[int, str] = {}
        self._fault = self._ended_at = ""

    def take(self, line: JournalLine) -> None:
        """One more line."""
        self._view.take(line)
        if line.judged is not None:
            who = "" if line.judged.rank is None else f"rank {line.judged.rank} "
            self._fault = f"{who}{what_happened(line.judged)}".partition("\n")[0]
        match line.event:
            case IncarnationStarted(incarnation=life, ranks=ranks):
                words = [several(len(ranks), "worker"), *self._why(self._view.plan)]
                self._marks[life] = f"incarnation {life}, {_clock(line.at_utc)}: {', '.join(words)}"
        if self._view.ended is not None and not self._ended_at:
            self._ended_at = _clock(line.at_utc)
        elif self._view.ended is None:
            self._ended_at = ""

    def mark(self, incarnation: int) -> str:
        """What stands before the logs of a life."""
        return self._marks.get(incarnation, f"incarnation {incarnation}")

    @property
    def ended(self) -> str:
        """The run's last word; empty while it is not over."""
        if self._view.ended is None:
            return ""
        code, why = self._view.ended
        return f"ended {self._ended_at}: {why.partition(chr(10))[0]}; exit code {code}"

    def _why(self, plan: Plan | None) -> list[str]:
        if plan is None or plan.reason is Reason.FIRST:
            return []
        why = f"after {self._fault}" if plan.reason is Reason.FAULT and self._fault else "continued"
        if plan.kept:
            return [why, f"{several(len(plan.kept), 'worker')} stayed"]
        if plan.point is None:
            return [why]
        step = plan.point.global_step
        return [why, f"from {plan.point.path}" + ("" if step is None else f" (step {step})")]


def _clock(utc: str) -> str:
    """Local time, as the machine has it that reads this."""
    at: datetime | None = moment(utc)
    return utc if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
