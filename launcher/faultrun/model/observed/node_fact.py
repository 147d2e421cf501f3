"""What a node says of itself to the others. The latest statement wins."""

from dataclasses import dataclass, field
from enum import Enum

from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.event_base import UNLESS_USED
from faultrun.model.incident import Incident, Save, Unsaved
from faultrun.model.plan import Ledger
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId


class NodeStatus(Enum):
    """How far a node is with the incarnation that the statement names."""

    JOINED = "joined"  # no worker; any earlier incarnation is gone
    DRAINED = "drained"  # its workers of this incarnation are gone
    READY = "ready"  # it applied the plan and holds a port; no worker has been started
    RUNNING = "running"  # its workers of this incarnation may live
    REPLACING = "replacing"  # some of its workers are gone, and the others wait for who takes their place
    DONE = "done"  # its workers of this incarnation all ended 0

    @property
    def busy(self) -> bool:
        """Whether the node is bound to the incarnation until that is over there."""
        return self in (NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.REPLACING)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFact:
    """One statement of one node.

    ``addr`` is where others reach it. ``incident`` is its own evidence: what its exits and their
    last words showed. ``point`` is what it would resume from, ``more_points`` what else it could,
    best first. ``high_step`` is the largest global step it knows of, ``reached`` how far its ranks were where
    no incident tells it (their supervisor was killed with them, or told to stop). ``failure`` is the
    exit code and reason when this node cannot go on (unkillable worker, rewriting failed),
    ``lacks`` why nothing that it saw can be resumed from: another look may find more. ``arrived`` and
    ``alarm`` are filled in by the agreement, which counts arrivals and alarms of all nodes; 0 where it did
    not. So is ``seat``, the node rank that it was started with, None where nobody said one. ``look`` is the
    newest request to look through the checkpoints again that ``point`` answers, -1 where it is of before
    the incarnation's end.
    ``saves`` and ``unsaved`` are what its ranks saved, or could not, as the incarnation ended.
    ``native_scheduler``: its ranks need MindSpore's own scheduler process. ``forming``: as the incarnation
    ended all ranks had met at our own scheduler, which is here, and were not through ``init()``.
    ``kept`` are ranks that live on while others are replaced; ``meeting_port``: where they could meet those
    of other nodes again, 0 where nobody listens. ``usable`` are slots of this node that had been set aside
    and are well again, ``faulty`` those whose devices the platform has given up.
    ``hangs``: what people were told of a rank that may hang; it decides nothing.
    ``unfit``: the failure is this node's own (its disk, its kernel), so another may take its place.
    ``open_port``: where ranks of the next incarnation could meet here; 0 where more than that has to be
    prepared before they start, or may have to wait.
    ``saved`` is a checkpoint that the run has made since a plan that resumes from none. ``ledger`` is what
    the run had spent by the journal of a supervisor that came back: the store may have lost its data.
    """

    node: NodeId
    boot: BootId
    at_s: float
    incarnation: int
    status: NodeStatus = field(metadata={"wire": "standing"})
    incident: Incident | None = None
    stop: StopSource | None = None
    point: RecoveryPoint | None = None
    high_step: int = -1
    reached: int = field(default=-1, metadata=UNLESS_USED)
    master_port: int = 0
    failure: tuple[int, str] | None = None
    addr: str = ""
    more_points: tuple[RecoveryPoint, ...] = ()
    arrived: int = 0
    alarm: int = 0
    look: int = -1
    saves: tuple[Save, ...] = ()
    unsaved: tuple[Unsaved, ...] = ()
    native_scheduler: bool = False
    forming: bool = False
    kept: frozenset[int] = frozenset()
    usable: tuple[int, ...] = field(default=(), metadata=UNLESS_USED)
    faulty: tuple[int, ...] = field(default=(), metadata=UNLESS_USED)
    hangs: str = field(default="", metadata=UNLESS_USED)
    unfit: bool = field(default=False, metadata=UNLESS_USED)
    lacks: str = field(default="", metadata=UNLESS_USED)
    meeting_port: int = field(default=0, metadata=UNLESS_USED)
    open_port: int = field(default=0, metadata=UNLESS_USED)
    seat: int | None = field(default=None, metadata=UNLESS_USED)
    saved: str = field(default="", metadata=UNLESS_USED)
    ledger: Ledger | None = field(default=None, metadata=UNLESS_USED)

    @property
    def points(self) -> tuple[RecoveryPoint, ...]:
        """Everything that this node could resume from, best first."""
        return self.more_points if self.point is None else (self.point, *self.more_points)
