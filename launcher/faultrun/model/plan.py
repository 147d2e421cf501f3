"""How the next incarnation shall look. Given by the agreement, never counted by a node itself."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum

from faultrun.model.checkpoint import Identity, RecoveryPoint
from faultrun.model.event_base import UNLESS_USED
from faultrun.model.incident import Aftermath
from faultrun.model.observed.elastic import SlotLedger
from faultrun.model.observed.evidence import Signature
from faultrun.model.observed.saves import NOTHING_SEEN, SavesSeen
from faultrun.model.spec.run_settings import RunSettings
from faultrun.model.topology import BootId, NodeId, Replacement, Topology


class Reason(Enum):
    """Why an incarnation begins (``FAULTRUN_RESTART_REASON``)."""

    FIRST = "first"
    FAULT = "fault"
    CONTINUED = "continued"  # the supervisor was lost or the run was stopped, and started again


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """One restart that was charged to the budget; ``step`` is how far training had come."""

    at_s: float
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How often a restart from one checkpoint failed without training past it; ``path`` is where it lay."""

    path: str
    failures: int
    identity: Identity | None = None

    def accuses(self, path: str, identity: Identity | None) -> bool:
        """Whether it is about this checkpoint, whatever its name is now; by path where no more is known."""
        if self.identity is None or identity is None:
            return self.path == path
        return self.identity.same_as(identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What the run has spent. Belongs to the run, not to a node: it travels in the plan.

    ``restarts`` are those charged since the last refund. ``total_restarts`` counts every incarnation that
    answers an incident, charged or not: it is what people are told. ``high_step`` is the largest global step
    seen when the last plan was made; ``saved_step`` and ``saved_epoch`` (with the step in it) are the
    furthest that a recovery point told by then, -1 where none did. ``last_signature`` is how the incarnation
    before failed, ``alike`` how many in a row failed like that; ``unopened`` of these had a recovery point
    handed over, and ended before a first step without having opened any checkpoint.
    """

    restarts: tuple[Restart, ...] = ()
    high_step: int = -1
    incidents: int = 0
    total_restarts: int = 0
    attempts: tuple[Attempt, ...] = ()
    saved_step: int = -1
    saved_epoch: tuple[int, int] = (-1, -1)
    last_signature: Signature | None = None
    alike: int = 0
    unopened: int = field(default=0, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One incarnation to be. Workers start no earlier than ``start_at_s``.

    ``boots`` are the supervisors that it was made for, in the order of the nodes; empty in older journals.
    ``kept`` are ranks whose workers live on, with their logs, since the last start of all, incarnation
    ``since``; there is no ``point`` then: their memory is. Those of several nodes meet newcomers at
    ``meets_at`` (host:port). ``missing`` are ranks without whom the others train on; ``heals``: nothing has
    failed, and the newcomers take places that were empty. ``replaced``: who has another's seat now.
    ``aftermath`` is of the incident that several nodes had; None on a node alone.
    ``settings`` are for those who look at the run from outside; nodes have their own.
    ``native_scheduler``: MindSpore's own scheduler process serves its ranks, not ours, on whichever node
    that is. ``slots`` is what a run that may shrink knows of them, None where none has failed. ``seen``: what
    several nodes saw together of the run's saves by then.
    """

    incarnation: int
    topology: Topology
    reason: Reason
    point: RecoveryPoint | None
    start_at_s: float
    ledger: Ledger
    boots: tuple[BootId, ...] = ()
    kept: frozenset[int] = frozenset()
    replaced: tuple[Replacement, ...] = ()
    aftermath: Aftermath | None = None
    settings: RunSettings | None = None
    native_scheduler: bool = False
    since: int = -1
    slots: SlotLedger | None = field(default=None, metadata=UNLESS_USED)
    meets_at: str = field(default="", metadata=UNLESS_USED)
    missing: frozenset[int] = field(default=frozenset(), metadata=UNLESS_USED)
    heals: bool = field(default=False, metadata=UNLESS_USED)
    seen: SavesSeen = field(default=NOTHING_SEEN, metadata=UNLESS_USED)

    @property
    def started(self) -> int:
        """The incarnation that began with a start of all workers; the log files have its number."""
        return self.since if self.kept else self.incarnation

    @property
    def newcomers(self) -> frozenset[int]:
        """Ranks that come in beside those that live on; none where all begin together."""
        every = frozenset(range(self.topology.world_size)) if self.kept else frozenset[int]()
        return every - self.kept - self.missing

    def barred(self, usable: Collection[tuple[NodeId, int]] = ()) -> frozenset[int]:
        """Missing ranks that get no newcomer: their slots are set aside, and not among the ``usable``."""
        out = {(one.node, one.slot) for one in (() if self.slots is None else self.slots.empty)}
        seats = self.topology.nodes
        slots = ((seat.node, seat.place_of(local)) for seat in seats for local in range(seat.slots))
        barred = out.difference(usable)
        return self.missing.intersection(rank for rank, slot in enumerate(slots) if slot in barred)

    @property
    def of_one_node(self) -> bool:
        """Whether the run has one node, and does not only have one left of several."""
        vacant = self.slots is not None and bool(self.slots.vacant)
        return len(self.topology.nodes) == 1 and not vacant

    @property
    def seat_numbers(self) -> tuple[int, ...]:
        """The seat of each node among all of the run, those without a node included."""
        vacant = () if self.slots is None else self.slots.vacant
        gone = {one.seat for one in vacant}
        return tuple(number for number in range(len(self.topology.nodes) + len(gone)) if number not in gone)

    @property
    def begins_anew(self) -> bool:
        """Whether its ranks have no state to go on with."""
        return self.point is None and not self.kept

    def restarts_begun(self, *, begun: bool) -> int:
        """How often workers were started again; a plan after a fault that has not ``begun`` started none."""
        return max(0, self.ledger.total_restarts - (self.reason is Reason.FAULT and not begun))

    def keeps_on(self, node: NodeId) -> frozenset[int]:
        """The ranks of ``node`` whose workers live on; none where it has no seat."""
        seated = self.kept and any(seat.node == node for seat in self.topology.nodes)
        return self.kept.intersection(self.topology.ranks_of(node)) if seated else frozenset()

    def resumes_from(self, node: NodeId) -> str:
        """What the ranks of ``node`` begin with, the first one's where each has its own; empty: nothing."""
        if self.point is None:
            return ""
        seated = any(seat.node == node for seat in self.topology.nodes)
        return self.point.path_for(self.topology.ranks_of(node)[0] if seated else None)

    def is_for(self, node: NodeId, boot: BootId) -> bool:
        """Whether ``node`` takes part in it, and under this supervisor."""
        nodes = [entry.node for entry in self.topology.nodes]
        return node in nodes and (not self.boots or self.boots[nodes.index(node)] == boot)
