"""The plan that survivors go on by: only the dead are started again. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from faultrun.core.retry import NextStep, adopted, after_incident, given_up
from faultrun.model.events import PlanAdopted, RunFinished
from faultrun.model.facts import NodeFact, NodeStatus
from faultrun.model.plan import Plan, Reason
from faultrun.model.spec import RestartPolicy


def keep(
    policy: RestartPolicy, resume_args: Sequence[str], plan: Plan, fact: NodeFact, now_s: float
) -> NextStep:
    """Who lives goes on in the next incarnation; the restart of the others is charged like one of all."""
    incident = fact.incident
    if incident is None:
        return "workers run"
    if fact.incarnation != plan.incarnation:
        return _keep_fewer(plan, fact, now_s)
    following = replace(
        plan,
        incarnation=plan.incarnation + 1,
        reason=Reason.FAULT,
        point=None,
        start_at_s=now_s,
        kept=fact.kept,
        since=plan.started,
        replaced=(),
        aftermath=None,
    )
    ledger = replace(plan.ledger, incidents=max(plan.ledger.incidents, incident.number))
    counted = replace(plan, ledger=ledger)
    answer = after_incident(policy, resume_args, counted, incident, following, fact.high_step)
    match answer:
        case PlanAdopted(plan=kept):
            # Survivors wait with all they hold; what fails again and again is soon given up (core.replacing).
            return adopted(replace(kept, start_at_s=now_s), now_s)
        case RunFinished(why=why):
            return given_up(plan.incarnation, why, now_s)
        case _:
            return answer


def _keep_fewer(plan: Plan, fact: NodeFact, now_s: float) -> NextStep:
    """One more died before the plan was there: the same for who is left, and nothing is charged again."""
    if not fact.kept < plan.kept:
        return "workers run"
    return adopted(replace(plan, incarnation=plan.incarnation + 1, kept=fact.kept, start_at_s=now_s), now_s)


def too_late(plan: Plan, fact: NodeFact) -> bool:
    """Whether the survivors that ``plan`` keeps were given up before it was there."""
    gone = fact.status in (NodeStatus.JOINED, NodeStatus.DRAINED)
    return bool(plan.kept) and gone and fact.incarnation < plan.incarnation
