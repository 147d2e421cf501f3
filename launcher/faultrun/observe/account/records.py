"""Incidents and dying-gasp saves of a run, filled in while lines are read; and all that is known of it."""

from collections import Counter
from dataclasses import dataclass, field, replace
from statistics import median

from faultrun.core.diagnosis.diagnose import describe
from faultrun.core.humanize import several
from faultrun.core.recovery.resume_verdict import StartPlace, done_again, logged_place
from faultrun.journal.lines import JournalLine
from faultrun.model.checkpoint import Kind
from faultrun.model.events import (
    HelperExit,
    NothingWhole,
    RecoveryPointChosen,
    SpawnFailed,
    Timer,
    TimerFired,
    WorkerExit,
)
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.dying_gasp import GaspFailed, GaspRequested, GaspSaved, GaspVerified
from faultrun.model.observed.hang import HangDetected
from faultrun.model.observed.mindspore_rendezvous import RankMissed
from faultrun.model.observed.recovery import PARTS, RecoveryTimed
from faultrun.model.observed.rejoin import MemoryFaultFound
from faultrun.model.plan import Plan
from faultrun.model.run import Phase
from faultrun.observe.account.incarnations import STOPPED, SUPERVISOR_LOST, IncarnationRecord
from faultrun.observe.account.timeline import Segment, Spending, Timeline, productive_share

NOT_OVER = "not over"
"""How an incident ends that the run has not got over yet."""

TRAINING_AGAIN = "training again"
"""How an incident ends that the run got over: every rank has done a step."""

RUN_ENDED, RUN_STOPPED = "the run ended", "the run was stopped"
"""How it ends that no plan answers before the run is given up for it, or is told to stop."""

ELSEWHERE = "the other nodes went on"
"""How it ends on a node that has no ranks any more."""

RUNNING_AGAIN = "running again"
"""How it ends where no rank reports steps: workers run, and when they trained is unknown."""

FAILED_AGAIN = "failed again before every rank had done a step"
"""How it ends where the next incarnation did not get that far either: another incident goes on."""

_UNSEEN = {SUPERVISOR_LOST: "its supervisor was lost", STOPPED: "it was stopped"}
_LONGEST = 300
_MOST_TIMES = 10_000


@dataclass(slots=True, kw_only=True)
class IncidentRecord:
    """One incident and what it cost, from the line that opened it until training goes on.

    ``step`` is how far training was, ``own_step`` how far ``rank`` itself was. ``spent`` are seconds by
    kind, from the fault to the first new step; ``recompute_s`` is what the next incarnation then trained a
    second time. ``saved`` counts ranks with a dying-gasp save. ``timeline`` are the finer parts that
    ``RecoveryTimed`` tells, in seconds, by name and in order, ``timed_s`` its total. ``resume`` says where
    the next one began, beside where it should have; empty while that is unknown. ``periodic_step``: see
    ``RecoveryPointChosen``. ``ordered``: see ``Incident``. ``stayed`` names a recovery in which workers keep
    their processes. ``place``: by the logs. ``is_judged``: the newest statement of the node has it. ``cut``:
    how it had ended for a supervisor, before the next took it up.
    """

    number: int
    incarnation: int
    at_s: float
    rank: int | None
    cause: str
    what: str
    step: int | None
    own_step: int | None = None
    resumed_step: int | None = None
    lost_steps: int | None = None
    recompute_s: float = 0.0
    spent: dict[Spending, float] = field(default_factory=dict)
    saved: int = 0
    refused: int = 0
    end: str = NOT_OVER
    timeline: dict[str, float] = field(default_factory=dict)
    timed_s: float | None = None
    resume: str = ""
    periodic_step: int | None = None
    ordered: bool = False
    stayed: str = ""
    is_judged: bool = False
    cut: str = ""
    place: StartPlace | None = None

    @property
    def recovery_s(self) -> float | None:
        """From the fault until every rank had done a step again, under a supervisor; None if not seen."""
        if self.end != TRAINING_AGAIN:
            return None
        return sum(self.spent.values()) if self.timed_s is None else self.timed_s

    def judged(self, incident: Incident) -> None:
        """The final judgement, made once all workers are gone."""
        self.number, self.rank, self.cause = incident.number, incident.rank, incident.cause.value
        self.ordered, self.is_judged = incident.ordered, True
        what = what_happened(incident)
        if incident.cause is Cause.HANG:  # its evidence is of one moment; a report counts what is alike
            what = f"hung: {what.partition(';')[0].partition(' (')[0]}"
        self.what = what[:_LONGEST]
        self.step = self.step if incident.step is None else incident.step
        self.own_step, self.place = incident.own_step, logged_place(incident)

    def resumes_with(self, plan: Plan) -> None:
        """An incarnation shall follow."""
        if plan.kept:
            self.stayed = _who_stayed(plan)
            self._resumes_at(self.step)  # until the first step tells better
            return
        if plan.slots is not None and plan.slots.aside:
            size = plan.topology.world_size
            self.stayed = f"{size} of {several(size + len(plan.slots.aside), 'worker')}"
        elif plan.slots is not None and plan.slots.vacant:
            left = len(plan.topology.nodes)
            self.stayed = f"{left} of {several(left + len(plan.slots.vacant), 'node')}"
        self._resumes_at(0 if plan.point is None else plan.point.global_step)
        if self.periodic_step is None and plan.point is not None and plan.point.kind is not Kind.GASP:
            self.periodic_step = plan.point.global_step

    def looked_for(self, found: RecoveryPointChosen | NothingWhole, refused: int) -> None:
        """Where to resume has been looked for, and so many candidates were refused."""
        self.refused = refused
        if isinstance(found, RecoveryPointChosen):
            self.periodic_step = found.periodic_step

    def closed(self, timeline: Timeline, end: str) -> None:
        """It is over, or asked about; what was spent since is read off the timeline."""
        self.end, self.spent = end, timeline.within(self.at_s)
        if self.cut:
            self.spent.pop(Spending.AWAY, None)
        if end == TRAINING_AGAIN:
            self.resume = self.stayed
        running_s = sum(self.spent.pop(kind, 0.0) for kind in (Spending.TRAINING, Spending.RECOMPUTE))
        if end == FAILED_AGAIN and running_s > 0:  # its logs may be read yet, but it did no step
            self.spent[Spending.START] = self.spent.get(Spending.START, 0.0) + running_s

    def timed(self, event: RecoveryTimed) -> None:
        """Told right after the line that closed it; the total counts where it ends with a step."""
        self.timeline = {name: took_s for name in PARTS if (took_s := getattr(event, name)) is not None}
        self.timed_s = self.timed_s if event.first_step_s is None else event.total_s

    def went_on(self, recompute_s: float, life: IncarnationRecord) -> None:
        """It is known where the next incarnation really began, and what of it was repetition."""
        self.recompute_s, start_step = recompute_s, life.start_step
        if start_step is not None and self.resumed_step is not None and start_step < self.resumed_step:
            self._resumes_at(start_step)
        if self.place is not None and life.place is not None:
            self.lost_steps = done_again(self.place, life.place, life.every)

    def _resumes_at(self, step: int | None) -> None:
        self.resumed_step = step
        known = self.place is None and self.step is not None and step is not None
        self.lost_steps = max(0, (self.step or 0) - (step or 0)) if known else None


def incident_record(line: JournalLine, number: int, at_s: float, step: int | None) -> IncidentRecord:
    """The incident that ``line`` opens; it is not judged yet."""
    rank: int | None = None
    match line.event:
        case WorkerExit(rank=rank) | SpawnFailed(rank=rank) | HangDetected(rank=rank) | RankMissed(rank=rank):
            pass
        case MemoryFaultFound(rank=rank):
            pass
    return IncidentRecord(
        number=number,
        incarnation=line.incarnation,
        at_s=at_s,
        rank=rank,
        cause=line.name,
        what=what_ended(line),
        step=step,
    )


def _who_stayed(plan: Plan) -> str:
    """Which recovery it is, in which workers keep their processes."""
    if len(plan.kept) == plan.topology.world_size:
        return "repaired in place, all processes stayed"
    if plan.missing:
        return f"{len(plan.kept)} of {several(plan.topology.world_size, 'rank')} stayed and trained on"
    return f"{several(plan.topology.world_size - len(plan.kept), 'rank')} replaced, {len(plan.kept)} stayed"


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
class SavesRecord:
    """Dying-gasp saves of the run: ranks asked, saved, failed; ``cut`` windows ran out with a rank left.

    Of all ``windows``, ``kept`` are those that left a copy of every rank's state: one rank's save
    is enough where all hold the same.
    """

    asked: int = 0
    saved: int = 0
    failed: int = 0
    cut: int = 0
    windows: int = 0
    _kept: int = 0
    _times_s: list[float] = field(default_factory=list)
    _asked_now: frozenset[int] = frozenset()
    _copies: dict[tuple[int, str], frozenset[int]] = field(default_factory=dict)

    @property
    def took_s(self) -> float | None:
        """The median time of a save, None without one."""
        return median(self._times_s) if self._times_s else None

    @property
    def kept(self) -> int:
        """Windows, the newest among them, that kept all progress."""
        found = frozenset().union(*self._copies.values())
        return self._kept + (bool(self._copies) and found >= self._asked_now)

    def heard(self, line: JournalLine) -> None:
        """One line, of whatever event."""
        match line.event:
            case GaspRequested(ranks=ranks):
                self._kept = self.kept
                self._copies, self._asked_now = {}, frozenset(ranks)
                self.asked += len(self._asked_now)
                self.windows += 1
            case GaspSaved(rank=rank, path=path, took_s=took_s, replica_group=group):
                self.saved += 1
                if len(self._times_s) < _MOST_TIMES:
                    self._times_s.append(took_s)
                self._copies[rank, path] = frozenset(group) or self._asked_now
            case GaspVerified(rank=rank, path=path, whole=False):
                self._copies.pop((rank, path), None)
            case GaspFailed():
                self.failed += 1
            case TimerFired(timer=Timer.GRACE) if line.phase is Phase.KILLING:
                self.cut += 1


@dataclass(slots=True)
class Account:
    """A whole run. ``spent`` sums to ``wall_s``.

    ``steps`` are samples ``(at_s, global step)`` for a plot, thinned out. ``events`` counts journal lines by
    name. ``standbys`` counts what became of warm standbys. ``ended`` is None while the run goes on.
    """

    began_utc: str = ""
    last_utc: str = ""
    wall_s: float = 0.0
    spent: dict[Spending, float] = field(default_factory=dict)
    segments: tuple[Segment, ...] = ()
    lives: list[IncarnationRecord] = field(default_factory=list)
    faults: list[IncidentRecord] = field(default_factory=list)
    stops: int = 0
    restarts: int = 0
    standbys: Counter[str] = field(default_factory=Counter)
    saves: SavesRecord = field(default_factory=SavesRecord)
    refused: Counter[str] = field(default_factory=Counter)
    steps: tuple[tuple[float, int], ...] = ()
    step_s: float | None = None
    high_step: int | None = None
    events: Counter[str] = field(default_factory=Counter)
    ended: tuple[int, str] | None = None
    phase: Phase | None = None

    @property
    def productive_share(self) -> float | None:
        """ETTR: productive time over wall time; None where no rank reported steps."""
        return productive_share(self.spent)

    def followed(self, life: IncarnationRecord, recompute_s: float) -> None:
        """A life is over, all is known of it; so much of it repeated what was lost in the fault before it."""
        self.lives.append(life)
        after = life.after_fault
        for at in reversed(range(len(self.faults) if after is not None else 0)):  # the newest, or nearly
            if self.faults[at].number == after:
                self.faults[at] = replace(self.faults[at])
                self.faults[at].went_on(recompute_s, life)
                break

    @property
    def newest_step(self) -> int | None:
        """Where the newest incarnation is that did a step; None without one."""
        reached = (life.reached_step for life in reversed(self.lives))
        return next((step for step in reached if step is not None), None)

    @property
    def unknown_because(self) -> str | None:
        """Why the productive share is unknown; None where it is known."""
        if self.productive_share is not None:
            return None
        if not self.lives:
            return "no worker ran"
        blind = [life for life in self.lives if life.blind and life.first_step_s is not None]
        if blind:
            unseen = next((life.end for life in self.lives if not life.known_end), "")
            when = _UNSEEN.get(unseen, "it failed")
            when = "a rank died and the others stayed" if blind[0].stayed else when
            return f"how far training was when {when} is not known"
        told = [one for life in self.lives for one in (life.left_off, life.place, life.last) if one]
        if any(one.in_epoch is not None for one in told):
            return "the steps in its logs are counted anew in every epoch"
        if told or self.high_step is not None:
            return "its logs do not tell which steps were trained twice"
        if self.ended is not None and self.lives[-1].end.startswith("incident"):
            return "it failed before a step was seen"
        return "the script reports no steps"

    @property
    def lost_steps(self) -> int | None:
        """Steps that were trained twice, over all lives; None where it is not known of one."""
        repeated = [life.repeated_steps for life in self.lives[1:]]
        known = [steps for steps in repeated if steps is not None]
        return sum(known) if len(known) == len(repeated) else None
