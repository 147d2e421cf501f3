"""What a node says of itself to the others. The latest statement wins.

A statement is a head, which every node fills, over a status with its own fields. Journals and etcd keep one
flat object, with the status in ``standing`` (``FLAT``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

from faultrun.errors import assert_never
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.event_base import FLAT, UNLESS_USED
from faultrun.model.incident import Incident, Save, Unsaved
from faultrun.model.observed.saves import NOTHING_SEEN, SavesSeen
from faultrun.model.plan import Ledger
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId


class NodeStatus(Enum):
    """How far a node is with the incarnation that it names, in a word: peers say no more."""

    JOINED = "joined"
    DRAINED = "drained"
    READY = "ready"
    RUNNING = "running"
    REPLACING = "replacing"
    DONE = "done"

    @property
    def busy(self) -> bool:
        """Whether the node is bound to the incarnation until that is over there."""
        return self in (NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.REPLACING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumable:
    """What a node without workers could resume from.

    ``point`` is what it would take, ``more_points`` what else it could, best first. ``look`` is the newest
    request to look through the checkpoints again that they answer, -1 where they are of before the
    incarnation's end. ``lacks``: why nothing that it saw can be resumed from; another look may find more.
    ``unseen`` are checkpoints of others that it was to resume from, and waited for in vain.
    """

    point: RecoveryPoint | None = None
    more_points: tuple[RecoveryPoint, ...] = ()
    look: int = -1
    lacks: str = field(default="", metadata=UNLESS_USED)
    unseen: tuple[str, ...] = field(default=(), metadata=UNLESS_USED)

    @property
    def points(self) -> tuple[RecoveryPoint, ...]:
        """Everything that this node could resume from, best first."""
        return self.more_points if self.point is None else (self.point, *self.more_points)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """What is known of the ranks that ended here, of the incarnation that the statement names.

    ``incident`` is the node's own evidence: what exits and their last words showed. ``saves`` and ``unsaved``
    are what ranks saved, or could not, as the incarnation ended. ``reached`` is how far they were where no
    incident tells it (their supervisor was killed with them, or told to stop). ``forming``: all ranks had met
    at our own MindSpore scheduler, which is here, and were not through ``init()``.
    """

    incident: Incident | None = None
    saves: tuple[Save, ...] = ()
    unsaved: tuple[Unsaved, ...] = ()
    reached: int = field(default=-1, metadata=UNLESS_USED)
    forming: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHealth:
    """``usable`` slots had been set aside and are well again; the platform has given up those ``faulty``."""

    usable: tuple[int, ...] = field(default=(), metadata=UNLESS_USED)
    faulty: tuple[int, ...] = field(default=(), metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutWorkers:
    """What a node says that has no worker: nothing binds it, and it can begin what is planned next.

    ``open_port``: where ranks of the next incarnation could meet here; 0 where more than that has to be
    prepared before they start, or may have to wait.
    """

    resume: Resumable = field(default=Resumable(), metadata=FLAT)
    left: LeftBehind = field(default=LeftBehind(), metadata=FLAT)
    slots: SlotHealth = field(default=SlotHealth(), metadata=FLAT)
    open_port: int = field(default=0, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJoined(WithoutWorkers):
    """It has no worker and can begin the next plan: a new node, or one that has drained after a fault."""

    WIRE_NAME: ClassVar[str] = NodeStatus.JOINED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDrained(WithoutWorkers):
    """It has no worker and starts none again: this node was told to stop, or the run cannot go on here."""

    WIRE_NAME: ClassVar[str] = NodeStatus.DRAINED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDone(WithoutWorkers):
    """Its workers of this incarnation, who met at ``master_port``, all ended 0."""

    WIRE_NAME: ClassVar[str] = NodeStatus.DONE.value

    master_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReady:
    """It applied the plan and holds ``master_port``; no worker has been started."""

    WIRE_NAME: ClassVar[str] = NodeStatus.READY.value

    master_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRunning:
    """Its workers of this incarnation may live; they met at ``master_port``.

    ``hangs``: what people were told of a rank that may hang; it decides nothing.
    """

    WIRE_NAME: ClassVar[str] = NodeStatus.RUNNING.value

    master_port: int = 0
    hangs: str = field(default="", metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReplacing:
    """Its workers that live leave their group, mostly as one has died, and wait for a plan that keeps them.

    ``kept`` are ranks that live on; ``meeting_port``: where they could meet those of other nodes again, 0
    where none listens. ``trains_on``: they go on without those whose place cannot be taken at once; for
    those of ``ready`` a newcomer waits. ``heals``: none of its workers is gone now, and who is ready comes.
    ``came_in_vain``: who is gone had just come for an empty place, and is charged to none.
    """

    WIRE_NAME: ClassVar[str] = NodeStatus.REPLACING.value

    kept: frozenset[int] = frozenset()
    meeting_port: int = field(default=0, metadata=UNLESS_USED)
    left: LeftBehind = field(default=LeftBehind(), metadata=FLAT)
    slots: SlotHealth = field(default=SlotHealth(), metadata=FLAT)
    trains_on: bool = field(default=False, metadata=UNLESS_USED)
    ready: frozenset[int] = field(default=frozenset(), metadata=UNLESS_USED)
    heals: bool = field(default=False, metadata=UNLESS_USED)
    came_in_vain: bool = field(default=False, metadata=UNLESS_USED)

    def missing(self, plan_ranks: int) -> frozenset[int]:
        """The ranks of so many without whom the others go on at once."""
        gone = frozenset(range(plan_ranks)) - self.kept - self.ready
        return gone if self.trains_on else frozenset()


Status = NodeJoined | NodeDrained | NodeReady | NodeRunning | NodeReplacing | NodeDone
"""How far a node is with the incarnation that its statement names."""

_NOTHING, _NOBODY, _UNCHANGED = Resumable(), LeftBehind(), SlotHealth()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFact:
    """What a supervisor states of its node; it is no event, as a ``Fact`` is. Etcd has it in a ``Statement``.

    ``addr`` is where others reach it. ``failure`` is the exit code and reason when this node cannot go on
    (unkillable worker, rewriting failed); ``unfit``: it is this node's own (its disk, its kernel), so another
    may take its place. ``high_step`` is the largest global step that it knows of. ``saved`` is a checkpoint
    that the run has made since a plan that resumes from none.
    ``native_scheduler``: its ranks need MindSpore's own scheduler process. ``ledger`` is what the run had
    spent by the journal of a supervisor that came back: the store may have lost its data. ``seen`` is what it
    saw of the saves that are written here, where no plan knows that.
    ``arrived`` and ``alarm`` are filled in by the agreement, which counts arrivals and alarms of all nodes; 0
    where it did not. So is ``seat``, the node rank that it was started with, None if none was given.
    """

    node: NodeId
    boot: BootId
    at_s: float
    incarnation: int
    status: Status = field(metadata={"wire": "standing", **FLAT})
    stop: StopSource | None = None
    high_step: int = -1
    failure: tuple[int, str] | None = None
    addr: str = ""
    arrived: int = 0
    alarm: int = 0
    native_scheduler: bool = False
    unfit: bool = field(default=False, metadata=UNLESS_USED)
    seat: int | None = field(default=None, metadata=UNLESS_USED)
    saved: str = field(default="", metadata=UNLESS_USED)
    ledger: Ledger | None = field(default=None, metadata=UNLESS_USED)
    seen: SavesSeen = field(default=NOTHING_SEEN, metadata=UNLESS_USED)

    @property
    def word(self) -> NodeStatus:
        """Its status, as it is said to peers and to people."""
        return NodeStatus(self.status.WIRE_NAME)

    @property
    def busy(self) -> bool:
        """Whether the node is bound to the incarnation until that is over there."""
        return not isinstance(self.status, WithoutWorkers)

    @property
    def is_free(self) -> bool:
        """Whether it has no worker, and will not end of itself."""
        return not self.busy and self.stop is None and self.failure is None

    def status_in(self, incarnation: int) -> Status | None:
        """How far it is with ``incarnation``; None where it speaks of another."""
        return self.status if self.incarnation == incarnation else None

    @property
    def resume(self) -> Resumable:
        """What it could resume from; nothing while it is busy."""
        return self.status.resume if isinstance(self.status, WithoutWorkers) else _NOTHING

    @property
    def left(self) -> LeftBehind:
        """What is known of ranks that ended."""
        match self.status:
            case WithoutWorkers(left=left) | NodeReplacing(left=left):
                return left
            case NodeReady() | NodeRunning():
                return _NOBODY
            case _:
                assert_never(self.status)

    @property
    def slots(self) -> SlotHealth:
        """Which of its slots are well, or not; nothing is known anew while it is busy."""
        return self.status.slots if isinstance(self.status, WithoutWorkers | NodeReplacing) else _UNCHANGED

    @property
    def open_port(self) -> int:
        """Where ranks of the next incarnation could meet here; 0 where that has to be prepared first."""
        return self.status.open_port if isinstance(self.status, WithoutWorkers) else 0

    @property
    def master_port(self) -> int:
        """Where ranks meet that are about to start, run or have finished; 0 for others."""
        match self.status:
            case NodeReady(master_port=port) | NodeRunning(master_port=port) | NodeDone(master_port=port):
                return port
            case NodeJoined() | NodeDrained() | NodeReplacing():
                return 0
            case _:
                assert_never(self.status)

    def able_to_resume(self, points: Sequence[RecoveryPoint]) -> "NodeFact":
        """The statement with only these of its points, in their order."""
        if not isinstance(self.status, WithoutWorkers):
            return self
        first = points[0] if points else None
        known = replace(self.status.resume, point=first, more_points=tuple(points[1:]))
        return replace(self, status=replace(self.status, resume=known))

    def with_left(self, left: LeftBehind) -> "NodeFact":
        """The statement with this instead of what it tells of ranks that ended."""
        match self.status:
            case NodeJoined() | NodeDrained() | NodeDone() | NodeReplacing():
                return replace(self, status=replace(self.status, left=left))
            case NodeReady() | NodeRunning():
                return self
            case _:
                assert_never(self.status)

    def without_evidence(self) -> "NodeFact":
        """The statement without what it tells of an incident and of saves."""
        left = replace(self.left, incident=None, saves=(), unsaved=())
        return replace(self.with_left(left), saved="", seen=NOTHING_SEEN)
