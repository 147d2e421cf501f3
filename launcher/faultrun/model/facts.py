"""What a node says of itself to the others. Latest statement wins."""

from dataclasses import dataclass
from enum import Enum

from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.incident import Incident
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId


class Standing(Enum):
    """How far a node is with the incarnation that the statement names."""

    JOINED = "joined"  # no worker; any earlier incarnation is gone
    DRAINED = "drained"  # its workers of this incarnation are gone
    READY = "ready"  # it applied the plan
    DONE = "done"  # its workers of this incarnation all ended 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFact:
    """One statement of one node.

    ``high_step`` is the largest global step it knows of. ``failure`` is the
    exit code and reason when this node cannot go on (no whole checkpoint,
    unkillable worker, rewriting failed).
    """

    node: NodeId
    boot: BootId
    at_s: float
    incarnation: int
    standing: Standing
    incident: Incident | None = None
    stop: StopSource | None = None
    point: RecoveryPoint | None = None
    high_step: int = -1
    master_port: int = 0
    failure: tuple[int, str] | None = None
