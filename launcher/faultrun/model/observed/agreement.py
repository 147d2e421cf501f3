"""What a node hears of the others while the nodes agree: that an incarnation is over, or nothing at all."""

from dataclasses import dataclass, field

from faultrun.model.event_base import UNLESS_USED, FactOfNodes
from faultrun.model.plan import Plan
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationOver(FactOfNodes):
    """Another node cannot go on with ``incarnation``, so none can. ``node``: which, if that is known.

    ``stop``: it was told to stop, which is no fault. ``stays``: ranks keep their processes for the next one
    where every node's can; else all save, and end.
    """

    why: str
    node: NodeId = NodeId("")
    stop: StopSource | None = None
    stays: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipLost(FactOfNodes):
    """This node may be taken for lost by now: another may get its place, so none of its workers may live.

    It is about the node, whatever incarnation it has. ``boot`` is the name under which its supervisor goes
    on; empty: as before. ``since_s``: from then on its workers may have been killed for it; None: from now.
    """

    why: str
    boot: BootId = BootId("")
    since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain(FactOfNodes):
    """Others may have saved since this one looked. ``number`` counts such requests."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementSilent(FactOfNodes):
    """No etcd answers, and every node says so: training goes on.

    It is about the node, whatever incarnation it has.
    """

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNodeAside(FactOfNodes):
    """This node gets no rank until it is well, and ``why``.

    ``plan`` is the one that set it aside, with the incident for which it did; None once there is a newer one.
    """

    why: str
    plan: Plan | None = field(default=None, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanElsewhere(FactOfNodes):
    """The others go on by ``plan``, in which this node, which had ranks before, has none: it is a spare."""

    plan: Plan


AgreementEvent = IncarnationOver | MembershipLost | LookAgain | AgreementSilent | OwnNodeAside | PlanElsewhere
