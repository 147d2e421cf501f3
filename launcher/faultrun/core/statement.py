"""What a state asks for and tells others: the actions that carry most of it."""

from dataclasses import replace

from faultrun.core.quarantine import attempts_of, quarantined
from faultrun.model.actions import FindRecoveryPoint, Publish, Sweep
from faultrun.model.facts import NodeFact, NodeStatus
from faultrun.model.run import RunState


def tell(state: RunState, now_s: float, standing: NodeStatus) -> Publish:
    """This node's newest statement."""
    return Publish(
        fact=NodeFact(
            node=state.node,
            boot=state.boot,
            at_s=now_s,
            incarnation=state.incarnation,
            status=standing,
            incident=state.life.incident,
            stop=state.stop.source if state.stop is not None else None,
            point=state.life.point,
            high_step=state.high_step,
            master_port=state.life.master_port,
            failure=state.failure,
            addr=state.addr,
        )
    )


def survey(state: RunState) -> FindRecoveryPoint:
    """Look for the recovery point, under what the incident and earlier attempts taught."""
    plain = FindRecoveryPoint(
        incarnation=state.incarnation,
        continuing=state.plan is not None,
        lost=tuple(sorted(state.platform.lost)),
        expects=state.known_save,
        folders=state.save_folders,
        world_size=state.seats.world_size,
    )
    if state.plan is None:
        return plain
    incident = state.life.incident
    if incident is None or incident.ordered:
        return replace(plain, quarantine=quarantined(state.plan.ledger.attempts))
    attempts = attempts_of(incident, state.plan)
    return replace(plain, fault_at_s=incident.at_s, quarantine=quarantined(attempts))


def sweep(state: RunState) -> Sweep:
    """End what the workers left behind, and read what all of them said last."""
    ranks = (*(exit_.rank for exit_ in state.life.exits), *sorted(state.life.alive))
    return Sweep(incarnation=state.incarnation, dead=ranks)
