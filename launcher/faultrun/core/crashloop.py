"""Whether another attempt can help: the same failure twice without progress is the program's, not chance."""

from dataclasses import replace

from faultrun.core.budget import progressed
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.evidence import FaultClass
from faultrun.model.incident import Cause, Incident
from faultrun.model.plan import Plan

DO_NOT_RESTART = 93
"""Exit code of a run that would fail again wherever it is started."""

_BY_CHANCE = frozenset({FaultClass.TRANSIENT, FaultClass.PREEMPTION, FaultClass.CONSEQUENCE})
_NEEDS_ANOTHER_PLACE = frozenset({FaultClass.HARDWARE})


def saved_step(point: RecoveryPoint | None) -> int:
    """The global step of ``point``; -1 when there is none or nobody knows."""
    return -1 if point is None or point.global_step is None else point.global_step


def hopeless(incident: Incident, plan: Plan, high_step: int, point: RecoveryPoint | None) -> str:
    """Why no restart can help after ``incident`` ended ``plan``; empty when one may.

    ``point`` is where the next incarnation would begin: one that could not be
    got past is left out by then, and an older one deserves its own attempts.
    """
    if incident.fault_class in _BY_CHANCE:
        return ""
    if _before_the_first_step(incident, plan, high_step):
        return "it failed before the first step, and nothing says that another start would end otherwise"
    same_start = _path(point) == _path(plan.point)
    if _again(incident, plan) and same_start and not progressed(plan.ledger, high_step, saved_step(point)):
        return f"the same failure twice without progress: {_words(incident)}"
    return ""


def exit_code(incident: Incident, own_code: int) -> int:
    """93, unless another machine may do better: then the worker's own code, so that it is tried."""
    return own_code if incident.fault_class in _NEEDS_ANOTHER_PLACE else DO_NOT_RESTART


def _again(incident: Incident, plan: Plan) -> bool:
    """Whether ``plan`` was made after the very same failure. One that did no step failed where it began."""
    now, last = incident.signature, plan.ledger.last_signature
    if now is None or last is None:
        return False
    began = saved_step(plan.point)
    at_once = now.step is None and began >= 0 and replace(now, step=began).same_as(last)
    return at_once or now.same_as(last)


def _before_the_first_step(incident: Incident, plan: Plan, high_step: int) -> bool:
    """In the first incarnation of the run, and it is known that no step was done.

    Hanging there is mostly the network's doing, which may pass.
    """
    if incident.cause is Cause.HANG:
        return False
    if plan.ledger.total_restarts > 0 or high_step >= 0 or plan.point is not None:
        return False
    return incident.unstarted or (incident.fault_class is FaultClass.DETERMINISTIC and incident.step is None)


def _words(incident: Incident) -> str:
    signature = incident.signature
    if signature is None:
        return incident.explanation
    where = f" at {signature.where}" if signature.where else ""
    step = f", after step {signature.step}" if signature.step is not None else ""
    return f"{signature.what}{where}{step}"


def _path(point: RecoveryPoint | None) -> str:
    return "" if point is None else point.path
