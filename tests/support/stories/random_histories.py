"""Histories of facts that mostly could be true, so that they reach every phase, and sometimes could not."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from faultrun.model.events import (
    Drained,
    Event,
    FaultNotice,
    GoGiven,
    PlanAdopted,
    Prepared,
    RecoveryPointChosen,
    RunFinished,
    RunStarted,
    Timer,
    TimerFired,
    WorkerExit,
)
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.observed.platform_notice import ResetNotice
from faultrun.model.run import Phase, RunState
from faultrun.model.spec.windows import NO_TIME, Deadline
from faultrun.model.stop import StopRequested
from faultrun.model.topology import BootId
from support.stories.generated import EVENT_TYPES, values
from support.stories.story import NODE, first_plan

Choose = Callable[[RunState], Event]
"""From the state that was reached to the next fact."""

WORLD_SIZE = 3

_STATUSES: st.SearchStrategy[ExitStatus] = st.sampled_from(
    [Exited(code=0), Exited(code=3), Signaled(signum=9), Signaled(signum=15)]
)
_LATER = st.sampled_from([0.0, 0.1, 5.0, 40.0])
_TURNS = st.sampled_from(["fitting"] * 30 + ["of now"] * 5 + ["regardless"] * 3 + ["stop"])


@st.composite
def absurd_histories(draw: st.DrawFn) -> list[Choose]:
    """Facts for a run of ``WORLD_SIZE`` workers that begins with nothing."""
    any_fact = st.sampled_from(EVENT_TYPES).flatmap(values)
    choices: list[Choose] = []
    for _ in range(draw(st.integers(5, 45))):
        match draw(_TURNS):
            case "fitting":
                rank = draw(st.integers(0, WORLD_SIZE - 1))
                choices.append(Fitting(later_s=draw(_LATER), status=draw(_STATUSES), rank=rank))
            case "of now":
                choices.append(OfNow(event=draw(any_fact)))
            case "stop":
                choices.append(OfNow(event=draw(values(StopRequested))))
            case _:
                choices.append(Regardless(event=draw(any_fact)))
    return choices


def _deadline(state: RunState) -> Deadline:
    return NO_TIME if state.life.drain is None else state.life.drain.deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Regardless:
    """A fact that cares for nothing."""

    event: Event

    def __call__(self, state: RunState) -> Event:
        return self.event


@dataclass(frozen=True, slots=True, kw_only=True)
class OfNow:
    """A fact of the incarnation that was reached, fitting or not."""

    event: Event

    def __call__(self, state: RunState) -> Event:
        return replace(self.event, incarnation=state.incarnation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """What could come next in the phase that was reached."""

    later_s: float
    status: ExitStatus
    rank: int

    def __call__(self, state: RunState) -> Event:  # noqa: C901, PLR0911  one row a phase
        now: dict[str, Any] = {"at_s": _deadline(state).at_s + self.later_s, "incarnation": state.incarnation}
        match state.phase:
            case Phase.NEW | Phase.FINISHED:
                return RunStarted(**now, node=NODE, boot=BootId("b"), pid=1)
            case Phase.SURVEYING:
                return RecoveryPointChosen(**now, point=None, refused=())
            case Phase.AWAITING_PLAN if state.stop or state.failure:
                return RunFinished(**now, exit_code=1, why="over")
            case Phase.AWAITING_PLAN:
                later_s, number = now["at_s"] + self.later_s, state.incarnation + 1
                return PlanAdopted(**now, plan=first_plan(WORLD_SIZE, incarnation=number, start_at_s=later_s))
            case Phase.BACKING_OFF:
                return TimerFired(**now, timer=Timer.BACKOFF)
            case Phase.HOLDING if self.later_s > 10:
                return TimerFired(**now, timer=Timer.HOLD)
            case Phase.HOLDING:
                return FaultNotice(**now, notice=ResetNotice())
            case Phase.PREPARING:
                return Prepared(**now, master_port=1)
            case Phase.AWAITING_GO:
                return GoGiven(**now, master_addr="127.0.0.1", master_port=1)
            case Phase.SWEEPING:
                return Drained(**now, stragglers=(), swept=0, notes=())
            case Phase.DRAINING if self.later_s > 10:
                return TimerFired(**now, timer=Timer.GRACE)
            case Phase.KILLING if self.later_s > 10:
                return TimerFired(**now, timer=Timer.REAP)
            case Phase.REPLACING if self.later_s > 10:
                return TimerFired(**now, timer=Timer.REJOIN)
            case Phase.RUNNING | Phase.REPLACING | Phase.DRAINING | Phase.KILLING:
                rank = (
                    self.rank if self.rank in state.life.alive else min(state.life.alive, default=self.rank)
                )
                return WorkerExit(**now, node=NODE, rank=rank, pid=1, status=self.status)
