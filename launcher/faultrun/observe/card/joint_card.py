"""The card of an incident of several nodes, made of what their plan tells: each writes the same."""

from faultrun.core.plan.joint_incident import answered_by
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.incident import Aftermath, Card
from faultrun.model.plan import Plan
from faultrun.model.spec.run_settings import RunSettings


def agreed_card(
    plan: Plan | None, told: Aftermath, settings: RunSettings, world_size: int, gave_up: str = ""
) -> Card:
    """``plan`` answers the incident, if ``told`` does not say how another did; ``gave_up``: why nobody did.

    ``world_size`` is that of the next world, or of the last one.
    """
    rank = told.incident.rank
    known = told.answer or (None if plan is None else answered_by(plan))
    answer = None if gave_up else known
    point: RecoveryPoint | None = None if answer is None else answer.point
    return Card(
        incident=told.incident,
        world_size=told.world_size or (world_size if told.answer is None else told.answer.world_size),
        saves=told.saves,
        point=point,
        refused=0,
        restart=None if answer is None else (answer.restarts, settings.policy.max_restarts),
        window_s=settings.policy.window_s,
        why=gave_up,
        log_name=f"{settings.worker_log_name}_{rank}.log" if rank is not None else "",
        unsaved=told.unsaved,
        handed_over=settings.handed_over,
        looked_in=settings.checkpoint_dirs,
        refunded=told.refunded,
        at_local=told.incident.at_utc,
        host=told.incident.node,
        replaced=() if known is None else known.replaced,
        kept=() if answer is None else tuple(sorted(answer.kept)),
        workers="" if answer is None else answer.workers,
    )
