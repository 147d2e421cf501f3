"""What this node says of itself to the agreement, and when. Pure."""

from dataclasses import replace

from faultrun.core.phases import grace_window, platform_notices
from faultrun.model.actions import Publish
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.run import Phase, RunState, Step


def await_plan(state: RunState, now_s: float, status: NodeStatus, why: str, *, look: int = -1) -> Step:
    """Tell the agreement where this node stands and let it say what comes next."""
    state = replace(state, phase=Phase.AWAITING_PLAN)
    return Step(state=state, actions=(statement(state, now_s, status, look),), why=why)


def statement(state: RunState, now_s: float, status: NodeStatus, look: int = -1) -> Publish:
    """What this node says of itself from now on."""
    return Publish(
        fact=NodeFact(
            node=state.node,
            boot=state.boot,
            at_s=now_s,
            incarnation=state.incarnation,
            status=status,
            incident=state.life.incident,
            stop=state.stop.source if state.stop is not None else None,
            point=state.life.point,
            more_points=state.life.more_points,
            high_step=state.run.high_step,
            reached=state.life.reached,
            master_port=state.life.master_port,
            failure=state.failure,
            lacks="" if state.life.lacks is None else state.life.lacks.why,
            unfit=state.unfit,
            addr=state.addr,
            look=look,
            saves=state.life.saves,
            unsaved=grace_window.unsaved(state.life),
            native_scheduler=state.native_scheduler or state.run.native_scheduler,
            forming=state.life.forming,
            kept=state.life.alive if status is NodeStatus.REPLACING else frozenset(),
            usable=state.life.usable,
            faulty=platform_notices.faulty_slots(state),
            hangs=state.life.standstill.warning if status is NodeStatus.RUNNING else "",
            meeting_port=state.life.meeting_port if status is NodeStatus.REPLACING else 0,
            open_port=0 if _keeps_back(state, now_s) else state.life.open_port,
            ledger=state.ledger_before,
            saved="" if state.plan is None or state.plan.point is not None else state.run.known_save,
        )
    )


def first_save(state: RunState, before: RunState, now_s: float, why: str) -> Step:
    """The run has a save: of several nodes, whoever comes when all that trained are gone must hear of it."""
    new = state.run.known_save and not before.run.known_save
    if not new or state.phase is not Phase.RUNNING or state.plan is None or state.plan.of_one_node:
        return Step(state=state, why=why)
    return Step(state=state, actions=(statement(state, now_s, NodeStatus.RUNNING),), why=why)


def give_up(state: RunState, now_s: float, failure: tuple[int, str]) -> Step:
    """End the run with (exit code, why): no incarnation follows."""
    state = replace(state, failure=failure)
    return await_plan(state, now_s, NodeStatus.JOINED, f"giving up: {failure[1]}")


def _keeps_back(state: RunState, now_s: float) -> bool:
    """Whether the platform wants a start to wait."""
    return state.run.platform.not_before_s > now_s or bool(platform_notices.hold(state))
