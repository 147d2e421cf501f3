"""Why an incarnation cannot begin or go on, from what its members stated; who has yet to hear of it. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from faultrun.core.plan.joint_incident import loss_words
from faultrun.core.plan.keep_survivors import plan_came_too_late, seats_beside
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.plan import Plan
from faultrun.model.stop import StopSource
from faultrun.model.topology import NodeId, Topology

Over = tuple[str, StopSource | None]
"""Why it is over, and whether for a stop; the text is empty while it is not."""


def why_over(plan: Plan, here: Mapping[NodeId, NodeFact], lease_ttl_s: float) -> Over:
    """Why the plan's incarnation cannot begin or go on."""
    for place, seat in enumerate(plan.topology.nodes):
        fact = here.get(seat.node)
        if fact is None:
            return loss_words(plan.topology, seat.node, lease_ttl_s), None
        why = _why_given_up(plan, fact, is_its=not plan.boots or plan.boots[place] == fact.boot)
        if why[0]:
            return why
    return "", None


def why_given_up(plan: Plan, fact: NodeFact) -> Over:
    """The same, of a member that is there."""
    return _why_given_up(plan, fact, is_its=plan.is_for(fact.node, fact.boot))


def _why_given_up(plan: Plan, fact: NodeFact, *, is_its: bool) -> Over:
    """``is_its``: whether it is the supervisor that the plan names; to look for it there takes time."""
    if fact.stop is not None:
        return f"node {fact.node} was told to stop", fact.stop
    if fact.failure is not None:
        return f"node {fact.node} cannot go on: {fact.failure[1]}", None
    if _refuses(plan, fact):
        return f"node {fact.node} cannot begin at zero: {fact.lacks}", None
    if not is_its:
        return f"node {fact.node} has another supervisor", None
    if fact.incarnation == plan.incarnation and fact.status in (NodeStatus.JOINED, NodeStatus.DRAINED):
        return f"node {fact.node} has given it up", None
    if plan_came_too_late(plan, fact):
        return f"on node {fact.node} nobody lives that it keeps", None
    return "", None


def is_behind(plan: Plan, fact: NodeFact) -> bool:
    """Whether it has not spoken since the plan was made, and will: whoever ends takes no plan any more."""
    if fact.incarnation >= plan.incarnation or fact.stop is not None or fact.failure is not None:
        return False
    if _refuses(plan, fact):
        return False
    return plan.is_for(fact.node, fact.boot) and not plan_came_too_late(plan, fact)


def _refuses(plan: Plan, fact: NodeFact) -> bool:
    """Whether it found torn checkpoints since it was given a seat in a plan that begins without any."""
    return bool(fact.lacks) and fact.incarnation < plan.incarnation and plan.begins_anew


def beside_the_lost(plan: Plan, here: Mapping[NodeId, NodeFact]) -> Topology | None:
    """The next seats, where nodes are lost, spares can have their places, and the others' ranks may stay.

    Not in a run that has become smaller: who gets which seat then is asked anew.
    """
    slots = plan.slots
    if slots is not None and (slots.aside or slots.vacant or slots.nodes):
        return None
    return seats_beside(plan, here, lambda fact: not why_given_up(plan, fact)[0])


def is_ahead(plan: Plan, fact: NodeFact) -> bool:
    """Whether a newer plan must be there: somebody who takes part follows it."""
    return fact.incarnation > plan.incarnation and not _is_of_another_run(plan, fact)


def of_this_run(plan: Plan, fact: NodeFact) -> NodeFact:
    """The same, without what it tells of another run's last incident and saves."""
    if not _is_of_another_run(plan, fact):
        return fact
    return replace(fact, incident=None, saves=(), unsaved=(), saved="")


def _is_of_another_run(plan: Plan, fact: NodeFact) -> bool:
    """Whether a node without a seat counts further than the run: its log_dir is of one of the same name."""
    if fact.incarnation <= plan.incarnation:
        return False
    return not (plan.is_for(fact.node, fact.boot) or fact.status.busy)


def on_its_node(node: NodeId, why: str) -> str:
    """``why`` with the node whose disk, files or processes it is about: all nodes say it."""
    return why if f"node {node}" in why.partition("\n")[0] else f"node {node}: {why}"
