"""What follows an incident: another attempt, while one can help and the budget lasts, or the end. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from faultrun.core.diagnosis.diagnose import exit_code_of
from faultrun.core.plan import crash_loop
from faultrun.core.plan.crash_loop import BAD_CONFIGURATION, refused_argument, unopened_after
from faultrun.core.plan.restart_budget import Allowed, Spent, backoff_s, charge
from faultrun.core.plan.waiting import Waiting
from faultrun.core.recovery.quarantine import attempts_of
from faultrun.errors import assert_never
from faultrun.model.events import GoGiven, PlanAdopted, RunFinished
from faultrun.model.exits import NEVER_AGAIN, Exited, WorkerExitCodes
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.plan import Plan, Reason
from faultrun.model.spec.run_spec import RestartPolicy
from faultrun.model.stop import StopSource

_SAYS_NO = "rank {rank} ended with 3: do not start me again (--worker_exit_codes=torchft)"

NextStep = PlanAdopted | GoGiven | IncarnationOver | RunFinished | Waiting
"""The event that follows for every node that is meant, or what has to come first."""


def after_incident(
    policy: RestartPolicy,
    resume_args: Sequence[str],
    plan: Plan,
    incident: Incident,
    following: Plan,
    high_step: int,
) -> NextStep:
    """Answer what follows ``incident``: the plan ``following``, or the end.

    The ledger of ``plan`` has counted the incident. ``resume_args`` are templates;
    ``high_step`` is the highest that any rank has come to.
    """
    now_s = following.start_at_s
    restarts, attempts = plan.ledger.total_restarts + 1, attempts_of(incident, plan)
    ledger = replace(plan.ledger, total_restarts=restarts, attempts=attempts)
    if incident.cause in (Cause.ELSEWHERE, Cause.NODE, Cause.FENCE):
        # The node that could tell of it is lost, and a lost node is not charged.
        return adopted(replace(following, ledger=ledger), now_s)
    following = replace(following, reason=Reason.FAULT)
    if incident.ordered:
        # As with preemptions: what the platform orders is not charged, nor held against the checkpoint.
        return adopted(replace(following, ledger=ledger), now_s)
    if incident.of_before:
        waits_s = backoff_s(max(0, len(ledger.restarts) - 1), policy, now_s)
        return adopted(replace(following, ledger=ledger, start_at_s=now_s + waits_s), now_s)
    return _after_fault(policy, resume_args, plan, incident, following, high_step)


def _after_fault(
    policy: RestartPolicy,
    resume_args: Sequence[str],
    plan: Plan,
    incident: Incident,
    following: Plan,
    high_step: int,
) -> NextStep:
    """Try again, by the plan ``following``, while that can help and the budget lasts."""
    point, now_s, life = following.point, following.start_at_s, plan.incarnation
    own_code = exit_code_of(incident.status)
    if ours := refused_argument(incident, plan, resume_args):
        return finished(life, now_s, BAD_CONFIGURATION, ours)
    if policy.exit_codes is WorkerExitCodes.TORCHFT and incident.status == Exited(code=NEVER_AGAIN):
        return finished(life, now_s, own_code, _SAYS_NO.format(rank=incident.rank))
    says_again = policy.exit_codes is WorkerExitCodes.TORCHFT and incident.cause is Cause.EXIT
    hopeless = policy.max_restarts and not says_again
    why = crash_loop.hopeless(incident, plan, high_step, point) if hopeless else ""
    if why:
        return finished(life, now_s, crash_loop.exit_code(incident, own_code), why)
    failures = crash_loop.alike(incident, plan, high_step, point)
    got_past = crash_loop.saved(plan, high_step, point)
    attempts = plan.ledger.attempts if got_past else attempts_of(incident, plan)
    ledger = replace(plan.ledger, attempts=attempts, last_signature=incident.signature)
    ledger = replace(ledger, alike=failures, unopened=unopened_after(incident, plan))
    match charge(ledger, policy, now_s=now_s, high_step=high_step, point=point):
        case Spent(why=why):
            if loop := crash_loop.looped(incident, failures, policy.max_restarts):
                return finished(life, now_s, crash_loop.exit_code(incident, own_code), f"{loop}; {why}")
            return finished(life, now_s, own_code, why)
        case Allowed(backoff_s=backoff, ledger=charged):
            return adopted(replace(following, start_at_s=now_s + backoff, ledger=charged), now_s)
        case other:
            assert_never(other)


def adopted(plan: Plan, now_s: float) -> PlanAdopted:
    """The next incarnation is this."""
    return PlanAdopted(at_s=now_s, incarnation=plan.incarnation, plan=plan)


def end_incarnation(incarnation: int, why: str, now_s: float) -> IncarnationOver:
    """Have every node that still prepares or trains it end it."""
    return IncarnationOver(at_s=now_s, incarnation=incarnation, why=why)


def finished(
    incarnation: int, now_s: float, code: int, why: str, *, stop: StopSource | None = None
) -> RunFinished:
    """The run ends, after ``incarnation``; ``stop``: because it was told to."""
    return RunFinished(
        at_s=now_s, incarnation=incarnation, exit_code=code, why=why, stopped=stop is not None, stop=stop
    )
