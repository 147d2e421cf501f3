"""Checkpoints that restarts could not get past."""

from collections.abc import Iterable

from faultrun.model.checkpoint import Identity, RecoveryPoint
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.evidence import FaultClass
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Attempt, Plan

LIMIT = 2
"""Restarts without progress after which a checkpoint is left out and the next older one is tried."""

_REMEMBERED = 64
"""A script that rewrites one file leaves an attempt for each of its states; old ones are gone anyway."""


_NETWORK = frozenset({"address-in-use", "download", "licence", "name-service", "slurm-preempted"})
_NO_ROOM = frozenset({"disk-full", "file-size", "shared-memory", "descriptors", "processes"})
"""Findings that say nothing about a file that was read. Memory may have run out because of one, and what a
file system raises otherwise may well be a checkpoint's fault."""


def attempts_of(incident: Incident, plan: Plan) -> tuple[Attempt, ...]:
    """The attempts after ``incident`` ended ``plan``.

    What was ordered, and what was lost with its node, accuses no checkpoint, nor does the weather of a
    network, a full disk or a faulty device, nor what failed without having opened it. However it ended,
    training past it clears it.
    """
    passed = _trained_past(plan, incident.step)
    return attempts_after(plan, incident.step) if passed or _accuses(incident, plan) else plan.ledger.attempts


def was_opened(incident: Incident, point: RecoveryPoint) -> bool:
    """Whether ``point`` was read before the first step, or it was not seen what was."""
    return incident.opened is None or any(map(point.holds, incident.opened))


def _accuses(incident: Incident, plan: Plan) -> bool:
    if incident.ordered or incident.cause in (Cause.ELSEWHERE, Cause.NODE, Cause.FENCE):
        return False
    if plan.point is not None and not was_opened(incident, plan.point):
        return False
    if (finding := incident.finding) is None:
        return True
    return finding.name not in _NETWORK | _NO_ROOM and finding.fault_class is not FaultClass.HARDWARE


def attempts_after(plan: Plan, reached_step: int | None) -> tuple[Attempt, ...]:
    """The attempts, counted on by an incarnation of ``plan`` that failed after ``reached_step``.

    An incarnation that trained past its recovery point clears that point's count. One whose progress no rank
    saw counts as a failed attempt: it wrote no checkpoint either, or the point would be another. Where ranks
    stayed, the plan no longer tells where they began: whatever they are past is cleared.
    """
    if (point := plan.point) is None:
        return tuple(one for one in plan.ledger.attempts if not _is_behind(one, plan, reached_step))
    about = [one for one in plan.ledger.attempts if one.accuses(point.path, point.identity)]
    others = tuple(one for one in plan.ledger.attempts if one not in about)
    if _passed(point, reached_step):
        return others
    failures = 1 + max((one.failures for one in about), default=0)
    return (*others, Attempt(path=point.path, failures=failures, identity=point.identity))[-_REMEMBERED:]


def attempts_seen(plan: Plan, facts: Iterable[NodeFact]) -> tuple[Attempt, ...]:
    """The attempts by what all nodes say of ``plan``'s incarnation: training past its point clears it.

    Ranks that a killed supervisor took with it accuse nothing; what they had reached is known all the same.
    """
    reached = max((_reached(fact) for fact in facts if fact.incarnation == plan.incarnation), default=-1)
    return attempts_after(plan, reached) if _trained_past(plan, reached) else plan.ledger.attempts


def quarantine_after(plan: Plan, incident: Incident | None) -> tuple[Attempt, ...]:
    """What the next plan must not begin from; ``incident`` ended ``plan``, unless that had answered it."""
    if incident is None or incident.number <= plan.ledger.incidents:
        return quarantined(plan.ledger.attempts)
    return quarantined(attempts_of(incident, plan))


def quarantined(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    """Those that must not be chosen again, until they are written anew."""
    return tuple(one for one in attempts if one.failures >= LIMIT)


def _trained_past(plan: Plan, reached_step: int | None) -> bool:
    if plan.point is None:
        return any(_is_behind(one, plan, reached_step) for one in plan.ledger.attempts)
    return _passed(plan.point, reached_step)


def _is_behind(attempt: Attempt, plan: Plan, reached_step: int | None) -> bool:
    return bool(plan.kept) and attempt.identity is not None and _passed(attempt.identity, reached_step)


def _passed(point: RecoveryPoint | Identity, reached_step: int | None) -> bool:
    return reached_step is not None and point.global_step is not None and reached_step > point.global_step


def _reached(fact: NodeFact) -> int:
    incident, reached = fact.left.incident, fact.left.reached
    if incident is None or incident.step is None or incident.incarnation != fact.incarnation:
        return reached
    return max(reached, incident.step)
