"""A run as its journal tells it so far: the phase, the plan, the workers, what is feared and how it ended."""

from dataclasses import dataclass
from pathlib import Path

from faultrun.core.plan.restart_budget import restarts_left
from faultrun.journal.lines import JournalLine
from faultrun.model.events import (
    FirstStep,
    IncarnationStarted,
    PlanAdopted,
    RunFinished,
    RunStarted,
    SpawnFailed,
    WorkerExit,
    WorkerStarted,
)
from faultrun.model.observed.agreement import IncarnationOver, PlanElsewhere
from faultrun.model.observed.dying_gasp import GaspRequested
from faultrun.model.observed.hang import HangDetected, HangDismissed, HangSuspected, HangWarned, PauseOver
from faultrun.model.observed.rejoin import RankCannotRejoin, RankCanRejoin
from faultrun.model.observed.saves import FirstSaveTold
from faultrun.model.plan import Ledger, Plan
from faultrun.model.run import Phase
from faultrun.model.spec.output import Logs
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.stop import StopRequested, StopSource
from faultrun.model.wire import Progress
from faultrun.observe.missing_ranks import MissingRanks
from faultrun.observe.standby_words import StandbyTally
from faultrun.workers.logs.last_steps import LastSteps, last_steps, progress_of
from faultrun.workers.logs.log_files import LogFiles, files_of

_ENDING = frozenset({Phase.REPLACING, Phase.DRAINING, Phase.KILLING, Phase.SWEEPING, Phase.SURVEYING})


@dataclass(slots=True)
class WorkerView:
    """One rank of the present incarnation. ``asked``: it was to save and leave, and did not fail before."""

    pid: int | None = None
    end: JournalLine | None = None
    asked: bool = False
    hung: bool = False


class RunView:
    """Takes a journal's lines in their order, from the first or from an adopted plan on.

    ``phase_why`` is what began the phase: later lines of it, such as "rank 0 heard it", explain nothing.
    ``suspected`` is the newest word on a hang that is neither taken back nor acted on, ``warned`` the rank
    that was warned of. ``first_save``: what would be handed over, in words. ``up`` are the ranks that this
    supervisor started and that did not end. Without ``missing`` ranks the others train on. ``can_stay`` are
    those that could outlive another's fault, ``cannot_stay`` says why one cannot. Of ``standbys`` the journal
    does not say how many there shall be: ``wanted`` is for who has the options.
    """

    def __init__(self) -> None:
        self.last: JournalLine | None = None
        self.phase: Phase | None = None
        self.phase_why = ""
        self.plan: Plan | None = None
        self.workers: dict[int, WorkerView] = {}
        self.up: set[int] = set()
        self.can_stay: set[int] = set()
        self.cannot_stay: dict[int, str] = {}
        self.missing = MissingRanks()
        self.first_step: tuple[str, int] | None = None
        self.suspected = ""
        self.warned: int | None = None
        self.first_save = ""
        self.stopping = False
        self.ended: tuple[int, str] | None = None
        self._begun = True
        self._restarts: int | None = None
        self.standbys = StandbyTally()

    @property
    def incarnation(self) -> int:
        """The plan's: a timer that rings late carries the number of the life that set it."""
        return self.plan.incarnation if self.plan is not None else -1

    @property
    def world_size(self) -> int:
        """Workers that the plan has; 0 before the first."""
        return self.plan.topology.world_size if self.plan is not None else 0

    @property
    def ledger(self) -> Ledger:
        """What the run has spent, by its newest plan."""
        return self.plan.ledger if self.plan is not None else Ledger()

    @property
    def restarts(self) -> int:
        """How often workers were started again: by its plan, unless that has started no rank.

        A node without a seat hears it at the end.
        """
        if self._restarts is not None or self.plan is None:
            return self._restarts or 0
        return self.plan.restarts_begun(begun=self._begun)

    def high_step(self, log_dir: Path) -> int:
        """The furthest step that a rank of this incarnation has reported; -1: none."""
        return max((seen.step for seen in self.progress(log_dir) if seen is not None), default=-1)

    def restarts_left(self, policy: RestartPolicy, log_dir: Path, now_s: float) -> int:
        """Restarts for faults that the budget allows at ``now_s`` run-seconds: all, after progress."""
        return restarts_left(self.ledger, policy, now_s=now_s, high_step=self.high_step(log_dir))

    def progress(self, log_dir: Path) -> list[Progress | None]:
        """What the ranks of this incarnation wrote on their page, in their order; None: no step yet."""
        return progress_of(self._files(log_dir, Logs()))

    def last_steps(self, log_dir: Path, logs: Logs) -> LastSteps:
        """How far they are: by that page, else by their logs."""
        return last_steps(self._files(log_dir, logs), self.places or range(self.world_size))

    @property
    def places(self) -> list[int]:
        """The ranks of the page's slots, in their order: who is missing has one, too."""
        return sorted({*self.workers, *(() if self.plan is None else self.plan.missing)})

    def _files(self, log_dir: Path, logs: Logs) -> LogFiles:
        # who outlives incarnations writes where it began
        return files_of(logs, log_dir, self.plan.started if self.plan is not None else -1)

    def take(self, line: JournalLine) -> None:
        """One more line."""
        self._hangs(line)
        self._survivors(line)
        self.standbys = self.standbys.after(line.event)
        self._begun |= isinstance(line.event, IncarnationStarted)
        self.first_save = line.event.words if isinstance(line.event, FirstSaveTold) else self.first_save
        match line.event:
            case RunStarted():
                self.up.clear()
                self.stopping, self.ended, self._restarts = False, None, None
            case PlanAdopted(plan=plan) | PlanElsewhere(plan=plan):
                self._planned(plan, line)
            case WorkerStarted(rank=rank, pid=pid):
                self.workers[rank] = WorkerView(pid)
                self.up.add(rank)
            case WorkerExit(rank=rank) | SpawnFailed(rank=rank):
                self.workers.setdefault(rank, WorkerView()).end = line
                self.up.discard(rank)
            case GaspRequested(ranks=ranks):
                for worker in (self.workers[rank] for rank in ranks if rank in self.workers):
                    worker.asked |= worker.end is None and not worker.hung
            case HangDetected(rank=rank) if rank in self.workers:
                self.workers[rank].hung = True
            case FirstStep(step=step) if self.plan is None or self.plan.incarnation == line.incarnation:
                self.first_step = (line.at_utc, step)
            case StopRequested() | IncarnationOver(stop=StopSource.CONTROL | StopSource.SIGINT):
                self.stopping = True
            case RunFinished(exit_code=code, stopped=stopped, restarts=restarts):
                self._restarts = restarts
                self.missing.since_s.clear()
                self.stopping |= bool(stopped)
                self.ended = (code, line.because)
        if self.last is None or line.phase is not self.phase or isinstance(line.event, PlanElsewhere):
            self.phase, self.phase_why = line.phase, line.why
        self.last = line

    def _planned(self, plan: Plan, line: JournalLine) -> None:
        if isinstance(line.event, PlanAdopted) and line.phase in _ENDING:
            return  # it came too late, and another follows
        self.plan, self.first_step = plan, None
        self._begun = isinstance(line.event, PlanElsewhere)
        ends = [(rank, one.end.event) for rank, one in self.workers.items() if one.end is not None]
        finished = [rank for rank, end in ends if isinstance(end, WorkerExit) and end.clean]
        lives_on = plan.kept.union(finished if plan.kept else ())
        self.workers = {rank: one for rank, one in self.workers.items() if rank in lives_on}
        self.up &= plan.kept
        self.missing.planned(plan, line.run_s, finished)

    def _survivors(self, line: JournalLine) -> None:
        match line.event:
            case PlanAdopted():
                self.can_stay.clear()
                self.cannot_stay.clear()
            case RankCanRejoin(rank=rank):
                self.can_stay.add(rank)
                self.cannot_stay.pop(rank, None)
            case RankCannotRejoin(rank=rank, why=why):
                self.can_stay.discard(rank)
                self.cannot_stay[rank] = why

    def _hangs(self, line: JournalLine) -> None:
        match line.event:
            case HangSuspected():
                self.suspected = line.why
            case HangWarned(rank=rank):
                self.suspected, self.warned = f"rank {rank} {line.because}", rank
            case (
                PauseOver() | HangDismissed() | HangDetected() | IncarnationStarted() | WorkerExit()
                | PlanAdopted()
            ):  # fmt: skip
                self.suspected, self.warned = "", None
