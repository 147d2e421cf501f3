"""What the nodes of a run together know of the incident that the next plan answers.

Pure. A node alone tells its own incident; of several, each knows a part, and all tell the same.
"""

from collections.abc import Sequence
from dataclasses import replace

from faultrun.core.diagnosis.diagnose import is_hard
from faultrun.core.humanize import rank_names
from faultrun.core.placement.slots import workers_words
from faultrun.core.plan.joint_saves import opened_anywhere
from faultrun.model.exits import Exited
from faultrun.model.incident import Aftermath, Cause, Incident, IncidentAnswer
from faultrun.model.observed.evidence import FaultClass
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.model.topology import NodeId, Topology


def told_together(plan: Plan, spoken: Sequence[NodeFact], lease_ttl_s: float) -> Incident | None:
    """What ended ``plan``, by all who have ``spoken``; None where no node tells of anything."""
    incident = _with_lost(first_incident(spoken), plan, spoken, lease_ttl_s)
    return None if incident is None else opened_anywhere(incident, plan, spoken)


def loss_words(seats: Topology, node: NodeId, lease_ttl_s: float) -> str:
    """``node a was lost: it ended, or etcd heard nothing of it for 10 s; ranks 0 1``."""
    silent = f": it ended, or etcd heard nothing of it for {lease_ttl_s:g} s" if lease_ttl_s else ""
    return f"node {node} was lost{silent}; {rank_names(seats.ranks_of(node))}"


def first_incident(spoken: Sequence[NodeFact]) -> Incident | None:
    """What began it. Nodes' clocks cannot be compared: their evidence is, then who raised the alarm first."""
    known = [(fact.left.incident, fact.alarm) for fact in spoken if fact.left.incident is not None]
    killed = {one.incarnation for one, _ in known if one.status is not None and is_hard(one.status)}

    def order(known: tuple[Incident, int]) -> tuple[int, int, bool, bool, int]:
        incident, alarm = known
        faked = incident.incarnation in killed and _may_follow(incident)
        return -incident.incarnation, _doubt(incident), faked, alarm == 0, alarm

    return min(known, key=order)[0] if known else None


def _doubt(incident: Incident) -> int:
    """How much speaks for it being the consequence of another."""
    if incident.cause is Cause.ELSEWHERE:
        return 3
    if incident.fault_class is FaultClass.CONSEQUENCE:
        return 2
    return 1 if incident.cause is Cause.FENCE else 0


def _may_follow(incident: Incident) -> bool:
    """Whether it is a silent exit: what a rank does that has lost a peer, where another was killed."""
    silent = incident.fault_class is FaultClass.UNKNOWN and incident.raised is None
    return silent and isinstance(incident.status, Exited)


def _with_lost(
    incident: Incident | None, plan: Plan, here: Sequence[NodeFact], lease_ttl_s: float
) -> Incident | None:
    """Return ``incident``, or the loss of a node if those ``here`` have seen nothing but its consequences.

    A node that has come back meanwhile, with another supervisor, was lost like any other.
    """
    told = {fact.node for fact in here if plan.is_for(fact.node, fact.boot)}
    gone = [seat.node for seat in plan.topology.nodes if seat.node not in told]
    if incident is None or not gone:
        return incident
    if incident.cause is not Cause.ELSEWHERE and incident.fault_class is not FaultClass.CONSEQUENCE:
        return incident
    gone.sort(key=lambda node: loss_words(plan.topology, node, lease_ttl_s) != incident.explanation)
    words = [loss_words(plan.topology, node, lease_ttl_s) for node in gone]
    before = [] if incident.explanation in words else [f"before that: {incident.explanation}"]
    together = tuple(rank for node in gone for rank in plan.topology.ranks_of(node))
    joint = replace(incident, cause=Cause.NODE, rank=None, status=None, node=gone[0], together=together)
    return replace(joint, explanation="; ".join((*words, *before)))


def only_followed(incident: Incident) -> bool:
    """Whether the ranks that failed had lost their peers: where a node was told to stop, that is no fault."""
    return incident.cause is Cause.ELSEWHERE or incident.fault_class is FaultClass.CONSEQUENCE


def aftermath(
    incident: Incident, plan: Plan, following: Plan, spoken: Sequence[NodeFact]
) -> Aftermath | None:
    """What every node writes its card of ``incident`` from; None on a node alone, which knows it all.

    ``plan`` is the one that the incident ended, ``following`` answers it.
    """
    if plan.of_one_node and following.of_one_node:
        return None
    life = incident.incarnation
    of_it = [fact.left for fact in spoken if fact.left.incident is not None and fact.incarnation == life]
    stopped = {rank for left in of_it if left.incident is not None for rank in left.incident.followers}
    followers = tuple(sorted(stopped - {incident.rank, *incident.together}))
    saved = {save.rank for left in of_it for save in left.saves}
    before, charged = plan.ledger.restarts, following.ledger.restarts
    size = plan.topology.world_size
    return Aftermath(
        incident=replace(incident, followers=followers),
        saves=tuple(save for left in of_it for save in left.saves),
        # What a rank could not save itself, the next node may have had.
        unsaved=tuple(one for left in of_it for one in left.unsaved if one.rank not in saved),
        refunded=len(before) if len(charged) == 1 and before != charged else 0,
        world_size=0 if following.topology.world_size == size else size,
    )


def told_again(incident: Incident, plan: Plan, following: Plan, spoken: Sequence[NodeFact]) -> Plan:
    """``following``, and what it tells of an ``incident`` that ``plan`` has answered and charged.

    Where no node has begun that plan, for the ranks that it kept have died, this is the answer.
    """
    told, life = plan.aftermath, plan.incarnation
    idle = [one.node for one in spoken if one.incarnation < life and plan.is_for(one.node, one.boot)]
    if len(idle) == len(plan.topology.nodes):
        again = aftermath(incident, plan, following, spoken)
        again = again and replace(again, refunded=0 if told is None else told.refunded)
        return replace(following, reason=plan.reason, aftermath=again)
    if told is not None and told.incident.number != incident.number:
        told = None
    return replace(following, aftermath=told and replace(told, answer=told.answer or answered_by(plan)))


def answered_by(plan: Plan) -> IncidentAnswer:
    """How ``plan`` goes on. A card names one file."""
    return IncidentAnswer(
        world_size=plan.topology.world_size,
        restarts=len(plan.ledger.restarts),
        point=None if plan.point is None else replace(plan.point, files=()),
        replaced=plan.replaced,
        kept=plan.kept,
        workers=workers_words(plan),
    )
