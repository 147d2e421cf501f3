"""Which node has which seat in the next incarnation. Pure, over what the nodes stated."""

from collections.abc import Mapping
from dataclasses import replace

from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.model.topology import NodeId, Replacement, Topology

NOBODY = NodeId("")


def place(
    wanted: Topology, before: Topology | None, facts: Mapping[NodeId, NodeFact], fewest: int | None = None
) -> Topology | None:
    """Give every seat of the run to a node; None while there are too few.

    A node that had a seat in the incarnation ``before`` keeps it. A seat of a
    node that has not spoken, is unfit or was told to stop, goes to the spare that arrived first. A run
    that is continued with other slots is placed as it is ``wanted`` now. Where ``fewest`` seats are enough,
    ``NOBODY`` has the last of those that are left over.
    """
    seats = wanted if before is None or slots_of_nodes(before) != slots_of_nodes(wanted) else before
    here = {node: fact for node, fact in facts.items() if can_sit(fact)}
    free = here.keys() - {seat.node for seat in seats.nodes}
    spares = sorted(free, key=lambda one: (bool(here[one].resume.lacks), here[one].arrived, one))
    kept = sum(seat.node in here for seat in seats.nodes)
    if kept + len(spares) < (len(seats.nodes) if fewest is None else fewest):
        return None
    following = iter(spares)
    return Topology(
        nodes=tuple(
            seat if seat.node in here else replace(seat, node=next(following, NOBODY)) for seat in seats.nodes
        )
    )


def can_sit(fact: NodeFact) -> bool:
    """Whether a node that is there can have ranks in the next incarnation."""
    return not fact.busy and fact.stop is None and not fact.unfit


def taken(seats: Topology) -> Topology:
    """Those that have a node."""
    return Topology(nodes=tuple(seat for seat in seats.nodes if seat.node != NOBODY))


def missing(known: Topology, here: Mapping[NodeId, NodeFact]) -> list[str]:
    """Who has to come, by name, and how many whose names are unknown yet."""
    named = [seat.node for seat in known.nodes if seat.node]
    there = [node for node, fact in here.items() if fact.stop is None]
    others = len(known.nodes) - len(named) - sum(node not in named for node in there)
    unknown = [] if others < 1 else ["another node"] if others == 1 else [f"{others} other nodes"]
    return [*(node for node in named if node not in there), *unknown]


def replaced(before: Topology, after: Topology) -> tuple[Replacement, ...]:
    """Who sits where another sat ``before``; no node does where the run has other seats now."""
    if slots_of_nodes(before) != slots_of_nodes(after):
        return ()
    ranks = taken(after)
    return tuple(
        Replacement(node=old.node, by=new.node, ranks=tuple(sorted(ranks.ranks_of(new.node))))
        for old, new in zip(before.nodes, after.nodes, strict=True)
        if old.node != new.node and NOBODY not in (old.node, new.node)
    )


def does_without(plan: Plan, following: Plan) -> bool:
    """Whether a node that was waited for is not waited for in ``following``: less, or who was set aside."""
    aside = set[NodeId]() if plan.slots is None else {one.node for one in plan.slots.nodes}
    seats = {seat.node for seat in following.topology.nodes}
    return len(seats) < len(plan.topology.nodes) or bool(aside & seats)


def slots_of_nodes(topology: Topology) -> list[int]:
    """How many workers each node has."""
    return [seat.slots for seat in topology.nodes]
