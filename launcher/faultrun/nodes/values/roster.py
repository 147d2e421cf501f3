"""What nodes write down for one another: their statements, who takes part, the plan's header, alarms.

Every value here is what one key of the run holds. What all nodes watch is kept small: lists of
nodes and of files lie under names of their own, which the header tells.
"""

from dataclasses import dataclass, field, replace
from enum import Enum

from faultrun.core.plan.waiting import Waiting
from faultrun.model.event_base import UNLESS_USED
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What one supervisor of a node says of itself: ``node/<id>/<boot>``.

    ``peer_addr`` is where other nodes reach its member process. ``machine`` names the hardware, so that
    another supervisor of the same node knows whether it stands on the same: empty if unknown.
    ``asked`` is a digest of what the run was started with there. ``node_rank`` is what a person asked for.
    """

    fact: NodeFact
    peer_addr: str
    machine: str = ""
    asked: str = ""
    node_rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterEntry:
    """One node of an incarnation, under the supervisor that it was planned for."""

    node: NodeId
    slots: int
    boot: BootId
    peer_addr: str = ""
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Who takes part, in node-rank order: ``topology/<name>``, written once and never changed."""

    entries: tuple[RosterEntry, ...]

    @property
    def topology(self) -> Topology:
        """The seats that it gives."""
        return Topology(nodes=tuple(NodeSlots(node=one.node, slots=one.slots) for one in self.entries))

    @property
    def boots(self) -> tuple[BootId, ...]:
        """The supervisors that it names, in the same order."""
        return tuple(one.boot for one in self.entries)

    def entry(self, node: NodeId) -> RosterEntry | None:
        """The seat of ``node``, whatever its supervisor is."""
        return next((one for one in self.entries if one.node == node), None)

    def has(self, node: NodeId, boot: BootId) -> bool:
        """Whether this supervisor takes part: a member."""
        entry = self.entry(node)
        return entry is not None and entry.boot == boot

    def completes(self, body: Plan) -> Plan:
        """The plan whose part without nodes is ``body``."""
        return replace(body, topology=self.topology, boots=self.boots)


class PlanPhase(Enum):
    """How far the run is with the incarnation that the header names. In this order."""

    PREPARE = "prepare"
    GO = "go"
    LOOK = "look"  # it is over; a node without workers looks through the checkpoints again
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHeader:
    """What every node is to do now: ``all/plan``, under 1 kB whatever the run's size is.

    ``roster`` and ``body`` are the names of its two large parts. ``look`` counts, over the whole run, how
    often nodes were asked to look through the checkpoints again, ``missing`` names the lost nodes because of
    whom. ``run_s`` is the run's clock when this was written. ``fewer``: who was waited for is not in the next
    plan. ``saved`` is a checkpoint that the run is known to have, also when every node that saw it is gone.
    The rest is about GO and FINISHED; ``last`` names a body that tells of the incident which no plan
    answers any more.
    """

    incarnation: int
    phase: PlanPhase
    roster: str
    body: str
    run_s: float
    look: int = 0
    missing: str = ""
    master_addr: str = ""
    master_port: int = 0
    exit_code: int = 0
    why: str = ""
    stopped: bool = False
    last: str = ""
    stop: StopSource | None = None
    fewer: bool = field(default=False, metadata=UNLESS_USED)
    saved: str = field(default="", metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """Who coordinates: ``all/coordinator``. ``waits`` says for what, empty while nothing is missing.

    ``hopeless``: the nodes that are here cannot go on without it. The revision at which the key was created
    is the coordinator's token.
    """

    node: NodeId
    boot: BootId
    asked: str = ""
    waits: str = ""
    hopeless: bool = field(default=False, metadata=UNLESS_USED)

    @property
    def waiting(self) -> Waiting | None:
        """What the run waits for; None while nothing is missing."""
        return Waiting(reason=self.waits, hopeless=self.hopeless) if self.waits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Any node's word that ``incarnation`` is over: all drain it (``all/alarm/<n>``); ``stop``: for a stop.

    ``stays``: ranks that can outlive it are to stay, on every node; a later one without it ends them all.
    """

    incarnation: int
    node: NodeId
    why: str
    stop: StopSource | None = None
    stays: bool = False
