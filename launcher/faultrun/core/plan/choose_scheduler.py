"""Which scheduler serves MindSpore's ranks in the next incarnation: ours, or MindSpore's own process.

Pure. Ours is on one node and only that one knows how it fares, so the plan says which it is, for all
nodes: workers are started differently (``frameworks.environment``), and another node may serve next.
"""

from collections.abc import Sequence
from dataclasses import replace

from faultrun.core.diagnosis.diagnose import describe
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.model.run import RunState

INSTEAD = "MindSpore's own scheduler process serves the rest of the run"


def with_scheduler(plan: Plan, seated: Sequence[NodeFact]) -> Plan:
    """Ours serves if it can serve the ranks of every node."""
    native = any(fact.native_scheduler for fact in seated)
    given_up = plan.aftermath is not None and plan.aftermath.incident.cause is Cause.RENDEZVOUS
    return replace(plan, native_scheduler=native or given_up)


def scheduler_abandoned(state: RunState, plan: Plan) -> bool:
    """Whether ours has been given up for the rest of the run: not where this node never could use it.

    So it stays given up when the node that served is lost.
    """
    return state.run.native_scheduler or (plan.native_scheduler and not state.native_scheduler)


def left_init(incident: Incident, plan: Plan, spoken: Sequence[NodeFact]) -> Incident:
    """Blame the built-in scheduler where a worker of another node left ``init()`` by itself, with an error.

    Our scheduler knows which ranks are in ``init()``, and the worker's node how the worker ended.
    """
    others = [fact for fact in spoken if fact.node != incident.node]
    forming = any(fact.left.forming and fact.incarnation == incident.incarnation for fact in others)
    if not forming or incident.cause is not Cause.EXIT or plan.native_scheduler or incident.status is None:
        return incident
    left = f"rank {incident.rank} {describe(incident.status)}"
    why = f"{left} in init() on node {incident.node}, where the built-in scheduler serves it; {INSTEAD}"
    return replace(incident, cause=Cause.RENDEZVOUS, rank=None, status=None, explanation=why)
