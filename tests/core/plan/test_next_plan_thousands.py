"""What a coordinator's decision costs where there are thousands of nodes: passes over them, not seconds."""

from collections.abc import Iterator

import pytest

from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from support.nodes.node_facts import node_fact
from support.stories.story import POLICY, first_plan

TWO = Topology(nodes=(NodeSlots(node=NodeId("a"), slots=2), NodeSlots(node=NodeId("b"), slots=2)))


class Counted(tuple[NodeSlots, ...]):
    """Seats, and how often somebody has gone through them."""

    passes = 0

    def __iter__(self) -> Iterator[NodeSlots]:
        Counted.passes += 1
        return super().__iter__()


@pytest.mark.parametrize("heard", [0, -1])
def test_what_a_coordinator_asks_of_each_node_of_thousands_it_does_not_look_for_among_them_all(
    heard: int,
) -> None:
    nodes = [NodeId(f"n{number}") for number in range(100)]
    seats = Topology(nodes=Counted(NodeSlots(node=node, slots=1) for node in nodes))
    many = first_plan(4, topology=seats, boots=(BootId("b"),) * len(nodes))
    Counted.passes = 0
    standing = NodeStatus.RUNNING if heard == 0 else NodeStatus.JOINED
    said = {
        node: node_fact(node=node, boot=BootId("b"), at_s=0, incarnation=heard, status=standing)
        for node in nodes
    }
    next_step(Rules(topology=TWO, policy=POLICY), many, said, 10)
    assert Counted.passes < 20
