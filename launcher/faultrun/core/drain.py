"""Transitions from running workers to none: a fault or a stop, the grace window, the kill, the sweep.

Called by ``decide`` only, which says when each of them applies.
"""

from dataclasses import replace

from faultrun.core import begin, gasp
from faultrun.core.diagnose import conclude, exit_code_of, open_incident
from faultrun.core.roster import fallen
from faultrun.core.statement import survey, sweep
from faultrun.model.actions import Action, Kill, RaiseAlarm, RequestGasp, StartTimer, VerifySave
from faultrun.model.agreement import IncarnationOver, MembershipLost
from faultrun.model.events import Drained, Exited, HelperExit, SpawnFailed, Timer, WorkerExit
from faultrun.model.facts import NodeStatus
from faultrun.model.gasp import GaspSaved, GaspVerified
from faultrun.model.incident import Cause, Incident, Save
from faultrun.model.run import Phase, RunState, Step
from faultrun.model.stop import Stop, StopRequested, StopSource

READ_BACK_S = 0.5
"""How long a stopped run without processes waits to say that its save is whole; the next start proves it."""


def fault(state: RunState, event: WorkerExit | HelperExit | SpawnFailed) -> Step:
    """A worker, a helper or a start failed: the others are asked to save."""
    if isinstance(event, HelperExit) and (state.life.finished or event.status == Exited(code=0)):
        return Step(state=state, why=f"{event.name} left; its end never decides the run")
    incident = open_incident(state.incidents + 1, event, state.life.steps)
    state = fallen(state, event)
    who = "the workers" if incident.rank is None else f"rank {incident.rank}"
    return open_drain(state, incident, f"{who}: {incident.explanation}")


def open_drain(state: RunState, incident: Incident, why: str) -> Step:
    """Open ``incident``: raise the alarm and let the survivors save."""
    alarm = RaiseAlarm(incarnation=state.incarnation, why=incident.explanation)
    state = replace(state, life=replace(state.life, incident=incident))
    return _drain(state, incident.at_s, state.windows.grace_s, why, (alarm,), peers_lost=True)


def over_elsewhere(state: RunState, event: IncarnationOver) -> Step:
    """Another node ended the incarnation: its ranks are gone, so ours save and leave."""
    if state.phase is not Phase.RUNNING:
        return begin.withdraw(state, event.at_s, event.why)
    opened = replace(state, life=replace(state.life, incident=_elsewhere(state, event)))
    return _drain(opened, event.at_s, state.windows.grace_s, event.why, peers_lost=True)


def fence(state: RunState, event: MembershipLost) -> Step:
    """Nothing may live here beside whoever gets this node's place; there is no time to save."""
    if state.phase not in (Phase.RUNNING, Phase.DRAINING):
        return begin.withdraw(state, event.at_s, event.why)
    incident = state.life.incident or _elsewhere(state, event)
    state = replace(state, life=replace(state.life, incident=incident, deadline_s=event.at_s))
    if not state.life.alive:
        return sweep_when_empty(state, event.at_s, event.why)
    return kill(state, event.at_s, event.why)


def _elsewhere(state: RunState, event: IncarnationOver | MembershipLost) -> Incident:
    newest = max(state.life.steps, key=lambda step: step.step, default=None)
    return Incident(
        number=state.incidents + 1,
        incarnation=state.incarnation,
        at_s=event.at_s,
        cause=Cause.ELSEWHERE,
        rank=None,
        status=None,
        followers=(),
        step=newest.step if newest else None,
        epoch=newest.epoch if newest else None,
        explanation=event.why,
    )


def stop(state: RunState, event: StopRequested) -> Step:
    """End the run with a gasp; somebody who asks again is impatient and cuts the window short.

    The SIGTERM that follows a preStop hook is the platform's routine and not
    impatience: the window that the hook opened goes on. Whoever asks when every rank
    has returned 0 comes too late to end anything.
    """
    if state.phase is Phase.SWEEPING and state.stop is None and state.life.incident is None:
        return Step(state=state, why=f"{event.source.value} comes too late: every rank has finished")
    before = state.stop or Stop(source=event.source)
    again = before.is_repeated_by(event)
    state = replace(state, stop=before.heard(event))
    if state.phase.without_workers:
        return begin.await_plan(state, event.at_s, NodeStatus.JOINED, "told to stop; no worker runs")
    match state.phase:
        case Phase.RUNNING:
            window_s = _stop_window_s(state, event)
            why = f"told to stop by {event.source.value}"
            alarm = RaiseAlarm(incarnation=state.incarnation, why=why)
            return _drain(state, event.at_s, window_s, why, (alarm,))
        case Phase.DRAINING if again:
            return kill(state, event.at_s, f"told to stop again by {event.source.value}: the window is cut")
        case Phase.DRAINING:
            deadline_s = min(state.life.deadline_s, event.at_s + _stop_window_s(state, event))
            timer = StartTimer(timer=Timer.GRACE, at_s=deadline_s, incarnation=state.incarnation)
            return Step(
                state=replace(state, life=replace(state.life, deadline_s=deadline_s)),
                actions=(timer,),
                why="told to stop; the open window serves, no restart follows",
            )
        case Phase.SWEEPING if again and state.life.swept:
            return stop_reading(state, event.at_s, f"told to stop again by {event.source.value}")
        case _:
            return Step(state=state, why="told to stop; no restart will follow")


def _stop_window_s(state: RunState, event: StopRequested) -> float:
    left_s = None if state.stop_by_s is None else state.stop_by_s - event.at_s
    return state.windows.stop_window_s(left_s, event.late_s)


def leave(state: RunState, now_s: float, why: str) -> Step:
    """End the run as if it was told to: whoever starts it again, elsewhere, goes on with it."""
    asked = StopRequested(at_s=now_s, incarnation=state.incarnation, source=StopSource.PLATFORM)
    return replace(stop(state, asked), why=why)


def _drain(
    state: RunState,
    now_s: float,
    window_s: float,
    why: str,
    first: tuple[Action, ...] = (),
    *,
    peers_lost: bool = False,
) -> Step:
    """Open the grace window for every living rank, or sweep at once when none lives."""
    if not state.life.alive:
        step = sweep_when_empty(state, now_s, why)
        return replace(step, actions=(*first, *step.actions))
    deadline_s = now_s + window_s
    request = RequestGasp(ranks=state.life.alive, deadline_s=deadline_s, peers_lost=peers_lost)
    timer = StartTimer(timer=Timer.GRACE, at_s=deadline_s, incarnation=state.incarnation)
    state = replace(state, phase=Phase.DRAINING, life=replace(state.life, deadline_s=deadline_s))
    why = f"{why}; {len(state.life.alive)} get {window_s:g} s to save"
    return Step(state=state, actions=(request, *first, timer), why=why)


def saved(state: RunState, event: GaspSaved) -> Step:
    """A rank reported a save; nothing counts before it has been read back."""
    state, unread = gasp.saved(state, event)
    return Step(state=state, actions=_verify(state, unread), why=f"rank {event.rank} saved step {event.step}")


def read_back(state: RunState, event: GaspVerified) -> Step:
    """A save is whole or torn: the window may be over, or another copy has to be read."""
    state, unread = gasp.verified(state, event)
    why = f"the save of rank {event.rank}: {event.why}"
    if state.life.swept and state.phase is Phase.SWEEPING and not state.life.reading:
        return begin.await_plan(state, event.at_s, NodeStatus.DRAINED, why)
    step = end_window_early(state, event.at_s, why)
    return replace(step, actions=(*_verify(state, unread), *step.actions))


def _verify(state: RunState, saves: tuple[Save, ...]) -> tuple[Action, ...]:
    return tuple(VerifySave(incarnation=state.incarnation, rank=save.rank, path=save.path) for save in saves)


def stop_reading(state: RunState, now_s: float, why: str) -> Step:
    """End a stopped run although saves are still being read back; nobody but them was waited for."""
    return begin.await_plan(state, now_s, NodeStatus.DRAINED, f"{why}; not every save was read back")


def end_window_early(state: RunState, now_s: float, why: str) -> Step:
    """Kill what still runs once every replica group has a verified save of its newest step."""
    if state.phase is Phase.DRAINING and state.life.alive and gasp.may_end(state):
        return kill(state, now_s, f"{why}; every replica group has its newest step")
    return Step(state=state, why=why)


def kill(state: RunState, now_s: float, why: str) -> Step:
    """End the grace window: SIGKILL to whoever lives, and a bounded wait for the kernel."""
    timer = StartTimer(timer=Timer.REAP, at_s=now_s + state.windows.reap_s, incarnation=state.incarnation)
    life = replace(state.life, deadline_s=min(state.life.deadline_s, now_s))
    return Step(
        state=replace(state, phase=Phase.KILLING, life=life),
        actions=(Kill(ranks=state.life.alive), timer),
        why=f"{why}; killing {len(state.life.alive)}",
    )


def sweep_when_empty(state: RunState, now_s: float, why: str) -> Step:
    """Clean up after the last worker; until then, see whether the window may end."""
    if state.life.alive:
        return end_window_early(state, now_s, f"{why}; {len(state.life.alive)} still run")
    return Step(state=replace(state, phase=Phase.SWEEPING), actions=(sweep(state),), why=why)


def unkillable(state: RunState) -> Step:
    """SIGKILL did not end a worker: the run is over, because nothing may be started beside it."""
    ranks = " ".join(str(rank) for rank in sorted(state.life.alive))
    why = f"rank {ranks} did not end {state.windows.reap_s:g} s after SIGKILL (stuck in the kernel?)"
    code = exit_code_of(state.life.incident.status) if state.life.incident is not None else 1
    lost = replace(state, phase=Phase.SWEEPING, failure=(code, why))
    return Step(state=lost, actions=(sweep(state),), why=why)


def drained(state: RunState, event: Drained) -> Step:
    """All workers are gone: conclude the incident, then stop, finish or look for the way back.

    A worker that SIGKILL does not end is given up here: nobody waits for it
    any more, and nothing is started beside it.
    """
    life = replace(state.life, alive=frozenset())
    if life.incident is not None:
        incident = conclude(life.incident, life.exits, life.deadline_s, event.notes, life.steps)
        life = replace(life, incident=incident)
    state = replace(state, life=life)
    if state.stop is not None and life.reading and event.at_s < life.deadline_s:
        swept = replace(state, life=replace(life, swept=True))
        until_s = min(life.deadline_s, event.at_s + READ_BACK_S)
        timer = StartTimer(timer=Timer.GRACE, at_s=until_s, incarnation=state.incarnation)
        return Step(
            state=swept, actions=(timer,), why="no restart follows; what was saved is being read back"
        )
    if state.stop is not None or state.failure is not None:
        return begin.await_plan(state, event.at_s, NodeStatus.DRAINED, "no restart follows")
    if state.life.incident is None:
        return begin.await_plan(state, event.at_s, NodeStatus.DONE, "every rank finished")
    if event.stragglers:
        pids = " ".join(str(pid) for pid in event.stragglers)
        why = f"processes of incarnation {state.incarnation} did not end after SIGKILL (pid {pids})"
        return begin.give_up(state, event.at_s, (exit_code_of(state.life.incident.status), why))
    state = replace(state, phase=Phase.SURVEYING)
    return Step(state=state, actions=(survey(state),), why="all workers are gone")
