"""Where each node stands towards a plan: judged once from its statement, and all that follows rests on it.

Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, repeat

from faultrun.errors import assert_never
from faultrun.model.observed.node_fact import (
    NodeDone,
    NodeDrained,
    NodeFact,
    NodeJoined,
    NodeReady,
    NodeReplacing,
    NodeRunning,
)
from faultrun.model.plan import Plan
from faultrun.model.stop import StopSource
from faultrun.model.topology import BootId, NodeId

# With a seat or without one: it comes before anything else.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """It takes part in a newer incarnation: there must be a plan that is not known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundToEarlier:
    """It is bound to an earlier ``incarnation``, of which the plan keeps no rank there."""

    incarnation: int


# Without a seat.


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare:
    """It has no seat; ``free``: it could take one under the plan's number."""

    free: bool


# With a seat: the incarnation cannot begin or go on.


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Its node has no statement in etcd: the lease is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """It ends the incarnation (``why``, and for which ``stop``), and is still bound to one."""

    why: str
    stop: StopSource | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """It has no workers (it may have drained, and live), and begins none by this plan; ``stop``: for one."""

    why: str
    stop: StopSource | None


# With a seat: it takes part.


@dataclass(frozen=True, slots=True, kw_only=True)
class WantsToStay:
    """Survivors of the plan's incarnation, ``ranks``, wait there for who takes the places of the dead.

    ``meets_at`` is where those of other nodes could meet them again; empty where none listens. ``said`` is
    all that the node says of them.
    """

    ranks: frozenset[int]
    meets_at: str
    said: NodeReplacing


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptByPlan:
    """Survivors of an earlier incarnation, ``ranks``, wait there for this plan; ``said``: all of them."""

    ranks: frozenset[int]
    said: NodeReplacing


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """It has not spoken since the plan was made, and will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitsGo:
    """It has applied the plan, and started no worker yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trains:
    """Its workers may live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Its workers all ended 0."""


Decisive = (
    Ahead
    | BoundToEarlier
    | Lost
    | Leaves
    | Idle
    | WantsToStay
    | KeptByPlan
    | Behind
    | AwaitsGo
    | Trains
    | Finished
)
"""What can decide how the run goes on."""

NodeStanding = Decisive | Spare

_DECIDES = (
    (Ahead, BoundToEarlier),
    (Lost, Leaves, Idle),
    (WantsToStay,),
    (KeptByPlan, Behind),
    (AwaitsGo,),
    (Trains,),
    (Finished,),
)
"""Groups of standings, most urgent first: the first of the most urgent decides what follows."""

_URGENCY = {kind: place for place, kinds in enumerate(_DECIDES) for kind in kinds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """What the nodes stated (``facts``) and where each stands towards ``plan``, lost members included."""

    plan: Plan
    facts: Mapping[NodeId, NodeFact]
    by_node: Mapping[NodeId, NodeStanding]

    @property
    def seats(self) -> Iterator[tuple[NodeId, Decisive]]:
        """Members and where they stand, in the order of the plan's seats."""
        for seat in self.plan.topology.nodes:
            if not isinstance((one := self.by_node[seat.node]), Spare):
                yield seat.node, one

    @property
    def members(self) -> list[NodeFact]:
        """What those members stated that are not lost."""
        return [self.facts[node] for node, _ in self.seats if node in self.facts]

    @property
    def foremost(self) -> tuple[NodeId, Decisive]:
        """The node that decides what follows."""
        first = ((node, one) for node, one in self.by_node.items() if isinstance(one, Ahead | BoundToEarlier))
        known = [*islice(first, 1), *self.seats]
        return min(known, key=lambda one: _URGENCY[type(one[1])], default=(NodeId(""), Finished()))

    def all_are(self, *kinds: type[NodeStanding]) -> bool:
        """Whether every member stands as one of these."""
        return all(isinstance(one, kinds) for _, one in self.seats)


def standings(plan: Plan, here: Mapping[NodeId, NodeFact]) -> Standings:
    """Where all nodes that are ``here``, and the members that are not, stand towards ``plan``."""
    named = chain[BootId | None](plan.boots, repeat(None))  # a plan without boots is for any supervisor
    boots = {seat.node: boot for seat, boot in zip(plan.topology.nodes, named, strict=False)}
    facts, found = dict[NodeId, NodeFact](), dict[NodeId, NodeStanding]()
    for node, fact in here.items():
        seated = node in boots
        its = seated and boots[node] in (None, fact.boot)
        facts[node] = fact.without_evidence() if _of_another_run(plan, fact, its=its) else fact
        found[node] = _standing(plan, fact, seated=seated, its=its)
    lost = {node: Lost() for node in boots if node not in found}
    return Standings(plan=plan, facts=facts, by_node={**found, **lost})


def of_this_run(plan: Plan, fact: NodeFact) -> NodeFact:
    """What a node states, without what it tells of another run's last incident and saves."""
    its = plan.is_for(fact.node, fact.boot)
    return fact.without_evidence() if _of_another_run(plan, fact, its=its) else fact


def is_kept(plan: Plan, fact: NodeFact) -> bool:
    """Whether the plan is what the survivors of an earlier incarnation wait for there."""
    return _waits_for(plan, fact) and plan.is_for(fact.node, fact.boot)


def _standing(plan: Plan, fact: NodeFact, *, seated: bool, its: bool) -> NodeStanding:
    """``its``: whether it is the supervisor that the plan names; to look for it there takes time."""
    life, now = fact.incarnation, plan.incarnation
    kept = its and _waits_for(plan, fact)
    if life > now and (its or fact.busy):
        return Ahead()
    if life < now and fact.busy and not kept:
        return BoundToEarlier(incarnation=life)
    if not seated:
        # By an earlier run's number it would not take the plan's.
        return Spare(free=fact.is_free and life <= now)
    if why := _why_over(plan, fact, its=its):
        return Leaves(why=why, stop=fact.stop) if fact.busy else Idle(why=why, stop=fact.stop)
    return _of_who_takes_part(plan, fact)


def _of_who_takes_part(plan: Plan, fact: NodeFact) -> NodeStanding:
    early = fact.incarnation < plan.incarnation
    match fact.status:
        case NodeReplacing(kept=ranks) as said if early:
            return KeptByPlan(ranks=ranks, said=said)
        case NodeDone() if early and plan.kept and len(plan.topology.nodes) == 1:
            return Finished()  # all that the plan keeps had finished before it came
        case _ if early:
            return Behind()
        case NodeReplacing(kept=ranks, meeting_port=port) as said:
            return WantsToStay(ranks=ranks, meets_at=_address(fact, port), said=said)
        case NodeReady():
            return AwaitsGo()
        case NodeRunning():
            return Trains()
        case NodeDone():
            return Finished()
        case NodeJoined() | NodeDrained():
            unseen = "".join(fact.resume.unseen[-1:])
            why = f"does not see {unseen}" if unseen else "has given it up"
            return Idle(why=f"node {fact.node} {why}", stop=None)
        case _:
            assert_never(fact.status)


def _why_over(plan: Plan, fact: NodeFact, *, its: bool) -> str:
    """Why the incarnation cannot begin or go on with this member, whatever it does; empty where it can."""
    if fact.stop is not None:
        return f"node {fact.node} was told to stop"
    if fact.failure is not None:
        return f"node {fact.node} cannot go on: {fact.failure[1]}"
    early = fact.incarnation < plan.incarnation
    if early and plan.begins_anew and fact.resume.lacks:  # it found torn ones since it was given its seat
        return f"node {fact.node} cannot begin at zero: {fact.resume.lacks}"
    if not its:
        return f"node {fact.node} has another supervisor"
    if early and plan.kept and isinstance(fact.status, NodeJoined | NodeDrained) and plan.keeps_on(fact.node):
        return f"on node {fact.node} no rank lives that it keeps"
    return ""


def _waits_for(plan: Plan, fact: NodeFact) -> bool:
    """Whether survivors of an earlier incarnation are there, and the plan keeps some."""
    return isinstance(fact.status, NodeReplacing) and fact.incarnation < plan.incarnation and bool(plan.kept)


def _of_another_run(plan: Plan, fact: NodeFact, *, its: bool) -> bool:
    """Whether a node without a seat counts further than the run: its log_dir is of one of the same name."""
    return fact.incarnation > plan.incarnation and not (its or fact.busy)


def _address(fact: NodeFact, port: int) -> str:
    host = f"[{fact.addr}]" if ":" in fact.addr else fact.addr
    return f"{host}:{port}" if port else ""
