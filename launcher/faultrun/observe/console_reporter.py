"""Tells people what happens: one line for each thing that matters, one card for each incident."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faultrun.core.diagnose import describe
from faultrun.core.notices import HOLD_S
from faultrun.core.secrets import without_secret_words
from faultrun.core.silence import warning
from faultrun.model.checkpoint import Refusal
from faultrun.model.events import (
    ConfigRewritten,
    Event,
    FaultNotice,
    FirstStep,
    HelperExit,
    IncarnationStarted,
    NothingWhole,
    PlanAdopted,
    RecoveryPointChosen,
    RunFinished,
    RunStarted,
    Signaled,
    SpawnFailed,
    WorkerExit,
)
from faultrun.model.gasp import GaspRequested, GaspSaved
from faultrun.model.hang import HangDetected, HangWarned, PauseOver
from faultrun.model.incident import Save
from faultrun.model.notice import Notice, Unreadable
from faultrun.model.plan import Reason
from faultrun.model.printable import one_line
from faultrun.model.recovery import Began, RecoveryTimed, ResumeChecked
from faultrun.model.rendezvous import RankMissed
from faultrun.model.run import Phase, RunState, Step
from faultrun.model.spec import RunSpec
from faultrun.model.standby import StandbyChanged, StandbyPhase
from faultrun.model.stop import StopRequested
from faultrun.observe.card import duration
from faultrun.observe.card_keeper import CardKeeper

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The last word on a run: one line, and whether a person should worry."""

    line: str
    exit_code: int


class ConsoleReporter:
    """Writes to ``say`` (stderr) and the incident files. Disk trouble never reaches the loop."""

    def __init__(self, spec: RunSpec, log_dir: Path, say: Say) -> None:
        self._spec = spec
        self._log_dir = log_dir
        self._say = say
        self._before: RunState | None = None
        self._refused: tuple[Refusal, ...] = ()
        self._cards = CardKeeper(spec, log_dir, say)
        self.outcome: Outcome | None = None

    def tell(self, event: Event, step: Step) -> None:
        """See ``ports.EventListener``."""
        before, self._before = self._before, step.state
        self._told(event, before, step)
        if before is not None and step.state.native_scheduler and not before.native_scheduler:
            self._say(step.why)
        if before is None or step.state.phase is not before.phase:
            self._kept_back(event, step)

    def _told(self, event: Event, before: RunState | None, step: Step) -> None:  # noqa: C901, PLR0912  one row a case
        match event:
            case RunStarted(notices=notices):
                self._started()
                for notice in notices:
                    if isinstance(notice, Unreadable):
                        self._say(notice.words)
            case FaultNotice(notice=notice):
                self._noticed(notice, before, step)
            case RecoveryPointChosen():
                self._chosen(event)
            case NothingWhole(refused=refused, gone_s=gone_s):
                self._refused = refused
                if gone_s == 0.0:
                    self._say(f"{event.why}\n  {step.why}")
            case GaspSaved() if before is not None and not before.save_folders:
                self._saves_elsewhere(event.rank, step.state.save_folders)
            case PlanAdopted():
                self._adopted(event, before)
            case ConfigRewritten(file=file, key=key, after=after):
                self._say(f"rewrote {file}: {key} = {after}")
            case IncarnationStarted():
                self._running(event)
            case FirstStep():
                self._training(event, step.state)
            case ResumeChecked():
                self._checked(event)
            case RecoveryTimed():
                self._cards.timed(event)
            case WorkerExit(clean=True, status=Signaled() as status) if step.state.life.incident is None:
                how = f"{describe(status)}, after it was done; it counts as finished"
                self._say(f"rank {event.rank} (pid {event.pid}) {how}")
            case WorkerExit() | HelperExit() | SpawnFailed() | RankMissed():
                self._exit(event, before, step.state)
            case HangWarned() | PauseOver(warned=True) if step.state.phase is Phase.RUNNING:
                self._say(warning(event) if isinstance(event, HangWarned) else step.why)
            case HangDetected(rank=rank, why=why):
                if before is None or before.life.incident is None:
                    self._say(f"rank {rank} hangs: {why}")
            case StopRequested(source=source):
                cut = (
                    before is not None
                    and before.phase is Phase.DRAINING
                    and step.state.phase is Phase.KILLING
                )
                self._say(step.why if cut else f"told to stop by {source.value}")
            case GaspRequested(ranks=ranks, deadline_s=deadline_s, at_s=at_s):
                window = f"SIGKILL in {duration(round(deadline_s - at_s, 1))}"
                self._say(
                    f"{_workers(len(ranks))} asked to save; {window} ({self._window_source(step.state)})"
                )
            case StandbyChanged(state=StandbyPhase.OFF, why=why) if self._standbys_expected():
                self._say(f"no standbys: {why}")
            case StandbyChanged(state=StandbyPhase.LOST, rank=rank, why=why):
                self._say(f"standby of rank {rank}: {why}")
            case RunFinished(exit_code=code, why=why):
                self._finished(code, why, step.state)
            case _:
                return

    def _standbys_expected(self) -> bool:
        """With ``auto`` a cold start is what most runs have; nobody needs to be told."""
        return self._spec.standby.asked or self._spec.standby.count > 0

    def _window_source(self, state: RunState) -> str:
        if state.stop is None:
            return "--grace"
        return f"stop window: {self._spec.supervision.windows.stop_grace_source}"

    def _started(self) -> None:
        workers = (
            f"{_workers(self._spec.topology.world_size)} of {without_secret_words(self._spec.command.shown)}"
        )
        self._say(f"run {self._spec.run_id}: {workers}; logs in {self._log_dir}")

    def _noticed(self, notice: Notice, before: RunState | None, step: Step) -> None:
        """Words of the platform that change what we do, or that cannot be understood; no others."""
        acted = before is None or step.actions or step.state.phase is not before.phase
        lost = before is not None and step.state.platform.lost != before.platform.lost
        incident = step.state.life.incident
        if incident is not None and (before is None or before.life.incident is None):
            self._say(incident.explanation)
        elif acted or lost or isinstance(notice, Unreadable):
            self._say(step.why)

    def _kept_back(self, event: Event, step: Step) -> None:
        """Nobody should wonder why nothing runs."""
        if step.state.phase is Phase.HOLDING:
            self._say(f"{step.why}; at most {duration(HOLD_S)}")
        elif step.state.phase is Phase.BACKING_OFF and step.state.platform.not_before_s > event.at_s:
            self._say(f"{step.why}, as the platform's protocol asks")

    def _chosen(self, event: RecoveryPointChosen) -> None:
        self._refused = event.refused
        for other in event.neighbours:
            folders = " ".join(self._spec.recovery.checkpoint_dirs)
            self._say(
                f"another run keeps its checkpoints in {folders} too: {other}. Files that do not say whose "
                "they are will not be resumed from; give each run a --checkpoint_dir of its own"
            )
        if event.left_alone and event.point is None:
            self._say(
                f"starting from the beginning; {event.left_alone} checkpoints found and left alone "
                "(--resume=always uses them)"
            )

    def _saves_elsewhere(self, rank: int, folders: tuple[str, ...]) -> None:
        """A save that no option points to is found again by this run, and by no other."""
        roots = [Path(root).absolute() for root in self._spec.recovery.checkpoint_dirs]
        for folder in folders:
            path = Path(folder).absolute()
            if not any(root in (path, *path.parents) for root in roots):
                self._say(
                    f"rank {rank} saves in {folder}, which is no --checkpoint_dir: "
                    "the restarts of this run look there too"
                )

    def _adopted(self, event: PlanAdopted, before: RunState | None) -> None:
        plan = event.plan
        if plan.reason is Reason.FAULT and before is not None and before.life.incident is not None:
            self._cards.restarting(before, self._refused, plan, event.at_s)
        elif plan.point is not None:
            step = "?" if plan.point.global_step is None else plan.point.global_step
            self._say(one_line(f"resuming from {plan.point.path} (step {step})"))

    def _running(self, event: IncarnationStarted) -> None:
        running = f"{_workers(len(event.ranks))} running"
        self._say(f"incarnation {event.incarnation}: {running}, port {event.master_port}")
        self._cards.running(event.at_s)

    def _training(self, event: FirstStep, state: RunState) -> None:
        """Of an incarnation that follows another, or resumes, the check of its first step tells."""
        plan = state.plan
        if plan is not None and plan.point is None and plan.reason is Reason.FIRST:
            self._say(f"training: every rank has done a step (step {event.step})")

    def _checked(self, event: ResumeChecked) -> None:
        recovering = self._cards.checked(event)
        if event.began is Began.ELSEWHERE or not recovering:
            self._say(event.why)

    def _exit(
        self,
        event: WorkerExit | HelperExit | SpawnFailed | RankMissed,
        before: RunState | None,
        state: RunState,
    ) -> None:
        if state.life.incident is None or (before is not None and before.life.incident is not None):
            return
        match event:
            case WorkerExit(rank=rank, pid=pid, status=status):
                self._say(f"rank {rank} (pid {pid}) {describe(status)}")
            case HelperExit(name=name, pid=pid, status=status):
                self._say(f"{name} (pid {pid}) {describe(status)}")
            case SpawnFailed(rank=rank, why=why):
                self._say(f"rank {rank}: {why}")
            case RankMissed(rank=rank):
                self._say(f"rank {rank} {state.life.incident.explanation}")

    def _finished(self, code: int, why: str, state: RunState) -> None:
        if state.life.incident is not None:
            self._cards.given_up(state, self._refused, why)
        saved = ""
        if state.stop is not None:
            saved = _saved(state.life.saves)
        restarts = state.plan.ledger.total_restarts if state.plan is not None else 0
        if "\n" in why:
            self._say(why)
            why = why.splitlines()[0]
        line = f"{why}{saved}; exit code {code}, {restarts} restart{'s' if restarts != 1 else ''}"
        self.outcome = Outcome(line=line, exit_code=code)
        self._say(line)


def _saved(saves: tuple[Save, ...]) -> str:
    if not saves:
        return "; no rank reported a save"
    step = max(save.step for save in saves)
    read = any(save.verified for save in saves if save.step == step)
    return f"; saved step {step}" if read else f"; saved step {step}, not read back"


def _workers(count: int) -> str:
    return f"{count} worker{'s' if count != 1 else ''}"
