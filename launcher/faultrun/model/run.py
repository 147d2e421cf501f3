"""The state of one run on one node: everything ``decide`` may look at."""

from dataclasses import dataclass, replace
from enum import Enum

from faultrun.model.actions import Action
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import WorkerExit
from faultrun.model.exits import WorkerExitCodes
from faultrun.model.incident import Incident, Save
from faultrun.model.observed.hang import PauseHistory, Standstill
from faultrun.model.observed.platform_notice import Platform
from faultrun.model.observed.progress import RankStep
from faultrun.model.observed.saves import SavesSeen
from faultrun.model.plan import Ledger, Plan
from faultrun.model.spec.windows import NO_TIME, Deadline, Windows
from faultrun.model.stop import Stop
from faultrun.model.topology import BootId, NodeId, Topology


class Phase(Enum):
    """Where the run stands on this node."""

    NEW = "new"
    SURVEYING = "surveying"  # looking for the recovery point
    AWAITING_PLAN = "awaiting_plan"
    BACKING_OFF = "backing_off"
    HOLDING = "holding"  # the platform keeps workers from being started
    PREPARING = "preparing"  # rewriting configurations, reserving ports
    AWAITING_GO = "awaiting_go"
    RUNNING = "running"
    REPLACING = "replacing"  # ranks that live leave their group, and wait for the plan of the next one
    DRAINING = "draining"  # survivors are inside the grace window
    KILLING = "killing"  # the window is over; the kernel owes us the rest
    SWEEPING = "sweeping"  # helpers and escaped descendants, until Drained and the saves are read back
    FINISHED = "finished"

    @property
    def without_workers(self) -> bool:
        """Whether a run that is under way has none now, and none that is ending."""
        return self in _WITHOUT_WORKERS


_DRAINS = frozenset({Phase.REPLACING, Phase.DRAINING, Phase.KILLING})
_WITHOUT_DRAIN = frozenset(
    {Phase.BACKING_OFF, Phase.HOLDING, Phase.PREPARING, Phase.AWAITING_GO, Phase.RUNNING}
)
_WITHOUT_WORKERS = frozenset(
    {
        Phase.SURVEYING,
        Phase.AWAITING_PLAN,
        Phase.BACKING_OFF,
        Phase.HOLDING,
        Phase.PREPARING,
        Phase.AWAITING_GO,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a rank that heard the gasp request can save; None: nothing, and ``why`` it could not."""

    rank: int
    step: int | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """How a life ends: from its first fault, or a stop, until all is swept and read back or replaced.

    ``incident`` is None where no rank failed. The grace window ends at ``deadline``. ``reading`` are rank and
    path of the saves that are being read back, ``swept`` says that no process is left. Another
    node was told to stop, as was heard at ``stop_elsewhere_s``.
    """

    incident: Incident | None = None
    deadline: Deadline = NO_TIME
    promises: tuple[Promise, ...] = ()
    saves: tuple[Save, ...] = ()
    reading: frozenset[tuple[int, str]] = frozenset()
    swept: bool = False
    stop_elsewhere_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Why a node that looked through the checkpoints can resume from none, and since when."""

    why: str
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What belongs to one incarnation on this node; the next begins with none of it.

    ``topology`` is the plan's, None while none has been adopted by this supervisor. ``point`` is what its
    plan resumes from, or else this node would, ``more_points`` what else it could. Workers meet at
    ``master_port``. ``alive`` are this node's ranks that have not been reaped. ``forming``: they have met at
    our own MindSpore scheduler and are not through ``init()``. ``drain`` is None until it ends. ``look`` was
    asked for while this node was looking through the checkpoints, 0: nothing was.

    ``rejoinable`` are ranks that can leave their group and form another, ``rejoining`` those of which that is
    awaited, ``regroups`` how often it was without a step of all in between. ``sharing`` is what each rank has
    said last of doing a missing one's share, "" if it can; ``parked`` are ranks whose newcomer waits at its
    first step. Places are empty since ``empty_since_s`` (None: all are taken); ``waits``: they were empty for
    too long, so no rank trains on before newcomers come. ``unswept`` are ranks that were replaced since all
    were one group, with the incarnation in which each died.

    ``usable`` are slots of this node that were set aside and are well again, ``waiting`` nodes that could
    take a vacant seat. ``standstill``: no rank has moved for longer than is usual. ``master_addr`` is the
    host of ``master_port``, "" for this one; ``meeting_port`` where survivors of several nodes could meet
    here, ``open_port`` where the ranks of the next life could, if nothing else has to be prepared for it.
    ``offered`` are this node's own points before a plan took the one of all nodes. ``reached``: how far the
    ranks were that an earlier supervisor had. ``lacks``: nothing that was seen last can be resumed from.
    ``opened`` are files of checkpoints that were read before the first step; None: unknown.
    """

    topology: Topology | None = None
    point: RecoveryPoint | None = None
    more_points: tuple[RecoveryPoint, ...] = ()
    master_port: int = 0
    alive: frozenset[int] = frozenset()
    finished: frozenset[int] = frozenset()
    exits: tuple[WorkerExit, ...] = ()
    steps: tuple[RankStep, ...] = ()
    forming: bool = False
    drain: Drain | None = None
    look: int = 0
    rejoinable: frozenset[int] = frozenset()
    rejoining: frozenset[int] = frozenset()
    regroups: int = 0
    sharing: tuple[tuple[int, str], ...] = ()
    parked: frozenset[int] = frozenset()
    empty_since_s: float | None = None
    waits: bool = False
    unswept: tuple[tuple[int, int], ...] = ()
    usable: tuple[int, ...] = ()
    waiting: tuple[NodeId, ...] = ()
    standstill: Standstill = Standstill()
    master_addr: str = ""
    meeting_port: int = 0
    open_port: int = 0
    offered: tuple[RecoveryPoint, ...] = ()
    reached: int = -1
    lacks: Lack | None = None
    opened: tuple[str, ...] | None = None

    @property
    def newest(self) -> RankStep | None:
        """The newest step that a rank of this life reported."""
        return max(self.steps, key=lambda step: step.step, default=None)

    def reaped(self, end: WorkerExit) -> "Life":
        """One rank less is alive; its end is remembered in order, and so is a clean one."""
        finished = self.finished | {end.rank} if end.clean else self.finished
        return replace(self, alive=self.alive - {end.rank}, finished=finished, exits=(*self.exits, end))

    def stepped(self, steps: tuple[RankStep, ...]) -> "Life":
        """The newest step of every rank that reported."""
        newest = {step.rank: step for step in (*self.steps, *steps)}
        return replace(self, steps=tuple(newest[rank] for rank in sorted(newest)))

    def said_of_sharing(self, rank: int, word: str | None) -> "Life":
        """What ``rank`` says now of doing a missing one's share; None: it was not asked."""
        others = tuple(one for one in self.sharing if one[0] != rank)
        return replace(self, sharing=others if word is None else (*others, (rank, word)))

    @property
    def incident(self) -> Incident | None:
        """What ended it, if something failed."""
        return None if self.drain is None else self.drain.incident

    @property
    def saves(self) -> tuple[Save, ...]:
        """What its ranks saved as it ended."""
        return () if self.drain is None else self.drain.saves


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the run keeps, over all its lives and supervisors.

    ``plan`` is the last that was adopted, ``high_step`` the largest global step that is known.
    ``native_scheduler``: our own scheduler for MindSpore is given up for the rest of the run. ``patience``:
    what its lives have come through. ``known_save`` is the newest checkpoint that the run resumed from or was
    told of: where one was, "nothing found" is no beginning. ``seen``: what its saves were seen to be made of.
    ``save_folders`` are where ranks said that they saved. ``look``: the newest request of the other nodes to
    look through the checkpoints again that this one has answered. ``unseen``: as in ``Resumable``.
    ``machine``, ``oom_kills`` and ``came_to`` are those of the newest supervisor's start.
    """

    plan: Plan | None = None
    high_step: int = -1
    platform: Platform = Platform()
    native_scheduler: bool = False
    patience: PauseHistory = PauseHistory()
    known_save: str = ""
    save_folders: tuple[str, ...] = ()
    look: int = 0
    seen: SavesSeen = SavesSeen()
    unseen: tuple[str, ...] = ()
    machine: str = ""
    oom_kills: int = 0
    came_to: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Where a run stands on one node: the ``run``, the ``life`` of now, and how this supervisor ends.

    ``topology`` and ``windows`` are what this supervisor was started with; ``addr`` is where others reach
    it, ``stop_by_s`` when the platform ends its job, ``native_scheduler`` whether its ranks need MindSpore's
    scheduler process from the start, ``exit_codes`` what they mean by theirs, ``shrinks`` whether the run may
    go on with fewer workers, ``fewer_nodes`` whether with fewer nodes. ``stop`` and ``failure``
    (exit code, why) say why no incarnation follows; the next supervisor has neither. ``unfit``: the failure
    is about this node alone, and others may go on without it. ``unheard``: nodes that may not have finished,
    although this one has. ValueError: what cannot be.
    """

    node: NodeId
    topology: Topology
    windows: Windows
    exit_codes: WorkerExitCodes = WorkerExitCodes.USUAL
    shrinks: bool = False
    fewer_nodes: bool = False
    boot: BootId = BootId("")
    addr: str = ""
    stop_by_s: float | None = None
    native_scheduler: bool = False

    phase: Phase = Phase.NEW
    run: Run = Run()
    life: Life = Life()
    stop: Stop | None = None
    failure: tuple[int, str] | None = None
    unfit: bool = False
    exit_code: int | None = None
    unheard: tuple[NodeId, ...] = ()

    def __post_init__(self) -> None:
        if self.done != (self.exit_code is not None):
            raise ValueError("a run has an exit code when it is over, and not before")
        if self.phase in _DRAINS and self.life.drain is None:
            raise ValueError(f"{self.phase.value} without a window")
        if self.phase in _WITHOUT_DRAIN and self.life.drain is not None:
            raise ValueError(f"{self.phase.value} with what ended the life before")

    @property
    def plan(self) -> Plan | None:
        """The last plan that was adopted."""
        return self.run.plan

    @property
    def incarnation(self) -> int:
        """The life of the worker group that the last plan named; -1 before the first."""
        return -1 if self.run.plan is None else self.run.plan.incarnation

    @property
    def barred(self) -> frozenset[int]:
        """Missing ranks that get no newcomer, because their slots are not known to be well again."""
        slots = [(self.node, slot) for slot in self.life.usable]
        return frozenset() if self.plan is None else self.plan.barred(slots)

    @property
    def ledger_before(self) -> Ledger | None:
        """What the run of several nodes had spent before this supervisor came, as its journal tells."""
        plan = self.run.plan
        of_this_one = plan is None or plan.of_one_node or plan.is_for(self.node, self.boot)
        return None if plan is None or of_this_one else plan.ledger

    @property
    def recovers_itself(self) -> bool:
        """Whether the ranks that live know what to do about one that died."""
        return self.exit_codes is WorkerExitCodes.TORCHFT

    @property
    def seats(self) -> Topology:
        """Who takes part: by the plan of this life, else as the run was asked for."""
        return self.life.topology or self.topology

    @property
    def done(self) -> bool:
        """Whether nothing will be done any more."""
        return self.phase is Phase.FINISHED

    @property
    def has_finished(self) -> bool:
        """Whether all ranks that this supervisor had of the last plan ended with 0; they stay so."""
        plan, life = self.run.plan, self.life
        ended = self.phase.without_workers and life.drain is None and bool(life.finished)
        return ended and plan is not None and plan.is_for(self.node, self.boot)

    @property
    def cut_off(self) -> bool:
        """Whether nothing more was heard while workers ran: they died with their supervisor, at one blow."""
        return not (self.phase.without_workers or self.done) and self.stop is None

    @property
    def trained(self) -> bool:
        """Whether the run came to its own end: every rank returned 0 and it was not told to stop."""
        return self.done and self.stop is None and self.exit_code == 0 and not self.unheard

    @property
    def given_up(self) -> bool:
        """Whether the run ended without having been told to, and before its training did."""
        return self.done and self.stop is None and self.exit_code != 0

    @property
    def incidents(self) -> int:
        """Incidents so far, the open one included."""
        if self.life.incident is not None:
            return self.life.incident.number
        return self.plan.ledger.incidents if self.plan is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decision: the next state, what to do now, and why in words."""

    state: RunState
    actions: tuple[Action, ...] = ()
    why: str
