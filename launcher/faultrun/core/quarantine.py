"""Checkpoints that restarts could not get past."""

from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.plan import Attempt, Plan

LIMIT = 2
"""Restarts without progress after which a checkpoint is left out and the next older one is tried."""


def attempts_after(plan: Plan, reached_step: int | None) -> tuple[Attempt, ...]:
    """The attempts, counted on by an incarnation of ``plan`` that failed after ``reached_step``.

    An incarnation that trained past its recovery point clears that point's
    count. One whose progress nobody saw counts as a failed attempt: it wrote
    no checkpoint either, or the point would be another.
    """
    point = plan.point
    if point is None:
        return plan.ledger.attempts
    others = tuple(one for one in plan.ledger.attempts if one.path != point.path)
    if _passed(point, reached_step):
        return others
    before = next((one.failures for one in plan.ledger.attempts if one.path == point.path), 0)
    return (*others, Attempt(path=point.path, failures=before + 1))


def quarantined(attempts: tuple[Attempt, ...]) -> tuple[str, ...]:
    """Paths that must not be chosen again."""
    return tuple(one.path for one in attempts if one.failures >= LIMIT)


def _passed(point: RecoveryPoint, reached_step: int | None) -> bool:
    return reached_step is not None and point.global_step is not None and reached_step > point.global_step
