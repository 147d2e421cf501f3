"""The plan that survivors go on by: only the dead are started again. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from faultrun.core.placement.place import replaced
from faultrun.core.placement.slots import still_empty
from faultrun.core.plan.after_incident import NextStep, adopted, after_incident, end_incarnation
from faultrun.core.plan.joint_incident import aftermath
from faultrun.core.plan.standing import KeptByPlan, Lost, Spare, Standings, Trains, WantsToStay
from faultrun.core.plan.waiting import Waiting
from faultrun.core.recovery.quarantine import attempts_seen
from faultrun.model.events import PlanAdopted, RunFinished
from faultrun.model.incident import Incident
from faultrun.model.observed.node_fact import NodeFact, NodeReplacing
from faultrun.model.plan import Plan, Reason
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.topology import NodeId, Topology


def keep(
    policy: RestartPolicy,
    resume_args: Sequence[str],
    nodes: Standings,
    incident: Incident | None,
    now_s: float,
) -> NextStep:
    """Who lives goes on in the next incarnation; the restart of the others is charged like one of all.

    ``incident`` is what the members tell of together that are not lost. If one of them cannot, no rank stays.
    A place is charged once: a newcomer that comes for it later, or in vain, is not.
    """
    plan, members, life = nodes.plan, nodes.members, nodes.plan.incarnation
    free, trains = list[WantsToStay](), list[NodeId]()
    for node, standing in nodes.seats:
        match standing:
            case WantsToStay():
                free.append(standing)
            case Trains() | KeptByPlan():
                trains.append(node)
            case Lost():
                pass
            case _:
                word = nodes.facts[node].word.value
                return end_incarnation(life, f"node {node} has no ranks to keep ({word})", now_s)
    if trains:
        return Waiting(reason=f"the ranks of {', '.join(trains)} to be free")
    heals = len(free) == 1 and free[0].said.heals
    if incident is None and not heals:
        return Waiting(reason="the end of the workers")
    kept = frozenset[int]().union(*(one.ranks for one in free))
    meets_at = next((one.meets_at for one in free if one.meets_at), "")
    if not kept or (len(free) > 1 and not meets_at):
        why = "no node listens for survivors" if kept else "no rank lives"
        return end_incarnation(life, why, now_s)
    following = replace(plan, incarnation=life + 1, reason=Reason.FAULT, point=None, kept=kept, replaced=())
    following = replace(following, start_at_s=now_s, since=plan.started, aftermath=None, meets_at=meets_at)
    missing = free[0].said.missing(plan.topology.world_size) if len(free) == 1 else frozenset[int]()
    following = replace(following, missing=missing, heals=heals)
    if incident is None:
        return adopted(following, now_s)
    incidents = max(plan.ledger.incidents, incident.number)
    ledger = replace(plan.ledger, incidents=incidents, attempts=attempts_seen(plan, members))
    if len(free) == 1 and free[0].said.came_in_vain:
        return adopted(
            replace(following, ledger=replace(ledger, total_restarts=ledger.total_restarts + 1)), now_s
        )
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


def seats_beside(nodes: Standings) -> Topology | None:
    """The seats of the next incarnation where nodes are lost and the ranks of all others could stay.

    The spare that arrived first has the seat of a lost node. None where none is lost, another member has no
    ranks that train, or there are too few spares; nor in a run that has become smaller: there it is asked
    anew who gets which seat.
    """
    slots, seats = nodes.plan.slots, nodes.plan.topology.nodes
    if slots is not None and (slots.aside or slots.vacant or slots.nodes):
        return None
    lost = len(seats) - len(nodes.members)
    if not 0 < lost < len(seats) or not nodes.all_are(Lost, Trains, WantsToStay):
        return None
    able = [nodes.facts[node] for node, one in nodes.by_node.items() if isinstance(one, Spare) and one.free]
    spares = iter(sorted(able, key=lambda one: (bool(one.resume.lacks), one.arrived, one.node)))
    if len(able) < lost:
        return None
    every = (one if one.node in nodes.facts else replace(one, node=next(spares).node) for one in seats)
    return Topology(nodes=tuple(every))


def reseated(plan: Plan, seats: Topology, here: Mapping[NodeId, NodeFact]) -> Plan:
    """The plan with its seats given to these nodes."""
    boots = tuple(here[seat.node].boot for seat in seats.nodes)
    return replace(plan, topology=seats, boots=boots, replaced=replaced(plan.topology, seats))


def keep_fewer(plan: Plan, said: NodeReplacing, now_s: float) -> NextStep:
    """One more died before the plan was there: go on with ranks that are left, and charge nothing again.

    On a node alone. Of several some may follow the plan by now: there it ends (``replace_ranks``).
    """
    if not said.kept < plan.kept:
        return Waiting(reason="the end of the workers")
    fewer = replace(plan, incarnation=plan.incarnation + 1, kept=said.kept, start_at_s=now_s)
    fewer = replace(fewer, missing=said.missing(plan.topology.world_size), heals=said.heals)
    if plan.barred() - fewer.missing:
        return end_incarnation(plan.incarnation, "too few train on beside a place that stays empty", now_s)
    return adopted(still_empty(fewer), now_s)
