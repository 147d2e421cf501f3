"""The card of an incident of several nodes, made of what their plan tells: each writes the same."""

from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.incident import Aftermath, Card
from faultrun.model.plan import Plan
from faultrun.model.run_settings import RunSettings


def agreed_card(
    plan: Plan, told: Aftermath, settings: RunSettings, world_size: int, gave_up: str = ""
) -> Card:
    """``plan`` answers the incident, or, where nobody went on, tells of it: ``gave_up`` says why."""
    rank = told.incident.rank
    point: RecoveryPoint | None = None if gave_up else plan.point
    return Card(
        incident=told.incident,
        world_size=world_size,
        saves=told.saves,
        point=point,
        refused=0,
        restart=None if gave_up else (len(plan.ledger.restarts), settings.policy.max_restarts),
        window_s=settings.policy.window_s,
        why=gave_up,
        log_name=f"{settings.worker_log_name}_{rank}.log" if rank is not None else "",
        unsaved=told.unsaved,
        handed_over=settings.handed_over,
        looked_in=settings.checkpoint_dirs,
        refunded=told.refunded,
        at_local=told.incident.at_utc,
        host=told.incident.node,
        replaced=plan.replaced,
    )
