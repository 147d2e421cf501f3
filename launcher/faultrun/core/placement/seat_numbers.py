"""Seats by their number among all of a run (``--nnodes=MIN:MAX``), free or taken. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from faultrun.core.placement.place import NOBODY, slots_of_nodes, taken
from faultrun.model.observed.elastic import Vacant
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.model.topology import NodeId, Topology


def vacant_in(wanted: Topology, plan: Plan) -> tuple[Vacant, ...]:
    """The vacant ones; none where the run is continued with other seats than ``plan`` was made for."""
    vacant = () if plan.slots is None else plan.slots.vacant
    slots = slots_of_nodes(wanted)
    now = slots_of_nodes(plan.topology)
    same = len(slots) == len(now) + len(vacant) and {*now} <= {*slots}
    return vacant if same else ()


def emptied(seats: Topology, numbers: Collection[int]) -> Topology:
    """Return ``seats`` with no node in those of these ``numbers``."""
    return Topology(
        nodes=tuple(
            replace(seat, node=NOBODY) if number in numbers else seat
            for number, seat in enumerate(seats.nodes)
        )
    )


def numbers(seats: Topology) -> Topology:
    """Each seat with its number as its name."""
    return Topology(nodes=tuple(replace(seat, node=NodeId(f"{at}")) for at, seat in enumerate(seats.nodes)))


def numbered(seats: Topology) -> Topology:
    """Return the seats that a node has, each with its number as its name."""
    both = zip(numbers(seats).nodes, seats.nodes, strict=True)
    return Topology(nodes=tuple(named for named, seat in both if seat.node != NOBODY))


def as_listed(
    seats: Topology, here: Iterable[NodeFact], closed: Collection[int], fewest: int
) -> Topology | None:
    """Give each seat that is not ``closed`` to a present node that is listed for it; None: too few have one.

    By a rank table, which gives no node the devices of another. Of two the one that had it before keeps it.
    """
    there = sorted(here, key=lambda fact: (fact.arrived, fact.node))

    def whose(number: int, had: NodeId) -> NodeId:
        listed = [fact.node for fact in there if fact.seat == number and number not in closed]
        return had if had in listed else next(iter(listed), NOBODY)

    given = tuple(replace(seat, node=whose(number, seat.node)) for number, seat in enumerate(seats.nodes))
    found = Topology(nodes=given)
    return found if len(taken(found).nodes) >= fewest else None
