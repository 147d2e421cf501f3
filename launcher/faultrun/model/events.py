"""What the supervisor can be told.

An event is a fact with a time on it; what to do about it is decided in ``core``. ``at_s`` counts run-seconds:
monotonic inside one supervisor and continued from the journal by the next, so budgets outlive a boot.
``incarnation`` is the life of the worker group that the fact belongs to.
"""

from dataclasses import dataclass, field
from enum import Enum

from faultrun.model.checkpoint import RecoveryPoint, Refusal
from faultrun.model.event_base import UNLESS_USED, Fact, FactOfNodes
from faultrun.model.exits import ExitStatus, ended_well
from faultrun.model.incident import Aftermath
from faultrun.model.observed.agreement import (
    AgreementEvent,
    AgreementSilent,
    IncarnationOver,
    LookAgain,
    OwnNodeAside,
    PlanElsewhere,
)
from faultrun.model.observed.dying_gasp import GaspEvent
from faultrun.model.observed.elastic import ElasticEvent, NodesWaiting
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.hang import HangEvent
from faultrun.model.observed.mindspore_rendezvous import RendezvousEvent
from faultrun.model.observed.platform_notice import Notice
from faultrun.model.observed.progress import RankStep
from faultrun.model.observed.recovery import RecoveryEvent
from faultrun.model.observed.rejoin import RejoinEvent
from faultrun.model.observed.saves import SavesEvent
from faultrun.model.observed.standby import StandbyEvent
from faultrun.model.plan import Plan
from faultrun.model.stop import StopRequested, StopSource
from faultrun.model.topology import BootId, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Fact):
    """A supervisor took up the run, for the first time or after another supervisor was lost.

    ``notices`` are what the platform's files said by then. ``run_id`` and ``addr``, where other nodes reach
    this one, are empty in journals of versions that did not write them. ``stop_by_s``: the platform ends the
    job soon after. ``native_scheduler``: our own scheduler does not serve this node's ranks (MindSpore).
    ``machine``: which start of the kernel it is, ``oom_kills``: how many processes of its control group the
    kernel has ended for want of memory by then. ``came_to``: the furthest step of the life that was cut off.
    """

    node: NodeId
    boot: BootId
    pid: int
    notices: tuple[Notice, ...] = ()
    run_id: str = ""
    stop_by_s: float | None = None
    addr: str = ""
    native_scheduler: bool = False
    machine: str = field(default="", metadata=UNLESS_USED)
    oom_kills: int = field(default=0, metadata=UNLESS_USED)
    came_to: int | None = field(default=None, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPointChosen(Fact):
    """This node looked through the checkpoints; ``point`` is the best for it. The plan says what is resumed.

    ``left_alone`` counts checkpoints that were found and, by ``--resume``, not considered. ``neighbours`` are
    other runs that keep theirs in the same folders. ``unknown_files`` says what lies there in no known
    format, when no checkpoint was found. ``periodic_step`` is the global step of the newest save that the
    script made by itself (no dying gasp), as its file claims: where training would resume without us. -1:
    there is none, None: unknown. ``more_points`` are older ones, best first, for nodes that lack ``point``;
    none where there is one node. ``open_port``: see ``NodeFact``; of several nodes only. ``others`` are runs
    that saved in the same folders while this one was away, and whose saves it does not take.
    """

    point: RecoveryPoint | None
    refused: tuple[Refusal, ...]
    left_alone: int = 0
    unknown_files: str = ""
    neighbours: tuple[str, ...] = ()
    took_s: float = 0.0
    periodic_step: int | None = None
    more_points: tuple[RecoveryPoint, ...] = ()
    open_port: int = field(default=0, metadata=UNLESS_USED)
    others: tuple[str, ...] = field(default=(), metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingWhole(Fact):
    """Checkpoints exist or existed and none is whole: going on would silently start from zero.

    ``gone_s``: none is to be seen, for so long by now (a mount that dropped); None: they are seen.
    """

    refused: tuple[Refusal, ...]
    why: str
    gone_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAdopted(FactOfNodes):
    """A plan for the next incarnation has come; ``begin.adopt`` takes it, or says why not now."""

    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRewritten(Fact):
    """One configuration file now names the recovery point."""

    file: str
    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Fact):
    """This node applied the plan and holds a port; no worker runs yet."""

    master_port: int
    took_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareFailed(Fact):
    """This node cannot begin the next incarnation. ``exit_code``: what the run ends with, but if ``unseen``.

    ``unfit``: for want of room on a disk of this node, so that another may take its place. ``surveying``: it
    was found while a recovery point was looked for, and is about no plan that may be over by now.
    ``unseen``: another node's checkpoint that this one does not see; one that all see may do.
    """

    exit_code: int
    why: str
    unfit: bool = field(default=False, metadata=UNLESS_USED)
    surveying: bool = field(default=False, metadata=UNLESS_USED)
    unseen: str = field(default="", metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoGiven(FactOfNodes):
    """Every node is prepared: workers may start and meet at this address."""

    master_addr: str
    master_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Fact):
    """The process of ``rank`` was executed, or a standby got its place."""

    node: NodeId
    rank: int
    pid: int
    standby: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnFailed(Fact):
    """The process of ``rank`` could not be executed. ``errno`` is 0 when the kernel gave none."""

    rank: int
    errno: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationStarted(Fact):
    """All workers of this node are running."""

    ranks: tuple[int, ...]
    master_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit(Fact):
    """One worker was reaped, in the order in which the kernel ended them.

    ``status`` keeps the kernel's own split: a rank that *returns* 137 is a program's choice, a rank *killed*
    by SIGKILL is usually the OOM killer's. ``done``: it had said by ``sdk.done`` that nothing is left to do.
    """

    node: NodeId
    rank: int
    pid: int
    status: ExitStatus
    done: bool = False

    @property
    def clean(self) -> bool:
        """Whether its end is no failure; see ``ended_well``."""
        return ended_well(self.status, done=self.done)


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperExit(Fact):
    """A process that serves the workers ended, such as MindSpore's scheduler."""

    name: str
    pid: int
    status: ExitStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Fact):
    """How far ranks are: all that report when a rank ended, now and then the first and the last."""

    steps: tuple[RankStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStep(Fact):
    """Every rank of this node has reported a step of this incarnation: training again.

    ``step`` is the newest by then, ``began`` the lowest that a rank reported first.
    """

    step: int
    began: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersLost(Fact):
    """What the workers left whose supervisor was killed with them, found by the next one.

    ``steps`` are of the ranks that reported theirs, else the last that their logs tell (``by_log``).
    ``alive_s`` is the run-second of the last sign of life, None without one.
    """

    steps: tuple[RankStep, ...] = ()
    by_log: bool = False
    alive_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultNotice(Fact):
    """One of the platform's files says something new. It is about the run, whatever incarnation it has.

    ``known``: it had said so before this supervisor began, and was read late.
    """

    notice: Notice
    known: bool = field(default=False, metadata=UNLESS_USED)


class Timer(Enum):
    """What is waited for."""

    GRACE = "grace"  # survivors writing their dying-gasp checkpoint
    REAP = "reap"  # killed workers that the kernel has not given back yet
    BACKOFF = "backoff"  # the pause before a restart
    HOLD = "hold"  # the platform, which does not want workers now
    FORMING = "forming"  # ranks that met at our own scheduler, until their init() is through
    STANDBY = "standby"  # the next look after the standbys
    ANSWERS = "answers"  # other nodes, which were asked whether a rank of theirs holds up ours
    LOOK = "look"  # a folder of checkpoints that is gone for the moment
    REJOIN = "rejoin"  # survivors and the newcomer, until they are one group
    HEAL = "heal"  # who takes a place that is empty while the others train
    NEWCOMER = "newcomer"  # who is to come for such a place: the next try, or the first that is overdue
    LACK = "lack"  # nothing whole was found; another look of a node that waits for a plan
    HANDOVER = "handover"  # standbys that got a rank and have not answered yet


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired(Fact):
    """A wait is over."""

    timer: Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained(Fact):
    """No process of the incarnation is left on this node: SWEEPING, and not DRAINING, ends with it.

    ``stragglers`` are pids that survived SIGKILL for the whole reap window.
    ``swept`` counts escaped descendants that were found by tag and killed. ``left`` says who ran on when
    every rank had ended with 0, and what became of it.
    """

    stragglers: tuple[int, ...]
    swept: int
    notes: tuple[DeathNote, ...]
    left: str = field(default="", metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(FactOfNodes):
    """The run is over; every node exits with ``exit_code``.

    ``stopped``: the user asked for it, by ``stop``; None in journals of versions that did not tell.
    ``aftermath`` is of the incident of several nodes that no plan answers any more.
    ``unheard`` are nodes of which this one, whose own ranks all ended with 0, does not know how theirs did.
    ``restarts`` of the run, which a node without a seat has not followed; None: its own plan tells.
    ``wanting``: nodes for want of whose checkpoints it ends: another look of theirs may show more.
    """

    exit_code: int
    why: str
    stopped: bool | None = None
    unheard: tuple[NodeId, ...] = ()
    stop: StopSource | None = None
    aftermath: Aftermath | None = None
    restarts: int | None = field(default=None, metadata=UNLESS_USED)
    wanting: tuple[NodeId, ...] = field(default=(), metadata=UNLESS_USED)


_OfRun = RunStarted | WorkersLost | StopRequested | FaultNotice | TimerFired | RunFinished
_OfStart = (
    RecoveryPointChosen | NothingWhole | PlanAdopted | ConfigRewritten | Prepared | PrepareFailed | GoGiven
)
_OfWorkers = WorkerStarted | SpawnFailed | IncarnationStarted | WorkerExit | HelperExit | Drained
_OfSteps = Heartbeat | FirstStep | RecoveryEvent
_OfTrouble = HangEvent | GaspEvent | SavesEvent | RejoinEvent | ElasticEvent
Event = (
    _OfRun | _OfStart | _OfWorkers | _OfSteps | _OfTrouble | RendezvousEvent | StandbyEvent | AgreementEvent
)

_OfAgreement = IncarnationOver | LookAgain | AgreementSilent | OwnNodeAside | PlanElsewhere
NodesEvent = PlanAdopted | GoGiven | NodesWaiting | RunFinished | _OfAgreement
"""What many nodes agreed on, as one supervisor is told of it."""
