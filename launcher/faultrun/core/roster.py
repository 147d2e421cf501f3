"""Who lives, who has ended and how far everybody has come: the bookkeeping of a state, without its phase."""

from dataclasses import replace

from faultrun.errors import assert_never
from faultrun.model.events import Heartbeat, HelperExit, RunStarted, SpawnFailed, WorkerExit
from faultrun.model.plan import Plan
from faultrun.model.progress import RankStep
from faultrun.model.run import Phase, RunState

_SHELL_CODES = {2: 127, 13: 126, 8: 126}
"""ENOENT, EACCES and ENOEXEC as a shell reports them."""

_OS_ERROR = 71


def taken_up(state: RunState, event: RunStarted) -> RunState:
    """What a new supervisor makes of the state that another left: whatever that one ran died with it."""
    return replace(
        state,
        node=event.node,
        boot=event.boot,
        alive=frozenset(),
        finished=frozenset(),
        helper_exit=None,
        told=frozenset(),
        saves=(),
        promises=(),
        stop=state.stop if state.phase is Phase.NEW else None,
        failure=None,
        exit_code=None,
    )


def renewed(state: RunState, plan: Plan) -> RunState:
    """A clean sheet for the incarnation of ``plan``."""
    return replace(
        state,
        plan=plan,
        incarnation=plan.incarnation,
        exits=(),
        incident=None,
        helper_exit=None,
        finished=frozenset(),
        told=frozenset(),
        saves=(),
        promises=(),
        steps=(),
        point=plan.point,
        forming=False,
    )


def reaped(state: RunState, event: WorkerExit) -> RunState:
    """One rank less is alive; its end is remembered in order, and so is a clean one."""
    finished = state.finished | {event.rank} if event.clean else state.finished
    return replace(state, alive=state.alive - {event.rank}, finished=finished, exits=(*state.exits, event))


def never_started(state: RunState, event: SpawnFailed) -> RunState:
    """A rank that could not be executed ends the run with the code a shell would give; the first says why."""
    failure = state.failure or (_SHELL_CODES.get(event.errno, _OS_ERROR), event.why)
    return replace(state, alive=state.alive - {event.rank}, failure=failure)


def fallen(state: RunState, event: WorkerExit | HelperExit | SpawnFailed) -> RunState:
    """Whoever is lost is remembered as such."""
    match event:
        case SpawnFailed():
            return never_started(state, event)
        case WorkerExit():
            return reaped(state, event)
        case HelperExit():
            return replace(state, helper_exit=event)
        case _:
            assert_never(event)


def progressed(state: RunState, event: Heartbeat) -> RunState:
    """The newest step of every rank that reported, and the highest of the run."""
    newest: dict[int, RankStep] = {step.rank: step for step in state.steps}
    newest.update((step.rank, step) for step in event.steps)
    high = max((step.step for step in event.steps), default=-1)
    return replace(
        state,
        steps=tuple(newest[rank] for rank in sorted(newest)),
        high_step=max(state.high_step, high),
    )
