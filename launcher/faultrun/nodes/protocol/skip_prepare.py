"""Whether an incarnation begins with the very write that plans it: where no node has anything to prepare.

Pure. Preparing shows what keeps a node from starting before another starts, and where all can meet. A node
that needs neither more than a port nor a moment says so with its survey; where all do, the two writes in
between, its word and *go*, would only be waited for. It prepares all the same before it starts its ranks, and
one that cannot, against its word, ends the incarnation for all, as it would a moment later.
"""

from collections.abc import Sequence

from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.nodes.values.roster import PlanHeader


def meeting(
    plan: Plan, seated: Sequence[NodeFact], before: PlanHeader | None, now_s: float
) -> tuple[str, int] | None:
    """Address and port where its ranks meet; None: first all prepare.

    ``seated`` are the statements of its nodes, in their order; ``before`` is what the plan follows. The first
    of a run is always prepared: nodes come minutes apart.
    """
    if before is None:
        return None
    if plan.kept:  # who lives has nothing to prepare; others find all at work
        return before.master_addr, before.master_port
    waits = plan.start_at_s > now_s or not all(fact.open_port and _has_seen(fact, plan) for fact in seated)
    return None if waits else (seated[0].addr, seated[0].open_port)


def _has_seen(fact: NodeFact, plan: Plan) -> bool:
    """Whether the files of its ranks were there as it looked: what another node sees may come late here."""
    point, ranks = plan.point, plan.topology.ranks_of(fact.node)
    if point is None:
        return True
    points = fact.resume.points
    return any(all(own.path_for(rank) == point.path_for(rank) for rank in ranks) for own in points)
