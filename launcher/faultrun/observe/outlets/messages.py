"""What the world is told of a run: warnings, incidents, restarts and its end, from journal lines."""

from collections.abc import Iterator
from typing import Any

from faultrun.core.humanize import rank_names, span
from faultrun.journal.lines import JournalLine
from faultrun.model.events import Drained, FirstStep, IncarnationStarted, RunFinished
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.hang import HangWarned, PauseOver
from faultrun.model.observed.recovery import Began, RecoveryTimed, ResumeChecked
from faultrun.model.plan import Reason
from faultrun.observe.account.records import what_happened
from faultrun.observe.card.card import how_and_where
from faultrun.observe.run_view import RunView

_LONGEST = 2000


class Announcer:
    """Takes a journal's lines in order; says each thing once.

    ``kind`` is ``hang-warning``, ``hang-over``, ``incident``, ``restart``, ``healed``, ``give-up`` or
    ``finished``; ``text`` is a sentence for people, under the name that chat systems look for.
    """

    def __init__(self, run_id: str, log_dir: str) -> None:
        self._about = {"run_id": run_id, "log_dir": log_dir}
        self._view = RunView()
        self._told = 0
        self._judged: Cause | None = None
        self._untold: JournalLine | None = None
        self._checked: ResumeChecked | None = None

    def take(self, line: JournalLine) -> Iterator[dict[str, Any]]:
        """What is to be told after ``line``; usually nothing."""
        if isinstance(line.event, (RunFinished, Drained)):
            yield from self._restarted(None)
        self._view.take(line)
        if line.judged is not None and line.judged.number > self._told:
            yield self._incident(line, line.judged)
        match line.event:
            case IncarnationStarted(incarnation=number) if number > 0 and not self._heals:
                self._untold = line
                if self._view.plan is not None and self._view.plan.reason is Reason.CONTINUED:
                    yield from self._restarted(None)
            case ResumeChecked():
                self._checked = line.event
            case RecoveryTimed():
                yield from self._restarted(line.event)
            case HangWarned():
                yield self._warned(line, line.event)
            case PauseOver(rank=rank, paused_s=paused_s, warned=True):
                yield self._say("hang-over", line, line.why, rank=rank, paused_s=paused_s)
            case FirstStep() if self._heals:
                yield from self._healed(line)
            case RunFinished(exit_code=code):
                yield self._ended(line, code)

    @property
    def _heals(self) -> bool:
        """Whether a rank that was missing comes back: nothing is started again."""
        return self._view.plan is not None and self._view.plan.heals

    def _healed(self, line: JournalLine) -> Iterator[dict[str, Any]]:
        plan = self._view.plan
        back = [] if plan is None else sorted(plan.newcomers)
        if back and plan is not None:
            left = len(plan.topology.all_ranks) - len(plan.missing)
            text = f"{rank_names(back)} came back while the others trained; {left} train"
            yield self._say("healed", line, text, ranks=back, missing=sorted(plan.missing))

    def _warned(self, line: JournalLine, event: HangWarned) -> dict[str, Any]:
        why, where = line.because[:_LONGEST], "" if event.step is None else f" after step {event.step}"
        return self._say(
            "hang-warning",
            line,
            f"rank {event.rank} may hang{where}: {why}",
            rank=event.rank,
            step=event.step,
            explanation=why,
            silent_s=event.silent_s,
            stacks=event.folder,
        )

    def _incident(self, line: JournalLine, incident: Incident) -> dict[str, Any]:
        self._told = number = incident.number
        self._judged = incident.cause
        what = what_happened(incident)[:_LONGEST]
        who = "" if incident.rank is None else f" rank {incident.rank}:"
        how = how_and_where(incident)
        known = how.startswith(incident.explanation)
        more = what.removeprefix(incident.explanation).removeprefix(": ") if known else what
        return self._say(
            "incident",
            line,
            f"incident {number}:{who} {how}{f': {more}' if more else ''}",
            number=number,
            rank=incident.rank,
            step=incident.step,
            own_step=incident.own_step,
            cause=incident.cause.value,
            fault_class=incident.fault_class.value,
            explanation=what,
            card=f"incident_{number}.txt",
        )

    def _restarted(self, timed: RecoveryTimed | None) -> Iterator[dict[str, Any]]:
        """Once a recovery is timed, with its one number; without, at the end of a life that was not timed."""
        line, self._untold = self._untold, None
        plan = self._view.plan
        if line is None or plan is None:
            return
        path, step = ("", None) if plan.point is None else (plan.point.path, plan.point.global_step)
        stayed = f" in the memory of {rank_names(sorted(plan.kept))}, which stayed"
        source = f" from {path}" if path else stayed if plan.kept else " from the beginning"
        source += "" if step is None else f" (step {step})"
        checked = self._checked
        if checked is not None and checked.incarnation != line.incarnation:
            checked = None
        if checked is not None and checked.began is Began.ELSEWHERE:
            source = f": {checked.why}"
        took, trains = "", timed is not None and timed.first_step_s is not None
        if timed is not None:
            word = "training" if trains else "workers running"
            since = "they were told to save" if self._judged is Cause.GROWTH else "the fault"
            took = f", {word} again {span(timed.total_s)} after {since}"
        yield self._say(
            "restart",
            line,
            f"incarnation {line.incarnation} runs{source}{took}",
            reason=plan.reason.value,
            resumed_from=path,
            resumed_step=step,
            began=checked.began.value if checked is not None else None,
            began_step=checked.step if checked is not None else None,
            after_s=timed.total_s if timed is not None and trains else None,
            running_after_s=timed.total_s if timed is not None and not trains else None,
        )

    def _ended(self, line: JournalLine, code: int) -> dict[str, Any]:
        why, stopped = line.because[:_LONGEST], self._view.stopping
        kind = "finished" if code == 0 or stopped else "give-up"
        word = "stopped" if stopped else "finished" if code == 0 else "gave up"
        text = f"{word}: {why}; exit code {code}"
        return self._say(kind, line, text, exit_code=code, why=why, stopped=stopped)

    def _say(self, kind: str, line: JournalLine, text: str, **more: Any) -> dict[str, Any]:
        about = {"kind": kind, **self._about, "at_utc": line.at_utc, "incarnation": line.incarnation}
        return {**about, "text": f"faultrun {self._about['run_id']}: {text}", **more}
