"""The look for what to resume from, and what this node then says. Called by ``decide``, which says when.

The answer of one look may be out of date: of several nodes, others may still save when it begins.
"""

from dataclasses import replace

from faultrun.core.phases.node_statement import await_plan
from faultrun.core.plan.joint_incident import only_followed
from faultrun.core.recovery.quarantine import attempts_of, quarantined
from faultrun.model.actions import FindRecoveryPoint, StartTimer
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import NothingWhole, RecoveryPointChosen, Timer
from faultrun.model.incident import Incident
from faultrun.model.observed.agreement import LookAgain
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.run import Lack, Phase, RunState, Step

_PATIENCE_S = 60.0
_FIRST_LOOK_S = 1.0
"""A mount that dropped is often back in a minute; the time between two looks doubles."""
_AGAIN_S, _RAREST_S = 10.0, 600.0


def find_recovery_point(state: RunState, incident: Incident | None) -> FindRecoveryPoint:
    """The request to look for the recovery point, with what the incident and earlier attempts forbid."""
    seen = max(state.run.high_step, -1 if incident is None or incident.step is None else incident.step)
    plain = FindRecoveryPoint(
        incarnation=state.incarnation,
        continuing=state.plan is not None,
        lost=tuple(sorted(state.run.platform.lost)),
        expects=state.run.known_save,
        folders=state.run.save_folders,
        world_size=_saved_by(state),
        reached=seen if seen >= 0 else None,
    )
    if state.plan is None:
        return plain
    if not state.plan.of_one_node:
        plain = replace(plain, resumed=state.plan.resumes_from(state.node))
    before = state.plan.topology.world_size
    plain = replace(plain, before=before if before != plain.world_size else 0)
    if incident is None or incident.ordered:
        return replace(plain, quarantine=quarantined(state.plan.ledger.attempts))
    # A node that only followed others does not know what they failed of.
    follows = only_followed(incident) and not state.plan.of_one_node
    attempts = state.plan.ledger.attempts if follows else attempts_of(incident, state.plan)
    plain = replace(plain, fault_at_s=incident.at_s, opened=incident.opened or ())
    return replace(plain, quarantine=quarantined(attempts))


def _saved_by(state: RunState) -> int:
    """How many workers the recovery point is to serve: a world that shrank is resumed as it was."""
    plan = state.plan
    return state.seats.world_size if plan is None or plan.slots is None else plan.topology.world_size


def offer(state: RunState, event: RecoveryPointChosen) -> Step:
    """The checkpoints were looked through: tell the agreement what this node can resume from."""
    run, where = state.run, "from nothing"
    if event.point is not None:
        step = event.point.global_step
        high_step = max(run.high_step, -1 if step is None else step)
        run = replace(run, high_step=high_step, known_save=event.point.path)
        where = f"from {event.point.path}"
    points = (event.point, event.more_points)
    return _looked(replace(state, run=run), event.at_s, points, f"resume {where}", open_port=event.open_port)


def lack(state: RunState, event: NothingWhole) -> Step:
    """Nothing can be resumed from. A folder that is gone may come back for a while."""
    if event.gone_s is None or event.gone_s >= _PATIENCE_S:
        since_s = event.at_s if state.life.lacks is None else state.life.lacks.since_s
        lacks = Lack(why=event.why, since_s=since_s)
        told = _looked(state, event.at_s, (None, ()), f"nothing to resume from: {event.why}", lacks=lacks)
        return told if len(state.topology.nodes) == 1 else _once_more(told, event.at_s, since_s)
    wait_s = max(_FIRST_LOOK_S, event.gone_s)
    timer = StartTimer(timer=Timer.LOOK, at_s=event.at_s + wait_s, incarnation=state.incarnation)
    why = f"looking for the checkpoints again in {wait_s:.0f} s, and for {_PATIENCE_S:g} s in all"
    return Step(state=state, actions=(timer,), why=why)


def _looked(
    state: RunState,
    now_s: float,
    points: tuple[RecoveryPoint | None, tuple[RecoveryPoint, ...]],
    why: str,
    *,
    open_port: int = 0,
    lacks: Lack | None = None,
) -> Step:
    """Tell what was seen, unless the others want another look by now."""
    point, more = points
    life = replace(state.life, point=point, more_points=more, open_port=open_port, lacks=lacks)
    if (state := replace(state, life=life)).life.look > state.run.look:
        return _look_for(state, state.life.look)
    status = NodeStatus.DONE if state.has_finished else NodeStatus.JOINED
    return await_plan(state, now_s, status, why, look=state.run.look)


def _once_more(told: Step, now_s: float, since_s: float) -> Step:
    """A spare may have come while the first checkpoint was being written: it looks ever more rarely."""
    wait_s = min(max(_AGAIN_S, now_s - since_s), _RAREST_S)
    timer = StartTimer(timer=Timer.LACK, at_s=now_s + wait_s, incarnation=told.state.incarnation)
    return replace(told, actions=(*told.actions, timer))


def look_by_itself(state: RunState) -> Step:
    """Nothing whole was found a while ago, and no plan has come since."""
    if state.life.lacks is None or state.stop is not None or state.failure is not None:
        return Step(state=state, why="there is nothing to look for")
    return _look_for(state, state.run.look)


def without_unseen(state: RunState, path: str) -> Step:
    """Another node's checkpoint is not seen here: this node looks for one that all see."""
    state = replace(state, run=replace(state.run, unseen=(*state.run.unseen, path)))
    return replace(_look_for(state, state.run.look), why=f"{path} is not seen here: looking for another")


def look_again(state: RunState) -> Step:
    """The wait for a folder that was gone is over."""
    actions = (find_recovery_point(state, state.life.incident),)
    return Step(state=state, actions=actions, why="another look for the checkpoints")


def asked_to_look(state: RunState, event: LookAgain) -> Step:
    """Look again without workers: what others saved last may lie there by now."""
    if state.phase is Phase.SURVEYING:
        noted = replace(state, life=replace(state.life, look=event.number))
        return Step(state=noted, why="looking through the checkpoints; once more after that")
    if state.phase is not Phase.AWAITING_PLAN or state.stop is not None or state.failure is not None:
        return Step(state=state, why=f"asked to look through the checkpoints while {state.phase.value}")
    return _look_for(state, event.number)


def _look_for(state: RunState, number: int) -> Step:
    state = replace(state, phase=Phase.SURVEYING, run=replace(state.run, look=number))
    look = find_recovery_point(state, state.life.incident)
    return Step(state=state, actions=(look,), why="others may have saved since the last look")
