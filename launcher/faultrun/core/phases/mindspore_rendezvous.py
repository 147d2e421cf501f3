"""Our own scheduler for MindSpore's workers: whether it serves them, and giving it up for MindSpore's.

It is given up once, for the rest of the run, and at the price of one restart that is not charged.
"""

from dataclasses import replace

from faultrun.core.diagnosis.diagnose import describe, new_incident, open_incident
from faultrun.core.phases import drain
from faultrun.core.plan.choose_scheduler import INSTEAD
from faultrun.errors import assert_never
from faultrun.model.actions import RestoreScheduling, StartTimer
from faultrun.model.events import Timer, TimerFired, WorkerExit
from faultrun.model.incident import Cause
from faultrun.model.observed.mindspore_rendezvous import ClusterFormed, RankMissed, RanksMet, SchedulerFailed
from faultrun.model.run import Phase, RunState, Step

FORMING_S = 15.0
"""From the last registration until every ``init()`` is through: 0.6 s, a few on a loaded machine."""


def heard(state: RunState, event: RanksMet | ClusterFormed | SchedulerFailed | TimerFired) -> Step:
    """What our scheduler says of the workers. Waiting workers that it cannot serve are started again."""
    match event:
        case RanksMet(at_s=at_s, incarnation=incarnation):
            timer = StartTimer(timer=Timer.FORMING, at_s=at_s + FORMING_S, incarnation=incarnation)
            forming = replace(state, life=replace(state.life, forming=True))
            return Step(state=forming, actions=(timer,), why="every rank has registered")
        case ClusterFormed(took_s=took_s):
            formed = replace(state, life=replace(state.life, forming=False))
            return Step(state=formed, why=f"the cluster formed in {took_s:.1f} s")
        case SchedulerFailed(why=why, at_s=at_s):
            return _give_up(state, at_s, f"the built-in scheduler failed: {why}")
        case TimerFired(at_s=at_s) if state.life.forming and state.phase is Phase.RUNNING:
            why = f"init() took longer than {FORMING_S:g} s after all ranks had met at the built-in scheduler"
            return _give_up(state, at_s, why)
        case TimerFired():
            restored = RestoreScheduling(incarnation=state.incarnation)
            actions = (restored,) if state.phase is Phase.RUNNING else ()
            return Step(state=state, actions=actions, why="the ranks have met, or are leaving")
        case _:
            assert_never(event)


def left_init(state: RunState, event: WorkerExit) -> Step:
    """A worker that leaves ``init()`` by itself, with an error, may have disliked what our scheduler said."""
    why = f"rank {event.rank} {describe(event.status)} in init(), where the built-in scheduler serves it"
    return _give_up(replace(state, life=state.life.reaped(event)), event.at_s, why)


def missed(state: RunState, event: RankMissed) -> Step:
    """The run need not wait for MindSpore to find out, which takes it ten minutes and more."""
    incident = open_incident(state, event)
    return drain.open_drain(state, incident, f"rank {event.rank} {incident.explanation}")


def _give_up(state: RunState, now_s: float, why: str) -> Step:
    why = f"{why}; {INSTEAD}"
    if state.run.native_scheduler:
        return Step(state=state, why="the built-in scheduler is given up already")
    run, life = replace(state.run, native_scheduler=True), replace(state.life, forming=False)
    if (state := replace(state, run=run, life=life)).phase is not Phase.RUNNING:
        return Step(state=state, why=why)
    return drain.open_drain(state, new_incident(state, now_s, Cause.RENDEZVOUS, why), why)
