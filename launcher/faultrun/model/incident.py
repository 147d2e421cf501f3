"""One fault and every exit that it caused."""

from dataclasses import dataclass, field
from enum import Enum

from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.event_base import UNLESS_USED
from faultrun.model.exits import ExitStatus
from faultrun.model.observed.evidence import FaultClass, Finding, Raised, Signature
from faultrun.model.observed.recovery import ResumeChecked
from faultrun.model.topology import NodeId, Replacement


class Cause(Enum):
    """How an incident was noticed; a card's line ``cause`` tells its ``finding`` and ``raised`` first."""

    SIGNAL = "signal"
    EXIT = "exit"
    SCHEDULER = "scheduler"
    SPAWN = "spawn"
    PLATFORM = "platform"
    RENDEZVOUS = "rendezvous"
    HANG = "hang"
    MEMORY = "memory"  # of a rank's device, whose process lives
    REJOIN = "rejoin"  # survivors and the newcomer did not become one group
    NODE = "node"  # a whole node is gone
    FENCE = "fence"  # a node ended its own ranks, because another may have got its place
    ELSEWHERE = "elsewhere"  # on another node, which knows more
    GROWTH = "growth"  # nothing failed: slots that had been set aside are well again
    UNHEALED = "unhealed"  # nothing failed now: no rank came for a place that was empty for too long


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A judgement: who failed first, who merely followed, and how far training had come.

    ``number`` counts incidents of the run from 1. ``rank`` is None when no worker is to blame (MindSpore's
    scheduler died, the platform asks for a restart). ``step`` is the newest global step that any rank
    reported or, where ranks do not report (``step_from_log``), that a log mentions; None if unknown. A
    log may tell only of the epoch and its step ``in_epoch``, and one step in
    ``step_every`` (0: unknown). ``blamed_by`` names the evidence that ``rank`` was the first. ``unstarted``:
    the workers report their steps, and none had finished one. ``stacks`` is where a hung rank was, and the
    folder of all ranks' stacks. ``own_step`` is the newest step of ``rank``
    itself, None if unknown. ``node`` is where it was, empty in older journals; ``at_utc`` the moment,
    where several nodes tell of it. ``unkept``: why no rank kept its process although one could have; "" where
    that was no question. ``opened`` are files of checkpoints that were read before the first step; None:
    that could not be seen. ``of_before``: a survivor of the incident before died before all had done a
    step: it is one fault with that, and is neither charged nor held against the program once more.
    """

    number: int
    incarnation: int
    at_s: float
    cause: Cause
    rank: int | None
    status: ExitStatus | None
    followers: tuple[int, ...] = ()
    together: tuple[int, ...] = ()
    step: int | None = None
    epoch: int | None = None
    step_from_log: bool = False
    in_epoch: int | None = None
    explanation: str = ""
    last_line: str = ""
    fault_class: FaultClass = FaultClass.UNKNOWN
    finding: Finding | None = None
    raised: Raised | None = None
    signature: Signature | None = None
    blamed_by: str = ""
    unstarted: bool = False
    stacks: str = ""
    own_step: int | None = None
    node: NodeId = NodeId("")
    at_utc: str = ""
    unkept: str = field(default="", metadata=UNLESS_USED)
    opened: tuple[str, ...] | None = field(default=None, metadata=UNLESS_USED)
    step_every: int = field(default=1, metadata=UNLESS_USED)
    of_before: bool = field(default=False, metadata=UNLESS_USED)

    @property
    def ordered(self) -> bool:
        """Whether no worker failed: living ones were ended, for the platform, a scheduler or a new number.

        It is not their fault, and nothing was torn by a death.
        """
        return self.cause in (Cause.PLATFORM, Cause.RENDEZVOUS, Cause.GROWTH, Cause.UNHEALED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """One dying-gasp save that a rank reported; ``memory``: one of its memory snapshot."""

    rank: int
    step: int
    path: str
    took_s: float
    group: tuple[int, ...] = ()
    verified: bool = False
    memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaved:
    """A rank that was asked to save and said why it could not."""

    rank: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentAnswer:
    """How a plan went on after an incident, for cards that are written once that plan is over.

    ``restarts`` count against the budget; ``workers`` says with how many it went on, and why.
    """

    world_size: int
    restarts: int
    point: RecoveryPoint | None = None
    replaced: tuple[Replacement, ...] = ()
    kept: frozenset[int] = frozenset()
    workers: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """What the nodes of a run together know of an incident that a plan answers: each writes its card from it.

    ``saves`` and ``unsaved`` are of the ranks of all nodes. ``refunded`` restarts were given back for
    progress. ``world_size`` is that of the world which the incident ended, where the next has another; 0: as
    many. ``answer`` is None in the plan that answers it; a node that tells of it again tells that plan's.
    """

    incident: Incident
    saves: tuple[Save, ...] = ()
    unsaved: tuple[Unsaved, ...] = ()
    refunded: int = 0
    world_size: int = field(default=0, metadata=UNLESS_USED)
    answer: IncidentAnswer | None = field(default=None, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The first-failure card: everything a person asks about one incident.

    ``restart`` is None when the run gave up, with ``why`` saying so. Times are seconds from the first death
    (from the last sign of life of a rank that hung): ``restarted_after_s`` to the new workers running,
    ``trained_after_s`` to the slowest rank's first step. ``handed_over``: something tells the script of
    ``point``; ``checked``: where it really began, once that is known. ``looked_in`` are the checkpoint
    folders. ``refunded`` restarts were given back for progress. ``at_local`` is the wall-clock time of the
    fault with its offset, ``host`` the machine. ``replaced``: whose place another node takes. ``kept`` are
    ranks that stayed, and ``rejoined_step`` the step that all went on after, once they were one group; None
    before. ``recovers_itself``: those that stayed do that in their own way. ``workers`` is how many the run
    goes on with and why, empty where that is no question. ``told_by`` is the argument that tells the script
    to resume, and not from what; ``opened`` is what it had opened that is no whole checkpoint;
    ``refused_why`` names the newest file that was refused, and says why. Without ``missing`` ranks the others
    train on; ``healed_after_s``: until the first of them was back; ``unhealed``: none was, and that is over.
    """

    incident: Incident
    world_size: int
    saves: tuple[Save, ...]
    point: RecoveryPoint | None
    refused: int
    restart: tuple[int, int] | None
    window_s: float
    why: str = ""
    backoff_s: float = 0.0
    restarted_after_s: float | None = None
    trained_after_s: float | None = None
    log_name: str = ""
    unsaved: tuple[Unsaved, ...] = ()
    handed_over: bool = True
    checked: ResumeChecked | None = None
    looked_in: tuple[str, ...] = ()
    refunded: int = 0
    at_local: str = ""
    host: str = ""
    replaced: tuple[Replacement, ...] = ()
    kept: tuple[int, ...] = ()
    rejoined_step: int | None = None
    recovers_itself: bool = False
    workers: str = field(default="", metadata=UNLESS_USED)
    told_by: str = field(default="", metadata=UNLESS_USED)
    opened: str = field(default="", metadata=UNLESS_USED)
    refused_why: str = field(default="", metadata=UNLESS_USED)
    missing: tuple[int, ...] = field(default=(), metadata=UNLESS_USED)
    barred: tuple[int, ...] = field(default=(), metadata=UNLESS_USED)
    healed_after_s: float | None = field(default=None, metadata=UNLESS_USED)
    unhealed: bool = field(default=False, metadata=UNLESS_USED)
