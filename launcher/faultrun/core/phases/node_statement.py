"""What this node says of itself to the agreement, and when. Pure."""

from dataclasses import replace

from faultrun.core.phases import grace_window, platform_notices
from faultrun.core.phases.may_stay import came_in_vain, why_not_train_on
from faultrun.core.plan.joint_saves import as_told
from faultrun.errors import assert_never
from faultrun.model.actions import Publish
from faultrun.model.observed.node_fact import (
    LeftBehind,
    NodeDone,
    NodeDrained,
    NodeFact,
    NodeJoined,
    NodeReady,
    NodeReplacing,
    NodeRunning,
    NodeStatus,
    Resumable,
    SlotHealth,
    Status,
)
from faultrun.model.observed.saves import NOTHING_SEEN, SavesSeen
from faultrun.model.run import Life, Phase, RunState, Step


def await_plan(state: RunState, now_s: float, status: NodeStatus, why: str, *, look: int = -1) -> Step:
    """Tell the agreement where this node stands and let it say what comes next."""
    state = replace(state, phase=Phase.AWAITING_PLAN)
    return Step(state=state, actions=(publish(state, now_s, status, look),), why=why)


def publish(state: RunState, now_s: float, status: NodeStatus, look: int = -1) -> Publish:
    """Have the agreement told what this node says of itself from now on."""
    return Publish(
        fact=NodeFact(
            node=state.node,
            boot=state.boot,
            at_s=now_s,
            incarnation=state.incarnation,
            status=_status(state, now_s, status, look),
            stop=state.stop.source if state.stop is not None else None,
            high_step=state.run.high_step,
            failure=state.failure,
            unfit=state.unfit,
            addr=state.addr,
            native_scheduler=state.native_scheduler or state.run.native_scheduler,
            ledger=state.ledger_before,
            saved="" if state.plan is None or state.plan.point is not None else state.run.known_save,
            seen=_seen(state, busy=status.busy),
        )
    )


def _seen(state: RunState, *, busy: bool = True) -> SavesSeen:
    """What others need to know of saves: while workers live, only once one is whole and no plan tells it."""
    plan, seen = state.plan, state.run.seen
    told = busy and (plan is None or plan.seen.saves or len(seen.saves) <= 1)
    return NOTHING_SEEN if told or len(state.topology.nodes) == 1 else as_told(seen)


def _status(state: RunState, now_s: float, status: NodeStatus, look: int) -> Status:
    """How far this node is, with what others need to know then."""
    life, left = state.life, _left(state.life)
    resume = replace(_resume(life, look), unseen=state.run.unseen)
    slots = SlotHealth(usable=life.usable, faulty=platform_notices.faulty_slots(state))
    kept_back = state.run.platform.not_before_s > now_s or platform_notices.hold(state)
    open_port = 0 if kept_back else life.open_port
    match status:
        case NodeStatus.JOINED:
            return NodeJoined(resume=resume, left=left, slots=slots, open_port=open_port)
        case NodeStatus.DRAINED:
            return NodeDrained(resume=resume, left=left, slots=slots, open_port=open_port)
        case NodeStatus.READY:
            return NodeReady(master_port=life.master_port)
        case NodeStatus.RUNNING:
            return NodeRunning(master_port=life.master_port, hangs=life.standstill.warning)
        case NodeStatus.REPLACING:
            return _replacing(state, left, slots)
        case NodeStatus.DONE:
            port = life.master_port
            return NodeDone(resume=resume, left=left, slots=slots, open_port=open_port, master_port=port)
        case _:
            assert_never(status)


def _replacing(state: RunState, left: LeftBehind, slots: SlotHealth) -> NodeReplacing:
    """Who lives on, and whether they train before the others have come."""
    life = state.life
    said = NodeReplacing(kept=life.alive, meeting_port=life.meeting_port, left=left, slots=slots)
    if why_not_train_on(state):
        return replace(said, heals=life.incident is None)
    vain = came_in_vain(state, *(one.rank for one in life.exits if not one.clean))
    ready = life.parked - life.alive - life.finished
    return replace(said, trains_on=True, ready=ready, heals=life.incident is None, came_in_vain=vain)


def _resume(life: Life, look: int) -> Resumable:
    """What it could resume from, by its last look through the checkpoints."""
    lacks = "" if life.lacks is None else life.lacks.why
    return Resumable(point=life.point, more_points=life.more_points, look=look, lacks=lacks)


def _left(life: Life) -> LeftBehind:
    """What is known of ranks that ended."""
    unsaved, reached = grace_window.unsaved(life), life.reached
    left = LeftBehind(incident=life.incident, saves=life.saves, unsaved=unsaved)
    return replace(left, reached=reached, forming=life.forming)


def saves_known(state: RunState, before: RunState, now_s: float, why: str) -> Step:
    """The run has a save, or it is known what one is: of several nodes, those who know may soon be gone."""
    old, new = ((bool(one.run.known_save), bool(_seen(one).saves)) for one in (before, state))
    if old == new or state.phase is not Phase.RUNNING or state.plan is None or state.plan.of_one_node:
        return Step(state=state, why=why)
    return Step(state=state, actions=(publish(state, now_s, NodeStatus.RUNNING),), why=why)


def give_up(state: RunState, now_s: float, failure: tuple[int, str]) -> Step:
    """End the run with (exit code, why): no incarnation follows."""
    state = replace(state, failure=failure)
    return await_plan(state, now_s, NodeStatus.JOINED, f"giving up: {failure[1]}")
