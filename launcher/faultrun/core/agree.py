"""What the run does next, from the newest statement of every node.

Pure, and the same for one node or many: the local agreement calls it at once,
a distributed one calls it at its coordinator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from faultrun.core import crashloop
from faultrun.core.budget import Allowed, Spent, charge, furthest
from faultrun.core.diagnose import exit_code_of
from faultrun.core.quarantine import attempts_of
from faultrun.core.refused_argument import BAD_CONFIGURATION, refused_argument
from faultrun.errors import assert_never
from faultrun.model.events import Event, GoGiven, PlanAdopted, RunFinished
from faultrun.model.facts import NodeFact, Standing
from faultrun.model.incident import Incident
from faultrun.model.plan import Ledger, Plan, Reason
from faultrun.model.spec import RestartPolicy
from faultrun.model.stop import StopSource
from faultrun.model.topology import NodeId, Topology

STOP_EXIT_CODES = {
    StopSource.SIGTERM: 143,
    StopSource.SIGINT: 130,
    StopSource.SIGHUP: 129,
    StopSource.SIGUSR1: 143,
    StopSource.SIGUSR2: 143,
    StopSource.CONTROL: 143,
    StopSource.PRESTOP: 143,
    StopSource.PLATFORM: 143,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the run was started with and every node agrees on. ``resume_args`` are templates."""

    topology: Topology
    policy: RestartPolicy
    exit_code_on_stop: int | None = None
    resume_args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Everybody shall prepare this plan."""

    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """Everybody is prepared; workers meet at this port of the plan's first node."""

    incarnation: int
    master_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run is over. ``stopped``: because somebody asked for it."""

    exit_code: int
    why: str
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing yet, and for whom."""

    why: str


Answer = Adopt | Go | Finish | Wait


def event_of(answer: Answer, incarnation: int, master_addr: str, now_s: float) -> Event | None:
    """The fact that ``answer`` becomes for a node that stated something of ``incarnation``; None: wait."""
    match answer:
        case Adopt(plan=plan):
            return PlanAdopted(at_s=now_s, incarnation=plan.incarnation, plan=plan)
        case Go(incarnation=agreed, master_port=port):
            return GoGiven(at_s=now_s, incarnation=agreed, master_addr=master_addr, master_port=port)
        case Finish(exit_code=code, why=why, stopped=stopped):
            return RunFinished(at_s=now_s, incarnation=incarnation, exit_code=code, why=why, stopped=stopped)
        case Wait():
            return None
        case _:
            assert_never(answer)


def next_step(rules: Rules, plan: Plan | None, facts: Mapping[NodeId, NodeFact], now_s: float) -> Answer:
    """Answer what follows; total, and idempotent for unchanged statements."""
    missing = [entry.node for entry in rules.topology.nodes if entry.node not in facts]
    if missing:
        return Wait(why=f"waiting for {', '.join(missing)}")
    spoken = [facts[entry.node] for entry in rules.topology.nodes]
    failed = next((fact.failure for fact in spoken if fact.failure is not None), None)
    stop = next((fact.stop for fact in spoken if fact.stop is not None), None)
    if any(fact.standing is Standing.READY for fact in spoken) and stop is None and failed is None:
        return _go(plan, spoken)
    if all(fact.standing is Standing.DONE for fact in spoken) and stop is None and failed is None:
        return Finish(exit_code=0, why="every rank finished")
    if not all(_at_rest(fact) for fact in spoken):
        return Wait(why="some nodes still have workers")
    if stop is not None:
        code = STOP_EXIT_CODES[stop]
        # The platform places the job anew only if it failed, whatever a person wants to see after a stop.
        if rules.exit_code_on_stop is not None and stop is not StopSource.PLATFORM:
            code = rules.exit_code_on_stop
        besides = f"; {failed[1].splitlines()[0]}" if failed is not None and failed[1] else ""
        return Finish(exit_code=code, why=f"stopped by {stop.value}{besides}", stopped=True)
    if failed is not None:
        return Finish(exit_code=failed[0], why=failed[1])
    behind = [fact.node for fact in spoken if plan is not None and fact.incarnation < plan.incarnation]
    if behind:
        return Wait(why=f"the plan is on its way to {', '.join(behind)}")
    return _replan(rules, plan, spoken, now_s)


def _at_rest(fact: NodeFact) -> bool:
    return fact.standing is not Standing.READY or fact.stop is not None or fact.failure is not None


def _go(plan: Plan | None, spoken: list[NodeFact]) -> Answer:
    unready = [fact.node for fact in spoken if fact.standing is not Standing.READY]
    if unready or plan is None:
        return Wait(why=f"not prepared yet: {', '.join(unready)}")
    return Go(incarnation=plan.incarnation, master_port=spoken[0].master_port)


def _replan(rules: Rules, plan: Plan | None, spoken: list[NodeFact], now_s: float) -> Answer:
    point = spoken[0].point
    incident = _first_incident(spoken)
    high_step = max(fact.high_step for fact in spoken)
    if plan is None:
        ledger = furthest(Ledger(), high_step, point)
        return Adopt(
            plan=_plan(rules, 0, Reason.FIRST if point is None else Reason.CONTINUED, ledger, now_s, spoken)
        )
    if incident is None:
        return Adopt(plan=_plan(rules, plan.incarnation + 1, Reason.CONTINUED, plan.ledger, now_s, spoken))
    ledger = replace(plan.ledger, incidents=max(plan.ledger.incidents, incident.number))
    if incident.ordered:
        # As with preemptions: what the platform orders is not charged, nor held against the checkpoint.
        ledger = replace(ledger, total_restarts=ledger.total_restarts + 1)
        return Adopt(plan=_plan(rules, plan.incarnation + 1, Reason.FAULT, ledger, now_s, spoken))
    return _after_fault(rules, replace(plan, ledger=ledger), incident, spoken, now_s)


def _after_fault(
    rules: Rules, plan: Plan, incident: Incident, spoken: list[NodeFact], now_s: float
) -> Answer:
    """Try again while that can help and the budget lasts."""
    point, high_step = spoken[0].point, max(fact.high_step for fact in spoken)
    own_code = exit_code_of(incident.status)
    ours = refused_argument(incident, plan, rules.resume_args)
    if ours:
        return Finish(exit_code=BAD_CONFIGURATION, why=ours)
    why = crashloop.hopeless(incident, plan, high_step, point) if rules.policy.max_restarts else ""
    if why:
        return Finish(exit_code=crashloop.exit_code(incident, own_code), why=why)
    failures = crashloop.alike(incident, plan, high_step, point)
    ledger = replace(
        plan.ledger,
        attempts=attempts_of(incident, plan),
        last_signature=incident.signature,
        alike=failures,
    )
    match charge(ledger, rules.policy, now_s=now_s, high_step=high_step, point=point):
        case Spent(why=why):
            loop = crashloop.looped(incident, failures, rules.policy.max_restarts)
            if loop:
                return Finish(exit_code=crashloop.exit_code(incident, own_code), why=f"{loop}; {why}")
            return Finish(exit_code=own_code, why=why)
        case Allowed(backoff_s=backoff, ledger=charged):
            return Adopt(
                plan=_plan(rules, plan.incarnation + 1, Reason.FAULT, charged, now_s + backoff, spoken)
            )
        case other:
            assert_never(other)


def _first_incident(spoken: list[NodeFact]) -> Incident | None:
    known = [fact.incident for fact in spoken if fact.incident is not None]
    return min(known, key=lambda incident: incident.at_s, default=None)


def _plan(
    rules: Rules, incarnation: int, reason: Reason, ledger: Ledger, start_at_s: float, spoken: list[NodeFact]
) -> Plan:
    return Plan(
        incarnation=incarnation,
        topology=rules.topology,
        reason=reason,
        point=spoken[0].point,
        start_at_s=start_at_s,
        ledger=ledger,
    )
