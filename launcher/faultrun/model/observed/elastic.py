"""A world that shrinks and grows: how far it may, and which nodes, or slots of one, take no part."""

from dataclasses import dataclass, field
from enum import Enum

from faultrun.model.event_base import UNLESS_USED, Fact, FactOfNodes
from faultrun.model.topology import NodeId


class Grow(Enum):
    """When a world that shrank takes its workers back."""

    AT_SAVE = "at_save"  # once their slots are well again, at the next whole save
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """The run may go on with fewer workers, no fewer than ``min_workers``, and takes others back by ``grow``.

    ``health_check`` is a command that says with 0 whether a slot that was set aside is well again; empty:
    it is unknown, and none is taken back. ``min_nodes``: of several nodes whole ones are left out, and no
    fewer than these go on (all: a bad one only gives its seat to a spare); 0: there is one node, whose slots
    are. ``fixed_seats``: a rank table says whose each seat is, so no other node may have it.
    """

    min_workers: int
    grow: Grow = Grow.AT_SAVE
    health_check: str = ""
    min_nodes: int = field(default=0, metadata=UNLESS_USED)
    fixed_seats: bool = field(default=False, metadata=UNLESS_USED)

    def keeps_size(self, nodes: int) -> bool:
        """Whether a run of so many nodes needs all of them."""
        return self.min_nodes == nodes > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A slot that gets no worker from ``incarnation`` on, and ``why``.

    ``well``: nothing is known against it, but its worker would be a part of a copy of the model that
    lacks another part. ``named``: by the platform, which will say when it is well again.
    """

    node: NodeId
    slot: int
    incarnation: int
    why: str
    well: bool = False
    named: bool = field(default=False, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accused:
    """The slot that failed last, and how often in a row, with no other failing in between.

    Of several nodes it is the node, and ``slot`` is 0.
    """

    node: NodeId
    slot: int
    failures: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacant:
    """A seat of the whole run, by its place among all, that no node has from ``incarnation`` on, and ``why``.

    ``node`` had it last, and gets it back where it comes first; empty: no node has had it.
    """

    seat: int
    node: NodeId
    incarnation: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAside:
    """A node that gets no rank from ``incarnation`` on, and ``why``, until it is well."""

    node: NodeId
    incarnation: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLedger:
    """What a run that may shrink knows of its slots. Belongs to the run: it travels in the plan.

    ``groups`` are the replica groups of the whole world where ranks hold different parts of the model, by
    rank of that world; none: all hold the same. ``refused``: why no fewer workers were planned although a
    slot asked for it. ``stays_small``: why no more were although slots are well; that is not tried again. Of
    several nodes ``vacant`` are seats without a node, and ``nodes`` those that were set aside. ``empty`` are
    slots that get no newcomer until they are well: their ranks are missing, and the others train on.
    """

    aside: tuple[SetAside, ...] = ()
    accused: Accused | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    refused: str = ""
    stays_small: str = ""
    vacant: tuple[Vacant, ...] = field(default=(), metadata=UNLESS_USED)
    nodes: tuple[NodeAside, ...] = field(default=(), metadata=UNLESS_USED)
    empty: tuple[SetAside, ...] = field(default=(), metadata=UNLESS_USED)

    @property
    def bad(self) -> tuple[SetAside, ...]:
        """Those that something is known against."""
        return tuple(one for one in self.aside if not one.well)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsUsable(Fact):
    """Slots of ``node`` that had been set aside are well again, and a whole save (``path``) lies there."""

    node: NodeId
    slots: tuple[int, ...]
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesWaiting(FactOfNodes):
    """Nodes without a seat that could take one which is vacant; none: no node is there any more."""

    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveWhileNodesWait(Fact):
    """A whole save (``path``) lies there, from which the run can go on with the nodes that wait."""

    path: str


ElasticEvent = SlotsUsable | NodesWaiting | SaveWhileNodesWait
