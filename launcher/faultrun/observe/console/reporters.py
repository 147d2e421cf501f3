"""Tell people what happens, in words: a listener of the supervisor (``interfaces.EventListener``)."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from faultrun.core.diagnosis.diagnose import describe
from faultrun.core.humanize import several
from faultrun.core.phases import grace_window
from faultrun.core.phases.hang_response import warning
from faultrun.core.phases.platform_notices import HOLD_S
from faultrun.core.plan.choose_scheduler import INSTEAD
from faultrun.core.redact import without_secret_words
from faultrun.model.checkpoint import OnNode, RecoveryPoint, Refusal
from faultrun.model.events import (
    ConfigRewritten,
    Drained,
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
    SpawnFailed,
    Timer,
    TimerFired,
    WorkerExit,
)
from faultrun.model.exits import Signaled
from faultrun.model.incident import Cause
from faultrun.model.line_tone import Tone, toned
from faultrun.model.observed.agreement import IncarnationOver, MembershipLost, OwnNodeAside, PlanElsewhere
from faultrun.model.observed.dying_gasp import GaspRequested, GaspSaved, SaveAwaited
from faultrun.model.observed.elastic import NodesWaiting
from faultrun.model.observed.hang import HangDetected, HangElsewhere, HangWarned, PauseOver
from faultrun.model.observed.mindspore_rendezvous import RankMissed
from faultrun.model.observed.platform_notice import Notice, UnreadableNotice
from faultrun.model.observed.recovery import Began, RecoveryTimed, ResumeChecked
from faultrun.model.observed.rejoin import RankCannotRejoin, RankCanRejoin, RankRejoined
from faultrun.model.observed.saves import FirstSaveTold
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.plan import Plan, Reason
from faultrun.model.printable import one_line
from faultrun.model.run import Phase, RunState, Step
from faultrun.model.spec.run_spec import RunSpec
from faultrun.model.stop import StopRequested, StopSource
from faultrun.observe.card.card import duration, place_taken
from faultrun.observe.card.card_keeper import CardKeeper, local_time, newer
from faultrun.observe.console_words import running_words, saved_words, shown_output
from faultrun.observe.missing_ranks import MissingRanks
from faultrun.observe.standby_words import StandbyTally

_FENCED = "the other nodes decide how the run goes on; this one comes back as a spare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The last word on a run: one line, and whether a person should worry."""

    line: str
    exit_code: int


class ConsoleReporter:
    """One line for each thing that matters, one card for each incident, to ``say`` (stderr).

    ``now`` is the wall clock, for cards.
    """

    def __init__(
        self,
        spec: RunSpec,
        log_dir: Path,
        say: Callable[[str], None],
        now: Callable[[], datetime] = local_time,
    ) -> None:
        self._spec, self._log_dir, self._say = spec, log_dir, say
        self._before: RunState | None = None
        self._refused: tuple[Refusal, ...] = ()
        self._unknown = ""
        self._unable: set[str] = set()
        self._missing = MissingRanks()
        self._cards = CardKeeper(spec, log_dir, say, now)
        self._standbys = StandbyTally(wanted=spec.standby.count)
        self._no_standbys = ""
        self._begun, self._parked = True, frozenset[int]()
        self.outcome: Outcome | None = None

    def tell(self, event: Event, step: Step) -> None:
        """Say what matters of the event: lines for people, and the card of an incident."""
        before, self._before = self._before, step.state
        self._standbys = self._standbys.after(event)
        incident = step.state.life.incident
        if incident is not None and (before is None or before.life.incident is None):
            self._cards.began(incident, event.at_s, timed=not isinstance(event, RunStarted))
        self._told(event, before, step)
        self._told_of_nodes(event, before, step)
        if before is not None and step.state.run.native_scheduler and not before.run.native_scheduler:
            self._say(INSTEAD if isinstance(event, PlanAdopted) else step.why)
        if before is None or step.state.phase is not before.phase:
            self._kept_back(event, step)

    def _told(self, event: Event, before: RunState | None, step: Step) -> None:  # noqa: C901, PLR0912, PLR0915  one row a case
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
                    self._warn(f"{event.why}\n  {step.why}")
            case GaspSaved() if before is not None and not before.run.save_folders:
                self._saves_elsewhere(event.rank, step.state.run.save_folders)
            case Drained() if before is not None and step.state.stop is not before.stop:
                self._say(step.why)
            case FirstSaveTold(words=words, before=False) | Drained(left=words) if words:
                self._say(words)
            case PlanAdopted(plan=plan) if plan == step.state.plan:
                self._adopted(event, before)
            case ConfigRewritten(file=file, key=key, after=after):
                self._say(f"rewrote {file}: {key} = {after}")
            case IncarnationStarted(incarnation=life, ranks=ranks, master_port=port):
                words = running_words(ranks, step.state.plan, port, self._parked, step.state.life.finished)
                self._say(f"incarnation {life}: {words}")
                self._cards.running(event.at_s)
                self._begun = True
            case RankRejoined(step=at) if before and before.life.rejoining and not step.state.life.rejoining:
                self._cards.rejoined(at)
                self._came_back(step.state.seats.world_size, event.at_s)
            case TimerFired(timer=Timer.HEAL) | RankCanRejoin(waits=True) if (
                before and step.state.phase is not before.phase
            ):
                self._say(step.why)
            case RankCanRejoin(trains_on=str(why)) if why and why not in self._unable:
                self._unable.add(why)
                self._warn(
                    f"the others do not train on while a rank is missing: {why}; they wait for a newcomer"
                )
            case RankCannotRejoin() | TimerFired(timer=Timer.REJOIN) if (
                before and step.state.phase is not before.phase
            ):
                self._bad(step.why)
            case RankCannotRejoin(rank=rank, why=why) if before and rank not in before.life.rejoinable:
                if why not in self._unable:
                    self._warn(f"survivors of a fault cannot stay: {why}; all ranks will start again")
                self._unable.add(why)
            # Where the run resumes or restarts, the check of its first step tells of it.
            case FirstStep() if (of := step.state.plan) and not of.point and of.reason is Reason.FIRST:
                self._good(f"training: every rank has done a step (step {event.step})")
            case ResumeChecked(began=began, why=why):
                recovering = self._cards.checked(event)
                if began is Began.ELSEWHERE:
                    self._warn(why)
                elif not recovering:
                    self._say(why)
            case RecoveryTimed():
                self._cards.timed(event)
            case WorkerExit(clean=True, status=Signaled() as status) if step.state.life.incident is None:
                how = f"{describe(status)}, after it was done; it counts as finished"
                self._warn(f"rank {event.rank} (pid {event.pid}) {how}")
            case WorkerExit() | HelperExit() | SpawnFailed() | RankMissed() | SaveAwaited():
                self._exit(event, before, step.state)
            case HangWarned() if step.state.phase is Phase.RUNNING:
                self._warn(warning(event))
            case PauseOver(warned=True) | PauseOver(all_stood=True) if step.state.phase is Phase.RUNNING:
                self._good(step.why)
            case HangElsewhere():
                self._say(step.why)
            case HangDetected(rank=rank, why=why) if before is None or before.life.incident is None:
                alone = "; it alone is replaced" if step.state.phase is Phase.REPLACING else ""
                self._bad(f"rank {rank} hangs: {why}{alone}")
            case StopRequested(source=source):
                cut = step.state.phase is Phase.KILLING and before and before.phase is Phase.DRAINING
                self._say(step.why if cut else f"told to stop by {source.value}")
            case GaspRequested(ranks=ranks, deadline=deadline, at_s=at_s):
                self._asked(len(ranks), deadline.left_s(at_s), step.state)
            case StandbyChanged():
                self._standby(event)
            case RunFinished():
                self._finished(event, step.state)

    def _told_of_nodes(self, event: Event, before: RunState | None, step: Step) -> None:
        """What ends an incarnation from outside this node."""
        incident = step.state.life.incident
        match event:
            case NodesWaiting(nodes=nodes) if nodes:
                self._say(step.why)
            case OwnNodeAside(plan=plan):
                self._warn(step.why)
                if plan is not None and plan.aftermath is not None:
                    self._cards.agreed(plan, plan.aftermath, step.state, event.at_s)
            case PlanElsewhere(plan=plan) if plan.aftermath is not None:
                self._cards.agreed(plan, plan.aftermath, step.state, event.at_s)
            case IncarnationOver(why=why, node=node, stop=StopSource()):
                self._say(f"node {node}: {why}" if node else why)
            case IncarnationOver() if before is not None and step.state.phase is not before.phase:
                known = incident is None or before.phase is Phase.REPLACING
                self._bad(step.why if known or incident is None else incident.explanation)
            case MembershipLost(why=why, boot=boot) if boot:
                self._bad(f"fenced, because another may get this node's place; it has no workers now: {why}")
            case Drained() if incident is not None and incident.cause is Cause.FENCE:
                self._cards.given_up(step.state, self._refused, _FENCED)

    def _started(self, notices: tuple[Notice, ...]) -> None:
        workers, command = self._spec.topology.world_size, without_secret_words(self._spec.command.shown)
        logs = f"logs in {self._log_dir}{shown_output(self._spec)}"
        self._say(f"run {self._spec.run_id}: {several(workers, 'worker')} of {command}; {logs}")
        for notice in notices:
            if isinstance(notice, UnreadableNotice):
                self._warn(notice.words)

    def _good(self, text: str) -> None:
        self._say(toned(text, Tone.GOOD))

    def _warn(self, text: str) -> None:
        self._say(toned(text, Tone.WARNING))

    def _bad(self, text: str) -> None:
        self._say(toned(text, Tone.FAILED))

    def _standby(self, event: StandbyChanged) -> None:
        """Once when all are ready, once when there will be none; not how each comes and goes."""
        match event.state:
            case StandbyPhase.READY if self._standbys.complete:
                self._good(self._standbys.words())
            case StandbyPhase.OFF if self._spec.standby.asked or self._spec.standby.count > 0:
                # With ``auto`` a cold start is what most runs have; the user need not be told.
                if event.why != self._no_standbys:
                    self._warn(f"no standbys: {event.why}; a restart will import everything again")
                self._no_standbys = event.why
            case StandbyPhase.LOST if event.rank in self._missing.since_s:
                self._warn(f"who came for rank {event.rank}: {event.why}; it is tried again")
            case StandbyPhase.LOST:
                self._warn(f"standby of rank {event.rank}: {event.why}")

    def _came_back(self, world_size: int, at_s: float) -> None:
        words, ranks = self._missing.one_group(world_size, at_s)
        if words:
            self._good(words)
            self._cards.healed(ranks, at_s)

    def _asked(self, workers: int, window_s: float, state: RunState) -> None:
        window = f"SIGKILL in {duration(round(window_s, 1))}"
        asked = several(workers, "worker")
        self._say(f"{asked} asked to save; {window} ({grace_window.source(state)})")

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
        """The user should not wonder why nothing runs."""
        if step.state.phase is Phase.HOLDING:
            self._say(f"{step.why}; at most {duration(HOLD_S)}")
        elif step.state.phase is Phase.BACKING_OFF and step.state.run.platform.not_before_s > event.at_s:
            self._say(f"{step.why}, as the platform's protocol asks")

    def _chosen(self, event: RecoveryPointChosen) -> None:
        self._refused, folders = event.refused, " ".join(self._spec.recovery.checkpoint_dirs)
        for other in event.neighbours:
            self._warn(
                f"another run keeps its checkpoints in {folders} too: {other}. This run does not resume from "
                "files that do not say which run wrote them; give each run a --checkpoint_dir of its own"
            )
        for other in event.others:
            self._warn(
                f"{other} saved in {folders} while this run was away, and nothing of it is taken"
                " (--resume=always); give each run a --checkpoint_dir of its own"
            )
        if event.left_alone:
            # Others may have trained for long already.
            alone = event.point is None and len(self._spec.topology.nodes) == 1
            begins = "starting from the beginning; " if alone else ""
            found = several(event.left_alone, "checkpoint")
            left = f"{found} found and left alone (--resume=always uses them)"
            self._say(f"{begins}{left}")
        if event.unknown_files and event.unknown_files != self._unknown:
            self._say(f"no checkpoint found; {event.unknown_files}")
        self._unknown = event.unknown_files

    def _saves_elsewhere(self, rank: int, folders: tuple[str, ...]) -> None:
        """A save that no option points to is found again by this run, and by no other."""
        roots = [Path(root).absolute() for root in self._spec.recovery.checkpoint_dirs]
        for folder in folders:
            path = Path(folder).absolute()
            if not any(root in (path, *path.parents) for root in roots):
                self._warn(
                    f"rank {rank} saves in {folder}, which is not a --checkpoint_dir; "
                    "restarts of this run look there, too"
                )

    def _adopted(self, event: PlanAdopted, before: RunState | None) -> None:
        plan, self._begun = event.plan, False
        self._parked = frozenset() if before is None else before.life.parked
        self._missing.planned(plan, event.at_s, () if before is None else before.life.finished)
        self._cards.unhealed((*self._missing.since_s, *plan.newcomers))
        for one in plan.replaced:
            words = place_taken(one)
            self._say(words.removeprefix(f"node {one.by} ") if one.by == self._spec.node else words)
        if before is not None and plan.aftermath is not None:
            self._cards.agreed(plan, plan.aftermath, before, event.at_s)
        elif plan.reason is Reason.FAULT and before is not None and before.life.incident is not None:
            self._cards.restarting(before, self._refused, plan, event.at_s)
        elif plan.point is not None:
            step = "?" if plan.point.global_step is None else plan.point.global_step
            words = f"resuming from {self._own_path(plan, plan.point)} (step {step})"
            self._say(one_line(f"{words}{_passed_over(newer(self._refused, plan.point))}"))

    def _own_path(self, plan: Plan, point: RecoveryPoint) -> str:
        """Where nodes have disks of their own, what lies on this one."""
        ours = plan.topology.ranks_of(self._spec.node) if isinstance(point.source, OnNode) else ()
        return point.path_for(ours[0]) if ours else point.path

    def _exit(
        self,
        event: WorkerExit | HelperExit | SpawnFailed | RankMissed | SaveAwaited,
        before: RunState | None,
        state: RunState,
    ) -> None:
        if state.life.incident is None or (before is not None and before.life.incident is not None):
            return
        match event:
            case WorkerExit(rank=rank, pid=pid, status=status):
                self._bad(f"rank {rank} (pid {pid}) {describe(status)}")
            case HelperExit(name=name, pid=pid, status=status):
                self._bad(f"{name} (pid {pid}) {describe(status)}")
            case SpawnFailed(rank=rank, why=why):
                self._bad(f"rank {rank}: {why}")
            case RankMissed() | SaveAwaited():
                self._bad(f"rank {state.life.incident.rank} {state.life.incident.explanation}")

    def _finished(self, event: RunFinished, state: RunState) -> None:
        self._cards.unhealed()
        code, why = event.exit_code, event.why
        if event.aftermath is not None:
            self._cards.agreed_end(event.aftermath, state, why)
        elif state.life.incident is not None and not (_answered(state) or self._cards.answered(state)):
            self._cards.given_up(state, self._refused, why)
        saved = saved_words(state) if state.stop is not None else ""
        restarts = state.plan.restarts_begun(begun=self._begun) if state.plan is not None else 0
        restarts = restarts if event.restarts is None else event.restarts
        if "\n" in why:
            self._say(why)
            why = why.splitlines()[0]
        line = f"{why}{saved}; exit code {code}, {several(restarts, 'restart')}"
        self.outcome = Outcome(line=line, exit_code=code)
        well = Tone.WARNING if event.unheard else Tone.GOOD
        ended = well if code == 0 else Tone.FAILED if state.stop is None else Tone.PLAIN
        self._say(toned(line, ended))


def _answered(state: RunState) -> bool:
    """Whether the other nodes went on after the incident without this one, whose card says so."""
    fenced = state.life.incident is not None and state.life.incident.cause is Cause.FENCE
    return fenced or (len(state.topology.nodes) > 1 and state.exit_code == 0)


def _passed_over(refused: tuple[Refusal, ...]) -> str:
    """Why it is not the newest file; the first of several says it."""
    if (first := max(refused, key=lambda one: one.global_step or 0, default=None)) is None:
        return ""
    others = f"; {len(refused)} newer are refused" if len(refused) > 1 else ""
    return f", not from {first.path}: {first.why}{others} (faultrun ckpt list --why)"
