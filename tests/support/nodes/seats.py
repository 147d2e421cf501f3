"""Nodes of a run that may have fewer, and what they would plan: for tests of who takes part."""

from collections.abc import Iterable
from dataclasses import replace

from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.core.plan.waiting import Waiting
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import PlanAdopted
from faultrun.model.observed.elastic import Elastic
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.plan import Plan
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from support.nodes.node_facts import node_fact
from support.stories.story import POLICY, checkpoint, first_plan

A, B, C, D = (NodeId(name) for name in "abcd")
NOBODYS = Topology(nodes=(NodeSlots(node=NodeId(""), slots=2),) * 3)
ELASTIC = Elastic(min_workers=4, min_nodes=2)
FIXED = replace(checkpoint(10), fixed_by="its state is sharded: s.0 holds that of rank 0 only")


def rules(elastic: Elastic | None = ELASTIC) -> Rules:
    return Rules(topology=NOBODYS, policy=POLICY, lease_ttl_s=10, elastic=elastic)


def seats(*names: NodeId) -> Topology:
    return Topology(nodes=tuple(NodeSlots(node=name, slots=2) for name in names))


THREE = replace(first_plan(6), topology=seats(A, B, C), boots=tuple(map(BootId, "abc")))


def fact(
    node: NodeId, plan: Plan | None = THREE, point: RecoveryPoint | None = None, at: int = 0
) -> NodeFact:
    """A node without workers: a member of ``plan`` has just ended it."""
    member = plan is not None and any(seat.node == node for seat in plan.topology.nodes)
    return node_fact(
        node=node,
        boot=BootId(node),
        at_s=0,
        incarnation=plan.incarnation if plan is not None and member else -1,
        status=NodeStatus.JOINED,
        point=point or checkpoint(10),
        arrived=at or ord(node),
    )


def follows(
    plan: Plan | None,
    facts: Iterable[NodeFact],
    elastic: Elastic | None = ELASTIC,
    *,
    wait_is_over: bool = False,
    stopped: Iterable[NodeId] = (),
) -> Plan | Waiting:
    here, told = {one.node: one for one in facts}, frozenset(stopped)
    answer = next_step(rules(elastic), plan, here, 1.0, wait_is_over=wait_is_over, stopped=told)
    if isinstance(answer, Waiting):
        return answer
    assert isinstance(answer, PlanAdopted), answer
    return answer.plan


def waits_for(
    plan: Plan | None,
    facts: Iterable[NodeFact],
    elastic: Elastic | None = ELASTIC,
    *,
    wait_is_over: bool = False,
) -> str:
    """What a person reads of the wait for nodes."""
    following = follows(plan, facts, elastic, wait_is_over=wait_is_over)
    assert isinstance(following, Waiting), following
    assert following.missing
    assert following.hopeless == ("cannot go on" in following.reason)
    return following.reason


def planned(
    plan: Plan | None, *facts: NodeFact, elastic: Elastic | None = ELASTIC, wait_is_over: bool = True
) -> Plan:
    following = follows(plan, facts, elastic, wait_is_over=wait_is_over)
    assert isinstance(following, Plan), following
    return following


def names(plan: Plan) -> str:
    return "".join(seat.node for seat in plan.topology.nodes)
