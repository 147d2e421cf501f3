"""Who lives, who has ended and how far everybody has come: the bookkeeping of a state, without its phase."""

from dataclasses import replace

from faultrun.errors import assert_never
from faultrun.model.events import Heartbeat, HelperExit, RunStarted, SpawnFailed, WorkerExit
from faultrun.model.plan import Ledger, Plan
from faultrun.model.progress import RankStep
from faultrun.model.run import Life, Phase, RunState

_SHELL_CODES = {2: 127, 13: 126, 8: 126}
"""ENOENT, EACCES and ENOEXEC as a shell reports them."""

_OS_ERROR = 71


def taken_up(state: RunState, event: RunStarted) -> RunState:
    """What a new supervisor makes of the state that another left: whatever that one ran died with it.

    An incident that no plan has answered is answered by the next, unless the run
    was given up for it. A stop that came before the first start is this supervisor's own.
    """
    return RunState(
        node=event.node,
        boot=event.boot,
        addr=event.addr,
        stop_by_s=event.stop_by_s,
        topology=state.topology,
        windows=state.windows,
        phase=Phase.SURVEYING,
        incarnation=state.incarnation,
        plan=plan_to_go_on_from(state),
        high_step=state.high_step,
        platform=state.platform,
        native_scheduler=state.native_scheduler,
        patience=state.patience,
        known_save=state.known_save,
        save_folders=state.save_folders,
        life=Life(incident=None if state.given_up else state.life.incident),
        stop=state.stop if state.phase is Phase.NEW else None,
    )


def plan_to_go_on_from(state: RunState) -> Plan | None:
    """The plan that the next one follows: as it was, or with nothing spent if the run had been given up.

    Whoever starts that again has changed something, in the program as likely as in its checkpoints: no
    restart, no failure and no attempt on a checkpoint is held against it. Numbers go on.
    """
    plan = state.plan
    if plan is None or not state.given_up:
        return plan
    before = plan.ledger
    ledger = Ledger(
        high_step=before.high_step,
        saved_step=before.saved_step,
        saved_epoch=before.saved_epoch,
        incidents=max(before.incidents, state.incidents),
        total_restarts=before.total_restarts,
    )
    return replace(plan, ledger=ledger)


def renewed(state: RunState, plan: Plan) -> RunState:
    """The state in which the incarnation of ``plan`` begins."""
    return replace(
        state,
        plan=plan,
        incarnation=plan.incarnation,
        life=Life(point=plan.point, topology=plan.topology, alive=state.life.alive & plan.kept),
    )


def reaped(state: RunState, event: WorkerExit) -> RunState:
    """One rank less is alive; its end is remembered in order, and so is a clean one."""
    life = state.life
    finished = life.finished | {event.rank} if event.clean else life.finished
    life = replace(life, alive=life.alive - {event.rank}, finished=finished, exits=(*life.exits, event))
    return replace(state, life=life)


def never_started(state: RunState, event: SpawnFailed) -> RunState:
    """A rank that could not be executed ends the run with the code a shell would give; the first says why."""
    failure = state.failure or (_SHELL_CODES.get(event.errno, _OS_ERROR), event.why)
    life = replace(state.life, alive=state.life.alive - {event.rank})
    return replace(state, life=life, failure=failure)


def fallen(state: RunState, event: WorkerExit | HelperExit | SpawnFailed) -> RunState:
    """Whoever is lost is remembered as such."""
    match event:
        case SpawnFailed():
            return never_started(state, event)
        case WorkerExit():
            return reaped(state, event)
        case HelperExit():
            return state
        case _:
            assert_never(event)


def progressed(state: RunState, event: Heartbeat) -> RunState:
    """The newest step of every rank that reported, and the highest of the run."""
    newest: dict[int, RankStep] = {step.rank: step for step in state.life.steps}
    newest.update((step.rank, step) for step in event.steps)
    high = max((step.step for step in event.steps), default=-1)
    life = replace(state.life, steps=tuple(newest[rank] for rank in sorted(newest)))
    return replace(state, life=life, high_step=max(state.high_step, high))
