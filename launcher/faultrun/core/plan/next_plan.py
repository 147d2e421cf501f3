"""What the run does next, from the newest statement of every node.

Pure, and the same for one node or many: the local agreement calls it at once,
a distributed one calls it at its coordinator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from faultrun.core.humanize import rank_names
from faultrun.core.placement.node_seats import Known, NoSeating, Seating, can_do_without_one, left_out, seated
from faultrun.core.placement.place import missing, place, replaced
from faultrun.core.placement.resize import seats_without
from faultrun.core.placement.slots import (
    accuse,
    condemned,
    elsewhere,
    grown,
    left_empty,
    still_empty,
    usable_slots,
    without_the_bad,
)
from faultrun.core.plan import joint_incident, standing
from faultrun.core.plan.after_incident import NextStep, adopted, after_incident, end_incarnation, finished
from faultrun.core.plan.choose_scheduler import left_init, with_scheduler
from faultrun.core.plan.joint_saves import joint_saves
from faultrun.core.plan.keep_survivors import keep, keep_fewer, reseated, seats_beside
from faultrun.core.plan.restart_budget import furthest, ledger_told
from faultrun.core.plan.run_end import ending, for_the_unfit, wanting
from faultrun.core.plan.waiting import Waiting
from faultrun.core.recovery.common_point import common_point, goes_back, nothing_in_common
from faultrun.core.recovery.quarantine import attempts_seen, quarantine_after
from faultrun.errors import assert_never
from faultrun.model.events import GoGiven, PlanAdopted, RunFinished
from faultrun.model.incident import Aftermath, Cause, Incident
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.observed.elastic import Elastic
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.observed.saves import NOTHING_SEEN
from faultrun.model.plan import Attempt, Ledger, Plan, Reason
from faultrun.model.spec.run_settings import RunSettings
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.topology import NodeId, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the run was started with and every node agrees on. ``resume_args`` are templates.

    A node is lost when nothing was heard of it for ``lease_ttl_s``; 0 where there is one node only.
    A seat of ``topology`` that was not given away yet has a node without a name. ``settings`` are
    what people are told of it. ``elastic``: how far it may shrink, or that bad nodes are replaced by spares;
    None: neither. ``stays``: ranks that can outlive a lost node are to stay.
    """

    topology: Topology
    policy: RestartPolicy
    exit_code_on_stop: int | None = None
    resume_args: tuple[str, ...] = ()
    lease_ttl_s: float = 0.0
    settings: RunSettings | None = None
    elastic: Elastic | None = None
    stays: bool = False


def next_step(
    rules: Rules,
    plan: Plan | None,
    facts: Mapping[NodeId, NodeFact],
    now_s: float,
    *,
    wait_is_over: bool = False,
    stopped: frozenset[NodeId] = frozenset(),
) -> NextStep:
    """Answer what follows; total, and idempotent for unchanged statements.

    ``facts`` has no node whose lease is over. ``wait_is_over``: missing nodes were waited for, and a run that
    may goes on without them. ``stopped`` are nodes that ended ``plan`` because they were told to stop; they
    may be gone by now.
    A statement of an earlier incarnation than ``plan``'s says that the node has not come so far.
    """
    if plan is None:
        return _between(rules, None, facts, now_s, wait_is_over=wait_is_over, stopped=stopped)
    nodes = standing.standings(plan, facts)
    node, decides = nodes.foremost
    match decides:
        case standing.Ahead():
            return Waiting(reason=f"the newer plan that {node} knows of")
        case standing.BoundToEarlier(incarnation=life):
            return end_incarnation(life, f"incarnation {plan.incarnation} is planned", now_s)
        case standing.Lost() | standing.Leaves() | standing.Idle():
            over = _over(rules, nodes, node, decides, now_s)
            return over or _between(
                rules, plan, nodes.facts, now_s, wait_is_over=wait_is_over, stopped=stopped
            )
        case standing.WantsToStay():
            return _keep(rules, nodes, now_s)
        case standing.KeptByPlan(said=said) if len(plan.topology.nodes) == 1:
            return keep_fewer(plan, said, now_s)
        case standing.KeptByPlan() | standing.Behind():
            behind = [one for one, at in nodes.seats if isinstance(at, standing.KeptByPlan | standing.Behind)]
            prepared = any(isinstance(where, standing.AwaitsGo) for _, where in nodes.seats)
            return Waiting(reason=f"{', '.join(behind)} to {'be prepared' if prepared else 'hear the plan'}")
        case standing.AwaitsGo():
            # A node that runs already has been given this, and one that is only ready gets it again.
            addr, port = nodes.members[0].addr, nodes.members[0].master_port
            return GoGiven(at_s=now_s, incarnation=plan.incarnation, master_addr=addr, master_port=port)
        case standing.Trains():
            return Waiting(reason="the end of the workers")
        case standing.Finished():
            all_of_them = not plan.missing and all(one.left.incident is None for one in nodes.members)
            who = "every rank" if all_of_them else "every rank that was left"
            return finished(plan.incarnation, now_s, 0, f"{who} finished")
        case _:
            assert_never(decides)


def _over(
    rules: Rules,
    nodes: standing.Standings,
    node: NodeId,
    first: standing.Lost | standing.Leaves | standing.Idle,
    now_s: float,
) -> NextStep | None:
    """The plan's incarnation ends because of ``node``; None: no node is bound to it any more."""
    plan, stop = nodes.plan, None
    if isinstance(first, standing.Lost):
        why = joint_incident.loss_words(plan.topology, node, rules.lease_ttl_s)
    else:
        why, stop = first.why, first.stop
    beside = seats_beside(nodes) if rules.stays else None
    if beside is not None:
        return _stay_beside(rules, nodes, beside, now_s, why)
    if nodes.all_are(standing.Lost, standing.Idle, standing.Finished):
        return None
    return replace(end_incarnation(plan.incarnation, why, now_s), stop=stop)


def last_incident(rules: Rules, plan: Plan | None, facts: Mapping[NodeId, NodeFact]) -> Aftermath | None:
    """What nodes tell together of the incident that ends the run after ``plan``; None: there is none."""
    if plan is None:
        return None
    spoken = [fact for fact in facts.values() if any(seat.node == fact.node for seat in plan.topology.nodes)]
    incident = joint_incident.told_together(plan, spoken, rules.lease_ttl_s)
    if incident is None or incident.incarnation != plan.incarnation:
        return None
    return joint_incident.aftermath(incident, plan, plan, spoken)


def _keep(rules: Rules, nodes: standing.Standings, now_s: float) -> NextStep:
    """Survivors stay. A slot that is set aside gets no newcomer: it is left empty, or all begin anew."""
    plan, members = nodes.plan, nodes.members
    incident = joint_incident.told_together(plan, members, rules.lease_ttl_s)
    if rules.elastic is None:
        return keep(rules.policy, rules.resume_args, nodes, incident, now_s)
    ledger, why, rank = plan.slots, "", -1
    if incident is not None:
        ledger = accuse(plan, incident, rules.policy)
        able = incident.rank is not None and can_do_without_one(rules.elastic, plan, nodes.facts)
        why = condemned(ledger, incident) if able else ""
        rank = -1 if incident.rank is None else incident.rank
    judged = elsewhere(incident) if incident is not None and why else incident
    answer = keep(rules.policy, rules.resume_args, nodes, judged, now_s)
    if not isinstance(answer, PlanAdopted):
        return answer
    bad = plan.barred(usable_slots(members)) | ({rank} if why else frozenset())
    if back := bad - answer.plan.missing:
        why = f"{rank_names(sorted(back))} is not replaced on its slot: {why or 'it is set aside'}"
        return end_incarnation(plan.incarnation, why, now_s)
    following = replace(answer.plan, slots=ledger)
    return adopted(still_empty(left_empty(following, rank, why) if why else following), now_s)


def _stay_beside(
    rules: Rules, nodes: standing.Standings, seats: Topology, now_s: float, why: str
) -> NextStep:
    """Have the ranks of all that live leave their group; then a plan that keeps them, with the new seats."""
    if not nodes.all_are(standing.Lost, standing.WantsToStay):
        return IncarnationOver(at_s=now_s, incarnation=nodes.plan.incarnation, why=why, stays=True)
    if not isinstance((answer := _keep(rules, nodes, now_s)), PlanAdopted):
        return answer
    return adopted(reseated(answer.plan, seats, nodes.facts), now_s)


def _between(
    rules: Rules,
    plan: Plan | None,
    here: Mapping[NodeId, NodeFact],
    now_s: float,
    *,
    wait_is_over: bool,
    stopped: frozenset[NodeId],
) -> NextStep:
    """No node has a worker: end the run, or plan the next incarnation."""
    seating = _seating(rules, plan, here, wait_is_over=wait_is_over, stopped=stopped)
    seats = seating.seats if isinstance(seating, Seating) else None
    spoken = [fact for fact in here.values() if _has_a_say(plan, seats, fact)]
    if plan is None and any(fact.busy for fact in spoken):
        return Waiting(reason="the plan that some nodes follow")
    several = len(rules.topology.nodes) > 1
    end = ending(spoken, seats, now_s, several=several, exit_code_on_stop=rules.exit_code_on_stop)
    if end is not None:
        return end
    if isinstance(seating, NoSeating):
        known = rules.topology if plan is None else plan.topology
        nodes = tuple(missing(known, here)) or ("a node that can take part",)
        reason = f"{', '.join(nodes)}{f' ({seating.why})' if seating.why else ''}"
        return Waiting(reason=reason, missing=nodes, hopeless=seating.hopeless)
    return _replan(rules, plan, seating, spoken, now_s)


def _seating(
    rules: Rules,
    plan: Plan | None,
    here: Mapping[NodeId, NodeFact],
    *,
    wait_is_over: bool,
    stopped: frozenset[NodeId],
) -> Seating | NoSeating:
    """Who sits where, unless there are too few."""
    if rules.elastic is None or not rules.elastic.min_nodes:
        before = None if plan is None else plan.topology
        seats = place(_wanted(rules, plan), before, here)
        slots = None if plan is None or rules.elastic is None else plan.slots
        if seats is None:
            return NoSeating()
        return Seating(seats=seats, slots=slots, replaced=() if before is None else replaced(before, seats))
    known = Known(
        elastic=rules.elastic,
        policy=rules.policy,
        wanted=rules.topology,
        plan=plan,
        here=here,
        incident=_unanswered(rules, plan, here),
        wait_is_over=wait_is_over,
        stopped=stopped,
    )
    return seated(known)


def _unanswered(rules: Rules, plan: Plan | None, here: Mapping[NodeId, NodeFact]) -> Incident | None:
    """What ended ``plan``, if no plan has answered it."""
    told = None if plan is None else last_incident(rules, plan, here)
    if plan is None or told is None or told.incident.number <= plan.ledger.incidents:
        return None
    return told.incident


def _wanted(rules: Rules, plan: Plan | None) -> Topology:
    """The seats that the run is to have, without the slots that are set aside."""
    if rules.elastic is None or plan is None or plan.slots is None:
        return rules.topology
    return seats_without(rules.topology, plan.slots.aside)


def _has_a_say(plan: Plan | None, seats: Topology | None, fact: NodeFact) -> bool:
    """Spares have none before they get a seat; who took part in the incarnation that is over has."""
    known = () if plan is None else (plan.topology, *(() if seats is None else (seats,)))
    return plan is None or any(seat.node == fact.node for topology in known for seat in topology.nodes)


def _replan(
    rules: Rules, plan: Plan | None, seating: Seating, spoken: list[NodeFact], now_s: float
) -> NextStep:
    """Plan the incarnation that the nodes of ``seating`` begin, or end the run."""
    by_node = {fact.node: fact for fact in spoken}
    members = [by_node[seat.node] for seat in seating.seats.nodes]
    incident, avoids = joint_incident.first_incident(spoken), tuple[Attempt, ...]()
    if plan is not None:
        plan = replace(plan, ledger=replace(plan.ledger, attempts=attempts_seen(plan, spoken)))
        incident = joint_incident.told_together(plan, spoken, rules.lease_ttl_s)
        avoids = quarantine_after(plan, incident)
    point = common_point(seating.seats, [seating.of_use(fact) for fact in members], avoids)
    newest = max(fact.incarnation for fact in spoken)
    against = "" if point is not None else nothing_in_common(members)
    if against:
        return wanting(newest, now_s, against, by_node)
    following = Plan(
        incarnation=newest + 1 if plan is None else max(newest, plan.incarnation) + 1,
        topology=seating.seats,
        reason=Reason.CONTINUED,
        point=seating.moved(point),
        start_at_s=now_s,
        ledger=Ledger() if plan is None else plan.ledger,
        boots=tuple(fact.boot for fact in members),
        replaced=seating.replaced,
        slots=seating.slots,
        seen=joint_saves(NOTHING_SEEN if plan is None else plan.seen, spoken),
    )
    following = with_scheduler(following, members)
    if plan is None:
        return adopted(_first_plan(following, spoken), now_s)
    if _is_new(incident, plan, spoken):
        answer = _answer(rules, plan, left_init(incident, plan, spoken), following, members, spoken)
        if isinstance(answer, RunFinished) and goes_back(point, members, avoids):
            answer = replace(answer, wanting=tuple(by_node))  # the budget is counted from the point
        return for_the_unfit(answer, spoken)
    if incident is not None and incident.number <= plan.ledger.incidents:
        following = joint_incident.told_again(incident, plan, following, spoken)
    return adopted(without_the_bad(rules.elastic, rules.topology, plan, following, members), now_s)


def _first_plan(following: Plan, spoken: list[NodeFact]) -> Plan:
    """The run's first, which counts on from what supervisors that came back know to be spent."""
    reason = Reason.FIRST if following.point is None else Reason.CONTINUED
    high_step = max(fact.high_step for fact in spoken)
    return replace(following, reason=reason, ledger=furthest(ledger_told(spoken), high_step, following.point))


def _is_new(incident: Incident | None, plan: Plan, spoken: list[NodeFact]) -> TypeGuard[Incident]:
    """Whether no plan has answered it, and it is a fault: nodes that stop take their peers with them.

    A supervisor that was lost or fenced before it heard of that plan tells of its incident once more.
    """
    if incident is None or incident.number <= plan.ledger.incidents:
        return False
    return not (joint_incident.only_followed(incident) and any(fact.stop is not None for fact in spoken))


def _answer(
    rules: Rules,
    plan: Plan,
    incident: Incident,
    following: Plan,
    members: list[NodeFact],
    spoken: list[NodeFact],
) -> NextStep:
    """What follows a fault, which is counted from now on, and what every node's card says of it."""
    incidents = max(plan.ledger.incidents, incident.number)
    counted = replace(plan, ledger=replace(plan.ledger, incidents=incidents))
    answer = _after(rules, counted, incident, following, max(fact.high_step for fact in spoken), members)
    if not isinstance(answer, PlanAdopted):
        return answer
    told = joint_incident.aftermath(incident, plan, answer.plan, spoken)
    return adopted(with_scheduler(replace(answer.plan, aftermath=told), members), answer.at_s)


def _after(
    rules: Rules, plan: Plan, incident: Incident, following: Plan, high_step: int, seated: list[NodeFact]
) -> NextStep:
    """What follows ``incident``, with fewer workers or more where the run may have them."""
    if (elastic := rules.elastic) is None or elastic.min_nodes:
        incident = elsewhere(incident) if elastic and left_out(plan, incident, following) else incident
        return after_incident(rules.policy, rules.resume_args, plan, incident, following, high_step)
    following = replace(following, slots=accuse(plan, incident, rules.policy))
    fewer = without_the_bad(elastic, rules.topology, plan, following, seated, incident)
    moved = fewer.topology != following.topology
    judged = elsewhere(incident) if moved else incident
    answer = after_incident(rules.policy, rules.resume_args, plan, judged, fewer, high_step)
    if isinstance(answer, PlanAdopted) and incident.cause is Cause.GROWTH:
        return adopted(grown(rules.topology, plan, seated, answer.plan), now_s=answer.at_s)
    return answer
