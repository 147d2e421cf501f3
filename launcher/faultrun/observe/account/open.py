"""What is still open while lines are read: one incarnation, one incident, the dying-gasp saves."""

from dataclasses import dataclass, field
from statistics import median

from faultrun.core.diagnose import describe
from faultrun.journal.lines import JournalLine
from faultrun.model.events import (
    FirstStep,
    HelperExit,
    SpawnFailed,
    Timer,
    TimerFired,
    WorkerExit,
)
from faultrun.model.gasp import GaspFailed, GaspRequested, GaspSaved, GaspVerified
from faultrun.model.hang import HangDetected
from faultrun.model.incident import Cause, Incident
from faultrun.model.plan import Plan
from faultrun.model.recovery import FirstStepLogged
from faultrun.model.rendezvous import RankMissed
from faultrun.model.run import Phase
from faultrun.observe.account.model import IncarnationRecord, IncidentRecord, Saves, Spending
from faultrun.observe.account.timeline import Timeline

FINISHED = "finished"
"""How an incarnation ends whose ranks all came to their end."""

_LONGEST = 300
_MOST_TIMES = 10_000


@dataclass(slots=True, kw_only=True)
class OpenIncarnation:
    """From its plan on. ``high_before``: the furthest step that any incarnation before had reached.

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
    end_s: float = 0.0
    end: str = ""

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
        if self.first is None or self.newest is None or self.first_step_s is None:
            return None
        done = self.newest - self.first
        return (self.newest_s - self.first_step_s) / done if done > 0 else None

    def begins(self, first: FirstStep | FirstStepLogged, timeline: Timeline, at_s: float) -> int | None:
        """Every rank has done a step; return which. What its running time was so far was start."""
        self.reports = self.reports or isinstance(first, FirstStep)
        # As far as one line can show, a log may count anew in every epoch.
        by_log = first if isinstance(first, FirstStepLogged) else None
        self.uncounted = by_log is not None and by_log.epoch not in (None, 0) and by_log.in_epoch is None
        step = None if self.uncounted else first.step
        if self.first_step_s is None:
            self.first_step_s, self.first = at_s, step
            if self.running_s is not None:
                timeline.relabel(self.running_s, at_s, Spending.START, self.number)
        return step

    def stepped(self, at_s: float, step: int) -> None:
        """The furthest rank is there."""
        if self.newest is None or step > self.newest:
            self.newest, self.newest_s = step, at_s

    def settle(self, timeline: Timeline, usual_step_s: float | None, *, reports_steps: bool) -> float:
        """Relabel its running time in ``timeline``; return the seconds that repeated lost steps."""
        if self.running_s is None:
            return 0.0
        if self.first_step_s is None:
            kind = Spending.START if reports_steps else Spending.UNREPORTED
            timeline.relabel(self.running_s, self.end_s, kind, self.number)
            return 0.0
        repeated_s = self._repeated_s(self.end_s - self.first_step_s, usual_step_s)
        until_s = self.first_step_s + repeated_s
        return timeline.relabel(self.first_step_s, until_s, Spending.RECOMPUTE, self.number)

    def record(self, workers: int, *, reports_steps: bool) -> IncarnationRecord:
        """What is known of it. ``reports_steps``: ranks of this run do, so that silence means no step."""
        return IncarnationRecord(
            number=self.number,
            begin_s=self.begin_s,
            running_s=self.running_s,
            first_step_s=self.first_step_s,
            end_s=self.end_s,
            workers=workers,
            resumed_from=self.resumed_from,
            resumed_step=self.resumed_step,
            reached_step=self.newest,
            end=self.end,
            repeated_steps=self._repeated(reports_steps=reports_steps),
        )

    def _repeated(self, *, reports_steps: bool) -> int | None:
        """How many of its steps had been done before; None when its own are not known."""
        start, reached = self.start_step, self.newest
        if self.high_before is None:
            return 0 if reports_steps and (self.number == 0 or not self.uncounted) else None
        if reached is None and self.end == FINISHED:
            reached = self.high_before
        if reached is None:
            return 0 if reports_steps or self.running_s is None else None
        return None if start is None else max(0, min(reached, self.high_before) - start)

    def _repeated_s(self, trained_s: float, usual_step_s: float | None) -> float:
        """The time to reach again what had been reached, at its own speed, else at the usual one."""
        start = self.start_step or 0
        lost = 0 if self.high_before is None else self.high_before - start
        if lost <= 0 or trained_s <= 0:
            return 0.0
        if self.newest is not None and self.newest > max(start, self.first or 0):
            return trained_s * min(1.0, lost / (self.newest - start))
        return 0.0 if usual_step_s is None else min(trained_s, lost * usual_step_s)


@dataclass(slots=True, kw_only=True)
class OpenIncident:
    """From the line that opened it until training goes on."""

    number: int
    incarnation: int
    at_s: float
    rank: int | None
    cause: str
    what: str
    step: int | None
    saved: int = 0
    refused: int = 0
    resumed: int | None = None
    resumes: bool = False

    def judged(self, incident: Incident) -> None:
        """The final judgement, made once all workers are gone."""
        self.number, self.rank, self.cause = incident.number, incident.rank, incident.cause.value
        what = what_happened(incident)
        if incident.cause is Cause.HANG:  # its evidence is of one moment; a report counts what is alike
            what = f"hung: {what.partition(';')[0].partition(' (')[0]}"
        self.what = what[:_LONGEST]
        self.step = self.step if incident.step is None else incident.step

    def resumes_with(self, plan: Plan) -> None:
        """An incarnation shall follow."""
        self.resumed = 0 if plan.point is None else plan.point.global_step
        self.resumes = True

    def record(self, timeline: Timeline, end: str) -> IncidentRecord:
        """What is known of it; what was spent since is read off the timeline."""
        spent = timeline.within(self.at_s)
        for kind in (Spending.TRAINING, Spending.RECOMPUTE):
            spent.pop(kind, None)
        known = self.step is not None and self.resumed is not None
        return IncidentRecord(
            number=self.number,
            incarnation=self.incarnation,
            at_s=self.at_s,
            rank=self.rank,
            cause=self.cause,
            what=self.what,
            step=self.step,
            resumed_step=self.resumed,
            lost_steps=max(0, (self.step or 0) - (self.resumed or 0)) if known else None,
            recompute_s=0.0,
            spent=spent,
            saved=self.saved,
            refused=self.refused,
            end=end,
        )


def opened(line: JournalLine, number: int, at_s: float, step: int | None) -> OpenIncident:
    """The incident that ``line`` opens."""
    rank: int | None = None
    match line.event:
        case WorkerExit(rank=rank) | SpawnFailed(rank=rank) | HangDetected(rank=rank) | RankMissed(rank=rank):
            pass
    what = what_ended(line)
    life = line.incarnation
    return OpenIncident(
        number=number, incarnation=life, at_s=at_s, rank=rank, cause=line.name, what=what, step=step
    )


def what_happened(incident: Incident) -> str:
    """The judgement in words, with what the evidence at the dead worker says, if it says anything."""
    says = incident.finding.says if incident.finding is not None else ""
    if not says and incident.raised is not None:
        parts = (incident.raised.kind, incident.raised.message.partition("\n")[0])
        says = ": ".join(part for part in parts if part)
    words = incident.explanation or incident.cause.value
    return f"{words}: {says}" if says and says not in words else words


def what_ended(line: JournalLine) -> str:
    """In words what the line says of a process that ended; else its reason."""
    match line.event:
        case WorkerExit(status=status) | HelperExit(status=status):
            return describe(status)
        case _:
            return line.because[:_LONGEST]


@dataclass(slots=True)
class OpenSaves:
    """Dying-gasp saves of the whole run: asked, done, failed, cut off; and what the windows kept."""

    asked: int = 0
    failed: int = 0
    cut: int = 0
    windows: int = 0
    saved: int = 0
    kept: int = 0
    times_s: list[float] = field(default_factory=list)
    _asked_now: frozenset[int] = frozenset()
    _copies: dict[tuple[int, str], frozenset[int]] = field(default_factory=dict)

    def heard(self, line: JournalLine) -> None:
        """One line, of whatever event."""
        match line.event:
            case GaspRequested(ranks=ranks):
                self.kept += self._keeps()
                self._copies, self._asked_now = {}, frozenset(ranks)
                self.asked += len(self._asked_now)
                self.windows += 1
            case GaspSaved(rank=rank, path=path, took_s=took_s, replica_group=group):
                self.saved += 1
                if len(self.times_s) < _MOST_TIMES:
                    self.times_s.append(took_s)
                self._copies[rank, path] = frozenset(group) or self._asked_now
            case GaspVerified(rank=rank, path=path, whole=False):
                self._copies.pop((rank, path), None)
            case GaspFailed():
                self.failed += 1
            case TimerFired(timer=Timer.GRACE) if line.phase is Phase.KILLING:
                self.cut += 1

    def record(self) -> Saves:
        """What is known of them."""
        return Saves(
            asked=self.asked,
            saved=self.saved,
            failed=self.failed,
            cut=self.cut,
            windows=self.windows,
            kept=self.kept + self._keeps(),
            took_s=median(self.times_s) if self.times_s else None,
        )

    def _keeps(self) -> bool:
        """Whether the newest window left a copy of what every rank held that was asked."""
        return bool(self._copies) and frozenset().union(*self._copies.values()) >= self._asked_now
