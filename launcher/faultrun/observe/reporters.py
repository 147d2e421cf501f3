"""Tell what happens: words for people, or an object for each event (``--log_format=json``).

Both are listeners of the supervisor (``ports.EventListener``).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultrun.core.diagnose import describe
from faultrun.core.hang_decisions import warning
from faultrun.core.notices import HOLD_S
from faultrun.core.secrets import without_secret_words
from faultrun.journal.append import line_of, utc_now
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
    PrepareFailed,
    RecoveryPointChosen,
    RunFinished,
    RunStarted,
    Signaled,
    SpawnFailed,
    WorkerExit,
)
from faultrun.model.gasp import GaspFailed, GaspRequested, GaspSaved
from faultrun.model.hang import HangDetected, HangWarned, PauseOver
from faultrun.model.incident import Save
from faultrun.model.notice import Notice, UnreadableNotice
from faultrun.model.plan import Plan, Reason
from faultrun.model.printable import one_line
from faultrun.model.recovery import Began, RecoveryTimed, ResumeChecked
from faultrun.model.rendezvous import RankMissed
from faultrun.model.run import Phase, RunState, Step
from faultrun.model.spec import RunSpec
from faultrun.model.standby import StandbyChanged, StandbyPhase
from faultrun.model.stop import StopRequested
from faultrun.observe.card import CardKeeper, duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The last word on a run: one line, and whether a person should worry."""

    line: str
    exit_code: int


class ConsoleReporter:
    """One line for each thing that matters, one card for each incident, to ``say`` (stderr)."""

    def __init__(self, spec: RunSpec, log_dir: Path, say: Callable[[str], None]) -> None:
        self._spec = spec
        self._log_dir = log_dir
        self._say = say
        self._before: RunState | None = None
        self._refused: tuple[Refusal, ...] = ()
        self._unknown = ""
        self._cards = CardKeeper(spec, log_dir, say)
        self.outcome: Outcome | None = None

    def tell(self, event: Event, step: Step) -> None:
        """See ``ports.EventListener``."""
        before, self._before = self._before, step.state
        self._told(event, before, step)
        if before is not None and step.state.run.native_scheduler and not before.run.native_scheduler:
            self._say(step.why)
        if before is None or step.state.phase is not before.phase:
            self._kept_back(event, step)

    def _told(self, event: Event, before: RunState | None, step: Step) -> None:  # noqa: C901, PLR0912  one row a case
        match event:
            case RunStarted(notices=notices):
                self._started(notices)
            case FaultNotice(notice=notice):
                self._noticed(notice, before, step)
            case RecoveryPointChosen():
                self._chosen(event)
            case NothingWhole(refused=refused, gone_s=gone_s):
                self._refused = refused
                if gone_s == 0.0:
                    self._say(f"{event.why}\n  {step.why}")
            case GaspSaved() if before is not None and not before.run.save_folders:
                self._saves_elsewhere(event.rank, step.state.run.save_folders)
            case PlanAdopted():
                self._adopted(event, before)
            case ConfigRewritten(file=file, key=key, after=after):
                self._say(f"rewrote {file}: {key} = {after}")
            case IncarnationStarted(incarnation=life, ranks=ranks, master_port=port):
                self._say(f"incarnation {life}: {_workers(len(ranks))} running, port {port}")
                self._cards.running(event.at_s)
            case FirstStep() if _from_nothing(step.state.plan):
                self._say(f"training: every rank has done a step (step {event.step})")
            case ResumeChecked(began=began, why=why):
                recovering = self._cards.checked(event)
                if began is Began.ELSEWHERE or not recovering:
                    self._say(why)
            case RecoveryTimed():
                self._cards.timed(event)
            case WorkerExit(clean=True, status=Signaled() as status) if step.state.life.incident is None:
                how = f"{describe(status)}, after it was done; it counts as finished"
                self._say(f"rank {event.rank} (pid {event.pid}) {how}")
            case WorkerExit() | HelperExit() | SpawnFailed() | RankMissed():
                self._exit(event, before, step.state)
            case HangWarned() | PauseOver(warned=True) if step.state.phase is Phase.RUNNING:
                self._say(warning(event) if isinstance(event, HangWarned) else step.why)
            case HangDetected(rank=rank, why=why) if before is None or before.life.incident is None:
                self._say(f"rank {rank} hangs: {why}")
            case StopRequested(source=source):
                cut = step.state.phase is Phase.KILLING and before and before.phase is Phase.DRAINING
                self._say(step.why if cut else f"told to stop by {source.value}")
            case GaspRequested(ranks=ranks, deadline_s=deadline_s, at_s=at_s):
                self._asked(len(ranks), deadline_s - at_s, step.state)
            case StandbyChanged(state=StandbyPhase.OFF, why=why):
                # With ``auto`` a cold start is what most runs have; nobody needs to be told.
                if self._spec.standby.asked or self._spec.standby.count > 0:
                    self._say(f"no standbys: {why}")
            case StandbyChanged(state=StandbyPhase.LOST, rank=rank, why=why):
                self._say(f"standby of rank {rank}: {why}")
            case RunFinished(exit_code=code, why=why):
                self._finished(code, why, step.state)

    def _started(self, notices: tuple[Notice, ...]) -> None:
        workers, command = self._spec.topology.world_size, without_secret_words(self._spec.command.shown)
        self._say(f"run {self._spec.run_id}: {_workers(workers)} of {command}; logs in {self._log_dir}")
        for notice in notices:
            if isinstance(notice, UnreadableNotice):
                self._say(notice.words)

    def _asked(self, workers: int, window_s: float, state: RunState) -> None:
        told = f"stop window: {self._spec.supervision.windows.stop_grace_source}"
        source = "--grace" if state.stop is None else told
        window = f"SIGKILL in {duration(round(window_s, 1))}"
        self._say(f"{_workers(workers)} asked to save; {window} ({source})")

    def _noticed(self, notice: Notice, before: RunState | None, step: Step) -> None:
        """Words of the platform that change what we do, or that cannot be understood; no others."""
        acted = before is None or step.actions or step.state.phase is not before.phase
        lost = before is not None and step.state.run.platform.lost != before.run.platform.lost
        incident = step.state.life.incident
        if incident is not None and (before is None or before.life.incident is None):
            self._say(incident.explanation)
        elif acted or lost or isinstance(notice, UnreadableNotice):
            self._say(step.why)

    def _kept_back(self, event: Event, step: Step) -> None:
        """Nobody should wonder why nothing runs."""
        if step.state.phase is Phase.HOLDING:
            self._say(f"{step.why}; at most {duration(HOLD_S)}")
        elif step.state.phase is Phase.BACKING_OFF and step.state.run.platform.not_before_s > event.at_s:
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
        if event.unknown_files and event.unknown_files != self._unknown:
            self._say(f"no checkpoint found; {event.unknown_files}")
        self._unknown = event.unknown_files

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


def _from_nothing(plan: Plan | None) -> bool:
    """Of an incarnation that follows another, or resumes, the check of its first step tells."""
    return plan is not None and plan.point is None and plan.reason is Reason.FIRST


def _saved(saves: tuple[Save, ...]) -> str:
    if not saves:
        return "; no rank reported a save"
    step = max(save.step for save in saves)
    read = any(save.verified for save in saves if save.step == step)
    return f"; saved step {step}" if read else f"; saved step {step}, not read back"


def _workers(count: int) -> str:
    return f"{count} worker{'s' if count != 1 else ''}"


class JsonReporter:
    """One object an event, for log collectors, with what ``ConsoleReporter`` says; ``write`` takes a line."""

    def __init__(self, spec: RunSpec, log_dir: Path, write: Callable[[str], None]) -> None:
        self._run_id = spec.run_id
        self._write = write
        self._said: list[str] = []
        self._plain = ConsoleReporter(spec, log_dir, self._said.append)

    @property
    def outcome(self) -> Outcome | None:
        """The last word on the run, once it is over."""
        return self._plain.outcome

    def tell(self, event: Event, step: Step) -> None:
        """See ``ports.EventListener``."""
        self._plain.tell(event, step)
        message = "\n".join(self._said)
        self._said.clear()
        line = line_of(event, step, {})
        head = {"at_utc": utc_now(), "level": _level(event), "run_id": self._run_id}
        self._write(as_text({**head, **_shortened(line), "message": message}))


def note(run_id: str, text: str) -> str:
    """What is said outside of any event, in the same form."""
    head = {"at_utc": utc_now(), "level": "info", "run_id": run_id, "event": "Note"}
    return as_text({**head, "message": text})


def as_text(data: Mapping[str, Any]) -> str:
    """One line."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _shortened(line: Mapping[str, Any]) -> dict[str, Any]:
    """Without the actions, and of many ranks' steps only the first and the last: the journal has all."""
    short = {name: value for name, value in line.items() if name != "actions"}
    steps = short.get("steps")
    if isinstance(steps, list) and steps and all(isinstance(one, dict) for one in steps):
        known = [one.get("step", -1) for one in steps]
        short["steps"] = {"ranks": len(steps), "slowest": min(known), "furthest": max(known)}
    return short


def _level(event: Event) -> str:
    match event:
        case RunFinished(exit_code=code):
            return "info" if code in (0, 130, 143) else "error"
        case WorkerExit(clean=False):
            return "error"
        case SpawnFailed() | PrepareFailed() | NothingWhole() | GaspFailed() | HangDetected():
            return "error"
        case StopRequested() | FaultNotice() | GaspRequested() | HangWarned():
            return "warning"
        case _:
            return "info"
