"""One incident while its lines are read: who, why, and what was lost."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from faultrun.core.diagnose import describe
from faultrun.model.events import Exited, Signaled, Status, ended_well
from faultrun.model.incident import Cause
from faultrun.observe.account_model import Fault, Spending
from faultrun.observe.account_time import Timeline

_LONGEST = 300


class OpenFault:
    """From the line that opened an incident until training goes on."""

    def __init__(self, line: Mapping[str, Any], at_s: float, number: int, step: int | None) -> None:
        self.number = number
        self.saved = 0
        self.refused = 0
        self._at_s = at_s
        self._incarnation = number_of(line.get("incarnation"))
        self._rank = number_of(line.get("rank"))
        self._cause = str(line.get("event", ""))
        self._what = what_ended(line)
        self._step = step
        self._resumed: int | None = None
        self._resumes = False

    def judged(self, incident: Mapping[str, Any]) -> None:
        """The final judgement, made once all workers are gone."""
        self.number = number_of(incident.get("number")) or self.number
        self._rank = number_of(incident.get("rank"))
        self._cause = str(incident.get("cause") or self._cause)
        what = what_happened(incident)
        if self._cause == Cause.HANG.value:  # its evidence is of one moment; a report counts what is alike
            what = f"hung: {what.partition(';')[0].partition(' (')[0]}"
        self._what = (what or self._what)[:_LONGEST]
        step = number_of(incident.get("step"))
        self._step = self._step if step is None else step

    def resumes(self, step: int | None, path: str) -> None:
        """A plan was made: from ``step``, or from nothing when there is no ``path``."""
        self._resumed = 0 if not path else step
        self._resumes = True

    def close(self, timeline: Timeline, end: str) -> Fault:
        """The finished record; what was spent since is read off the timeline."""
        spent: dict[Spending, float] = {
            kind: seconds
            for kind, seconds in timeline.within(self._at_s).items()
            if kind not in (Spending.TRAINING, Spending.RECOMPUTE)
        }
        lost = None
        if self._resumes and self._step is not None and self._resumed is not None:
            lost = max(0, self._step - self._resumed)
        return Fault(
            number=self.number,
            incarnation=-1 if self._incarnation is None else self._incarnation,
            at_s=self._at_s,
            rank=self._rank,
            cause=self._cause,
            what=self._what,
            step=self._step,
            resumed_step=self._resumed if self._resumes else None,
            lost_steps=lost,
            recompute_s=0.0,
            spent=spent,
            saved=self.saved,
            refused=self.refused,
            end=end,
        )


def went_on(fault: Fault, recompute_s: float, start_step: int | None) -> Fault:
    """``fault`` once it is known where the next life really began, and what of it was repetition."""
    if start_step is None or fault.resumed_step is None or start_step >= fault.resumed_step:
        return replace(fault, recompute_s=recompute_s)
    lost = None if fault.step is None else max(0, fault.step - start_step)
    return replace(fault, recompute_s=recompute_s, resumed_step=start_step, lost_steps=lost)


def timed(fault: Fault, parts: Mapping[str, float], total_s: object) -> Fault:
    """``fault`` with what was measured of its recovery; the total counts where it ends with a step."""
    whole = isinstance(total_s, (int, float)) and "first_step_s" in parts
    return replace(fault, timeline=parts, timed_s=float(str(total_s)) if whole else fault.timed_s)


def what_happened(incident: Mapping[str, Any]) -> str:
    """The judgement in words, with what the evidence at the dead worker says, if it says anything."""
    finding, raised = incident.get("finding"), incident.get("raised")
    says = str(finding.get("says") or "") if isinstance(finding, dict) else ""
    if not says and isinstance(raised, dict):
        parts = (str(raised.get("kind") or ""), str(raised.get("message") or "").partition("\n")[0])
        says = ": ".join(part for part in parts if part)
    words = str(incident.get("explanation") or incident.get("cause") or "")
    return f"{words}: {says}" if says and says not in words else words


def what_ended(line: Mapping[str, Any]) -> str:
    """In words what the line says of a process that ended; else the decision's reason."""
    status = _status(line)
    if status is not None:
        return describe(status)
    return str(line.get("because") or line.get("why") or "")[:_LONGEST]


def left_well(line: Mapping[str, Any]) -> bool:
    """Whether the line is a worker's end, and no failure."""
    status = _status(line)
    if line.get("event") != "WorkerExit" or status is None:
        return False
    return ended_well(status, done=line.get("done") is True)


def _status(line: Mapping[str, Any]) -> Status | None:
    status = line.get("status")
    if not isinstance(status, dict):
        return None
    code, signum = number_of(status.get("code")), number_of(status.get("signum"))
    if signum is not None:
        return Signaled(signum=signum)
    return Exited(code=code) if code is not None else None


def number_of(value: object) -> int | None:
    """A whole number of a journal line; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def list_of(line: Mapping[str, Any], name: str) -> list[Any]:
    """The list of that name in a journal line; empty for anything else."""
    found = line.get(name)
    return found if isinstance(found, list) else []
