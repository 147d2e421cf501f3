"""The plan that survivors go on by: only the dead are started again. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from faultrun.core.placement.place import replaced
from faultrun.core.plan.after_incident import NextStep, adopted, after_incident, end_incarnation
from faultrun.core.plan.joint_incident import aftermath
from faultrun.core.plan.waiting import Waiting
from faultrun.core.recovery.quarantine import attempts_seen
from faultrun.model.events import PlanAdopted, RunFinished
from faultrun.model.incident import Incident
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.plan import Plan, Reason
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.topology import NodeId, Topology

_TRAINS = (NodeStatus.RUNNING, NodeStatus.REPLACING)


def wants_to_stay(plan: Plan, fact: NodeFact) -> bool:
    """Whether survivors of the plan's incarnation wait there for who takes the places of the dead."""
    return fact.status is NodeStatus.REPLACING and fact.incarnation == plan.incarnation


def is_kept(plan: Plan, fact: NodeFact) -> bool:
    """Whether the plan is what the survivors of an earlier incarnation wait for there."""
    waits = fact.status is NodeStatus.REPLACING and fact.incarnation < plan.incarnation
    return waits and bool(plan.kept) and plan.is_for(fact.node, fact.boot)


def keep(
    policy: RestartPolicy,
    resume_args: Sequence[str],
    plan: Plan,
    members: Sequence[NodeFact],
    incident: Incident | None,
    now_s: float,
) -> NextStep:
    """Who lives goes on in the next incarnation; the restart of the others is charged like one of all.

    ``members`` are the statements of all its nodes but lost ones, ``incident`` what they tell of together. As
    soon as one of them cannot, nobody stays.
    """
    life = plan.incarnation
    for fact in members:
        if fact.status not in _TRAINS:
            return end_incarnation(
                life, f"node {fact.node} has no ranks to keep ({fact.status.value})", now_s
            )
    missing = [fact.node for fact in members if not wants_to_stay(plan, fact)]
    if missing:
        return Waiting(reason=f"the ranks of {', '.join(missing)} to be free")
    if incident is None:
        return Waiting(reason="the end of the workers")
    kept = frozenset[int]().union(*(fact.kept for fact in members))
    meets_at = next((_address(fact) for fact in members if fact.meeting_port), "")
    if not kept or (len(members) > 1 and not meets_at):
        why = "no node listens for survivors" if kept else "no rank lives"
        return end_incarnation(life, why, now_s)
    following = replace(
        plan,
        incarnation=life + 1,
        reason=Reason.FAULT,
        point=None,
        start_at_s=now_s,
        kept=kept,
        since=plan.started,
        replaced=(),
        aftermath=None,
        meets_at=meets_at,
    )
    incidents = max(plan.ledger.incidents, incident.number)
    ledger = replace(plan.ledger, incidents=incidents, attempts=attempts_seen(plan, members))
    counted = replace(plan, ledger=ledger)
    high_step = max(fact.high_step for fact in members)
    answer = after_incident(policy, resume_args, counted, incident, following, high_step)
    match answer:
        case PlanAdopted(plan=charged):
            # Survivors wait with all they hold; what fails again and again is soon given up (replace_ranks).
            told = aftermath(incident, plan, charged, members)
            return adopted(replace(charged, start_at_s=now_s, aftermath=told), now_s)
        case RunFinished(why=why):
            return end_incarnation(life, why, now_s)
        case _:
            return answer


def seats_beside(
    plan: Plan, here: Mapping[NodeId, NodeFact], well: Callable[[NodeFact], bool]
) -> Topology | None:
    """The seats of the next incarnation where nodes are lost and the ranks of all others could stay.

    The spare that arrived first has the seat of a lost node. None where nobody is lost, a member is not
    ``well`` or has no ranks, or there are too few spares.
    """
    nodes = {seat.node for seat in plan.topology.nodes}
    members = [fact for node, fact in here.items() if node in nodes]
    if len(members) == len(nodes) or not members or not all(map(well, members)):
        return None
    if any(fact.incarnation != plan.incarnation or fact.status not in _TRAINS for fact in members):
        return None
    able = [fact for node, fact in here.items() if node not in nodes and _is_free(plan, fact)]
    spares = iter(sorted(able, key=lambda one: (bool(one.lacks), one.arrived, one.node)))
    if len(able) < len(nodes) - len(members):
        return None
    return Topology(
        nodes=tuple(
            seat if seat.node in here else replace(seat, node=next(spares).node)
            for seat in plan.topology.nodes
        )
    )


def _is_free(plan: Plan, fact: NodeFact) -> bool:
    if fact.incarnation > plan.incarnation:
        return False  # by what it knows of an earlier run it would not take the plan's number
    return not fact.status.busy and fact.stop is None and fact.failure is None


def reseated(plan: Plan, seats: Topology, here: Mapping[NodeId, NodeFact]) -> Plan:
    """The plan with its seats given to these nodes."""
    boots = tuple(here[seat.node].boot for seat in seats.nodes)
    return replace(plan, topology=seats, boots=boots, replaced=replaced(plan.topology, seats))


def keep_fewer(plan: Plan, fact: NodeFact, now_s: float) -> NextStep:
    """One more died before the plan was there: the same for who is left, and nothing is charged again.

    On a node alone. Of several some may follow the plan by now: there it ends (``replace_ranks``).
    """
    if not fact.kept < plan.kept:
        return Waiting(reason="the end of the workers")
    return adopted(replace(plan, incarnation=plan.incarnation + 1, kept=fact.kept, start_at_s=now_s), now_s)


def _address(fact: NodeFact) -> str:
    host = f"[{fact.addr}]" if ":" in fact.addr else fact.addr
    return f"{host}:{fact.meeting_port}"


def plan_came_too_late(plan: Plan, fact: NodeFact) -> bool:
    """Whether the survivors that ``plan`` keeps there were given up before it was there."""
    gone = fact.status in (NodeStatus.JOINED, NodeStatus.DRAINED)
    return gone and fact.incarnation < plan.incarnation and bool(plan.keeps_on(fact.node))
