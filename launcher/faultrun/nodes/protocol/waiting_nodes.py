"""Nodes that wait for a vacant seat, and those that get none: what supervisors are told of them. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from faultrun.core.humanize import node_names
from faultrun.core.placement.node_seats import set_aside
from faultrun.core.placement.place import can_sit
from faultrun.model.observed.agreement import OwnNodeAside, PlanElsewhere
from faultrun.model.observed.elastic import Elastic, Grow, NodeAside, NodesWaiting
from faultrun.model.observed.node_fact import NodeFact, NodeRunning
from faultrun.model.plan import Plan
from faultrun.model.topology import NodeId
from faultrun.nodes.protocol.coordinator_input import CoordinatorInput, numbered, statements
from faultrun.nodes.protocol.election import leads
from faultrun.nodes.protocol.judge_input import JudgeInput
from faultrun.nodes.protocol.peer_completion import is_spare
from faultrun.nodes.values.membership import Remembered, Tell
from faultrun.nodes.values.roster import PlanPhase


def nodes_waiting(case: JudgeInput, given: CoordinatorInput | None) -> list[Tell]:
    """Who could take a vacant seat, told to the coordinator's own supervisor whenever it changes."""
    life, known = case.own.fact.incarnation, case.remembered.newcomers
    before = known[1] if known[0] == life else ()
    if (now := _who_waits(case, given)) == before:
        return []
    return [Tell(event=NodesWaiting(at_s=case.clock.run_s, incarnation=life, nodes=now))]


def newcomers(elastic: Elastic, plan: Plan, facts: Mapping[NodeId, NodeFact]) -> tuple[NodeId, ...]:
    """Nodes without a seat that could take one which is vacant, in the order in which they came."""
    if elastic.grow is Grow.NEVER or (ledger := plan.slots) is None or ledger.stays_small:
        return ()
    vacant = {one.seat for one in ledger.vacant}
    out = {*(seat.node for seat in plan.topology.nodes), *set_aside(ledger, facts)}
    fit = [
        fact
        for fact in facts.values()
        if fact.node not in out and can_sit(fact) and fact.failure is None and not fact.resume.lacks
    ]
    if elastic.fixed_seats:
        fit = [fact for fact in fit if fact.seat in vacant]
    fit.sort(key=lambda fact: (fact.arrived, fact.node))
    return tuple(fact.node for fact in fit[: len(ledger.vacant)])


def noted(remembered: Remembered, told: list[Tell]) -> Remembered:
    """Remember the waiting nodes that the supervisor has just been told of."""
    for one in told:
        if isinstance(one.event, NodesWaiting):
            return replace(remembered, newcomers=(one.event.incarnation, one.event.nodes))
    return remembered


def own_aside(case: JudgeInput) -> Iterator[Tell]:
    """That this node gets no rank, if it was set aside."""
    fact, aside = case.own.fact, who_is_aside(case)
    if aside is not None and not fact.busy and fact.stop is None:
        life, roster, body = fact.incarnation, case.roster, case.body
        told = None
        if roster is not None and body is not None and body.incarnation == aside.incarnation:
            told = roster.completes(body)
        yield Tell(event=OwnNodeAside(at_s=case.clock.run_s, incarnation=life, why=aside.why, plan=told))


def plan_elsewhere(case: JudgeInput) -> Iterator[Tell]:
    """By which plan the others go on, to a supervisor whose node had ranks before: its cards are theirs."""
    fact, header, roster, body = case.own.fact, case.header, case.roster, case.body
    if header is None or header.phase is PlanPhase.FINISHED or roster is None or body is None:
        return
    before = 0 <= fact.incarnation < header.incarnation
    if fact.is_free and before and roster.entry(fact.node) is None and who_is_aside(case) is None:
        life, plan = fact.incarnation, roster.completes(body)
        yield Tell(event=PlanElsewhere(at_s=case.clock.run_s, incarnation=life, plan=plan))


def who_is_aside(case: JudgeInput) -> NodeAside | None:
    """This node, if the plan gives it no seat because it is not well."""
    header, roster, body = case.header, case.roster, case.body
    if header is None or header.phase is PlanPhase.FINISHED or body is None or body.slots is None:
        return None
    if roster is None or roster.entry(case.own.fact.node) is not None:
        return None
    return next((one for one in body.slots.nodes if one.node == case.own.fact.node), None)


def _who_waits(case: JudgeInput, given: CoordinatorInput | None) -> tuple[NodeId, ...]:
    """None, unless this node coordinates a training that has vacant seats."""
    fact, header, elastic = case.own.fact, case.header, case.rules.elastic
    if elastic is None or given is None or header is None or not leads(case.common, fact):
        return ()
    trains = isinstance(fact.status_in(header.incarnation), NodeRunning)
    if not trains or header.phase is not PlanPhase.GO or case.known.alarm(header.incarnation) is not None:
        return ()
    if (plan := given.plan) is None or plan.slots is None or not plan.slots.vacant:
        return ()
    return newcomers(elastic, plan, numbered(given, statements(given)))


def spare_words(case: JudgeInput) -> str:
    """Who trains while this node waits; empty while it has a seat, ends, or no plan is known.

    A supervisor whose node's seat belongs to the one before it is no spare: it waits for that one's end.
    """
    fact, roster = case.own.fact, case.roster
    over = case.header is None or case.header.phase is PlanPhase.FINISHED
    if over or roster is None or case.known.own is None or not is_spare(fact, roster):
        return ""
    names = [entry.node for entry in roster.entries]
    trains = "trains" if len(names) == 1 else "train"
    if (aside := who_is_aside(case)) is not None and not fact.slots.usable:
        elastic = case.rules.elastic
        until = "until --health_check passes" if elastic and elastic.health_check else "as long as others can"
        return f"{node_names(names)} {trains}; this node gets no rank {until}: {aside.why}"
    return f"{node_names(names)} {trains}; takes the place of a lost one"
