"""Transitions from running workers to none: a fault or a stop, the grace window, the kill, the sweep.

Called by ``decide`` only, which says when each of them applies.
"""

from dataclasses import replace

from faultrun.core.diagnosis.diagnose import (
    KILLED,
    LEFT_EARLY,
    LOST_A_PEER,
    conclude,
    exit_code_of,
    is_hard,
    new_incident,
    open_incident,
)
from faultrun.core.phases import begin, grace_window, look_for_checkpoint, node_statement, one_stop
from faultrun.core.phases.may_stay import ends_without, unkept, why_not_stay
from faultrun.model.actions import Action, Kill, RaiseAlarm, RequestGasp, StartTimer, Sweep, VerifySave
from faultrun.model.events import Drained, HelperExit, SpawnFailed, Timer, WorkerExit
from faultrun.model.exits import Exited
from faultrun.model.incident import Cause, Incident, Save
from faultrun.model.observed.agreement import IncarnationOver, MembershipLost
from faultrun.model.observed.dying_gasp import (
    GaspAcknowledged,
    GaspFailed,
    GaspSaved,
    GaspVerified,
    SaveAwaited,
)
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.run import Drain, Phase, RunState, Step
from faultrun.model.spec.windows import NO_TIME, Deadline
from faultrun.model.stop import SAME_STOP_S, Stop, StopRequested, StopSource

_SHELL_CODES = {2: 127, 13: 126, 8: 126}
"""ENOENT, EACCES and ENOEXEC as a shell reports them."""

_OS_ERROR = 71

READ_BACK_S = 0.5
"""How long a stopped run without processes waits to say that its save is whole; the next start proves it."""


def fault(state: RunState, event: WorkerExit | HelperExit | SpawnFailed) -> Step:
    """A worker, a helper or a start failed: the others are asked to save."""
    if isinstance(event, HelperExit) and (state.life.finished or event.status == Exited(code=0)):
        return Step(state=state, why=f"{event.name} left; its end never decides the run")
    incident = open_incident(state, event)
    match event:
        case WorkerExit(rank=rank):
            why = why_not_stay(state, rank, status=event.status)
            incident = replace(incident, unkept=unkept(state, rank, why=why))
            state = replace(state, life=state.life.reaped(event))
        case SpawnFailed():
            state = never_started(state, event)
    who = "the workers" if incident.rank is None else f"rank {incident.rank}"
    return open_drain(state, incident, f"{who}: {incident.explanation}")


def awaited(state: RunState, event: SaveAwaited) -> Step:
    """A rank lost a peer that has not failed: it left with exit code 0, or only the connection broke."""
    left = next((one.rank for one in state.life.exits if one.clean), None)
    rank, why = (event.rank, LOST_A_PEER) if left is None else (left, LEFT_EARLY)
    incident = new_incident(state, event.at_s, Cause.EXIT, why, rank)
    incident = replace(incident, status=None if left is None else Exited(code=0))
    return open_drain(state, incident, f"rank {rank} {why}")


def never_started(state: RunState, event: SpawnFailed) -> RunState:
    """A rank that could not be executed ends the run with the code a shell would give; the first says why.

    Of several nodes another may do better where this one's disk or kernel is to blame, and not the program.
    """
    failure = state.failure or (_SHELL_CODES.get(event.errno, _OS_ERROR), event.why)
    unfit = state.unfit if state.failure else failure[0] == _OS_ERROR
    life = replace(state.life, alive=state.life.alive - {event.rank})
    return replace(state, life=life, failure=failure, unfit=unfit)


def open_drain(state: RunState, incident: Incident, why: str) -> Step:
    """Open ``incident``: raise the alarm and let the survivors save."""
    who = "" if incident.rank is None else f"rank {incident.rank} "
    alarm = RaiseAlarm(incarnation=state.incarnation, why=f"{who}{incident.explanation}")
    lost = incident.cause not in (Cause.GROWTH, Cause.UNHEALED)
    deadline = grace_window.deadline(state, incident.at_s)
    return _drain(state, incident.at_s, deadline, why, incident, alarm, peers_lost=lost)


def leave_group(state: RunState, now_s: float, why: str, incident: Incident) -> Step:
    """Survivors that wanted to stay save and leave like any, those of other nodes too."""
    alarm = RaiseAlarm(incarnation=state.incarnation, why=why)
    return _drain(state, now_s, grace_window.deadline(state, now_s), why, incident, alarm)


def over_elsewhere(state: RunState, event: IncarnationOver, no_stay: str = "") -> Step:
    """Another node ended the incarnation: its ranks are gone, so ours save and leave.

    ``no_stay``: why they do not live on, where that was asked for. If it was told to stop there is no
    incident. A person who said so meant this node as well, and ranks have the window of a stop.
    """
    if event.stop is not None and event.stop.ends_the_run:
        state = replace(state, stop=state.stop or Stop(source=event.stop))
    if state.phase not in (Phase.RUNNING, Phase.REPLACING):
        return begin.withdraw(state, event.at_s, event.why)
    why = f"node {event.node}: {event.why}" if event.node else event.why
    deadline = grace_window.deadline(state, event.at_s)
    if event.stop is None:
        told = replace(new_incident(state, event.at_s, Cause.ELSEWHERE, why), node=event.node, unkept=no_stay)
        return _drain(state, event.at_s, deadline, why, state.life.incident or told)
    step = _drain(state, event.at_s, deadline, why, state.life.incident)
    drain = replace(_drain_of(step.state), stop_elsewhere_s=event.at_s)
    return replace(step, state=replace(step.state, life=replace(step.state.life, drain=drain)))


def fence(state: RunState, event: MembershipLost) -> Step:
    """Nothing may live here beside the node that gets this place; there is no time to save."""
    since_s = event.at_s if event.since_s is None else event.since_s
    state = _laid_to_the_fence(replace(state, boot=event.boot or state.boot), event, since_s)
    match state.phase:
        case Phase.RUNNING | Phase.REPLACING:
            incident = state.life.incident or new_incident(state, event.at_s, Cause.FENCE, event.why)
            step = _drain(state, since_s, Deadline(at_s=since_s), event.why, incident)
            return kill(step.state, event.at_s, event.why) if step.state.phase is Phase.DRAINING else step
        case Phase.DRAINING:
            return kill(state, event.at_s, event.why)
        case Phase.AWAITING_PLAN if event.boot:
            why = f"{event.why}; no node has heard of this supervisor under its new name"
            return node_statement.await_plan(state, event.at_s, NodeStatus.JOINED, why)
        case _:
            return begin.withdraw(state, event.at_s, event.why)


def _laid_to_the_fence(state: RunState, event: MembershipLost, since_s: float) -> RunState:
    """A rank that is found killed since then was killed for this, although its end may be seen first."""
    if (drain := state.life.drain) is None:
        return state
    if (first := drain.incident) is not None and first.cause is Cause.FENCE and event.boot:
        first = replace(first, explanation=event.why)  # who saw the ranks end does not know why
    elif first is not None and first.status == KILLED and first.at_s >= since_s:
        ranks = {first.rank, *first.followers, *first.together}
        followers = tuple(sorted(rank for rank in ranks if rank is not None))
        fenced = new_incident(state, first.at_s, Cause.FENCE, event.why)
        first = replace(fenced, number=first.number, followers=followers)
    drain = replace(drain, incident=first, deadline=min(drain.deadline, Deadline(at_s=since_s)))
    return replace(state, life=replace(state.life, drain=drain))


def stop(state: RunState, event: StopRequested, incident: Incident | None = None) -> Step:
    """End the run with a gasp; a user who asks again is impatient and cuts the window short.

    The SIGTERM that follows a preStop hook is the platform's routine and not
    impatience: the window that the hook opened goes on. ``incident``: why the platform asks.
    """
    if one_stop.comes_too_late(state):
        return Step(state=state, why=f"{event.source.value} comes too late to end anything")
    if state.done:
        state = replace(state, phase=Phase.AWAITING_PLAN, exit_code=None)
    before = state.stop or Stop(source=event.source)
    again = before.is_repeated_by(event)
    failed, by_s = state.life.incident, state.stop_by_s if event.by_s is None else event.by_s
    state = replace(state, stop_by_s=by_s, stop=before.heard(event))
    if (state := one_stop.forget_its_incident(state)).phase.without_workers:
        return node_statement.await_plan(state, event.at_s, NodeStatus.JOINED, "told to stop; no worker runs")
    deadline = grace_window.deadline(state, event.at_s, event.late_s)
    match state.phase:
        case Phase.RUNNING | Phase.REPLACING:
            why = f"told to stop by {event.source.value}"
            incident = incident or state.life.incident
            alarm = RaiseAlarm(incarnation=state.incarnation, why=why, stop=event.source)
            # Ranks of other nodes only hear that it is over: they do not agree with ours on a step to save.
            lost = len(state.seats.nodes) > 1
            return _drain(state, event.at_s, deadline, why, incident, alarm, peers_lost=lost)
        case Phase.DRAINING if again:
            why = f"told to stop again by {event.source.value}: no longer waiting for saves"
            return kill(state, event.at_s, why)
        case Phase.DRAINING:
            state = _closing(state, deadline, extends=failed is not state.life.incident)
            timer = _timer(state, Timer.GRACE, _drain_of(state).deadline.at_s)
            why = "told to stop; the ranks have been asked to save already, and no restart follows"
            return Step(state=state, actions=(timer,), why=why)
        case Phase.SWEEPING if again and _drain_of(state).swept:
            return stop_reading(state, event.at_s, f"told to stop again by {event.source.value}")
        case Phase.SWEEPING if _drain_of(state).swept:
            return after_sweep(state, event.at_s)
        case _:
            return Step(state=state, why="told to stop; no restart will follow")


def leave(state: RunState, now_s: float, why: str, incident: Incident | None = None) -> Step:
    """End the run as if it was told to: a later start, elsewhere, goes on with it."""
    asked = StopRequested(at_s=now_s, incarnation=state.incarnation, source=StopSource.PLATFORM)
    return replace(stop(state, asked, incident), why=why)


def _drain(
    state: RunState,
    now_s: float,
    deadline: Deadline,
    why: str,
    incident: Incident | None,
    alarm: RaiseAlarm | None = None,
    *,
    peers_lost: bool = True,
) -> Step:
    """Open the grace window for every living rank, or sweep at once when none lives."""
    first: tuple[Action, ...] = () if alarm is None else (alarm,)
    drain = Drain(incident=incident, deadline=deadline)
    if not state.life.alive:
        life = replace(state.life, drain=replace(drain, deadline=NO_TIME))
        state = replace(state, phase=Phase.SWEEPING, life=life)
        return Step(state=state, actions=(*first, _sweep(state)), why=why)
    stop = None if state.stop is None else state.stop.source
    request = RequestGasp(ranks=state.life.alive, deadline=deadline, peers_lost=peers_lost, stop=stop)
    state = replace(state, phase=Phase.DRAINING, life=replace(state.life, drain=drain))
    why = f"{why}; {len(state.life.alive)} get {deadline.left_s(now_s):g} s to save"
    return Step(state=state, actions=(request, *first, _timer(state, Timer.GRACE, deadline.at_s)), why=why)


def _drain_of(state: RunState) -> Drain:
    return state.life.drain or Drain()


def _closing(state: RunState, deadline: Deadline, *, extends: bool = False) -> RunState:
    """Have the window end by ``deadline``; ``extends``: and no sooner. A later SIGKILL counts as ours."""
    drain = _drain_of(state)
    drain = replace(drain, deadline=deadline if extends else min(drain.deadline, deadline))
    return replace(state, life=replace(state.life, drain=drain))


def _timer(state: RunState, timer: Timer, at_s: float) -> StartTimer:
    return StartTimer(timer=timer, at_s=at_s, incarnation=state.incarnation)


def saved(state: RunState, event: GaspSaved) -> Step:
    """A rank reported a save; nothing counts before it has been read back."""
    state, unread = grace_window.saved(state, event)
    return Step(state=state, actions=_verify(state, unread), why=f"rank {event.rank} saved step {event.step}")


def read_back(state: RunState, event: GaspVerified) -> Step:
    """A save is whole or torn: the window may be over, or another copy has to be read."""
    state, unread = grace_window.verified(state, event)
    why = f"the save of rank {event.rank}: {event.why}"
    read = (drain := _drain_of(state)).swept and not drain.reading
    if read and state.phase is Phase.SWEEPING and state.stop is not None:
        return node_statement.await_plan(state, event.at_s, NodeStatus.DRAINED, why)
    step = end_window_early(state, event.at_s, why)
    return replace(step, actions=(*_verify(state, unread), *step.actions))


def acknowledged(state: RunState, event: GaspAcknowledged) -> Step:
    """A rank heard the request."""
    state = replace(state, life=replace(state.life, drain=grace_window.acknowledged(_drain_of(state), event)))
    return Step(state=state, why=f"rank {event.rank} heard it")


def cannot_save(state: RunState, event: GaspFailed) -> Step:
    """A rank will not save: it is not waited for any more."""
    state = replace(state, life=replace(state.life, drain=grace_window.failed(_drain_of(state), event)))
    return end_window_early(state, event.at_s, f"rank {event.rank} cannot save: {event.why}")


def _verify(state: RunState, saves: tuple[Save, ...]) -> tuple[Action, ...]:
    return tuple(VerifySave(incarnation=state.incarnation, rank=save.rank, path=save.path) for save in saves)


def stop_reading(state: RunState, now_s: float, why: str) -> Step:
    """End a stopped run although saves are still being read back; only they were waited for."""
    if state.stop is None:
        return after_sweep(state, now_s)
    return node_statement.await_plan(state, now_s, NodeStatus.DRAINED, f"{why}; not every save was read back")


def end_window_early(state: RunState, now_s: float, why: str) -> Step:
    """Kill what still runs once every replica group has a verified save of its newest step."""
    if state.phase is Phase.DRAINING and state.life.alive and grace_window.may_end(state, _drain_of(state)):
        why, until = f"{why}; every replica group has its newest step", _drain_of(state).deadline
        return kill(state, now_s, why, writers_until=until)
    return Step(state=state, why=why)


def kill(state: RunState, now_s: float, why: str, *, writers_until: Deadline = NO_TIME) -> Step:
    """End the grace window: SIGKILL to all living ranks, and a bounded wait for the kernel or a save."""
    reap_s = max(now_s, writers_until.at_s) + state.windows.reap_s
    kill_all = Kill(ranks=state.life.alive, writers_until=writers_until)
    return Step(
        state=replace(_closing(state, Deadline(at_s=now_s)), phase=Phase.KILLING),
        actions=(kill_all, _timer(state, Timer.REAP, reap_s)),
        why=f"{why}; killing {len(state.life.alive)}",
    )


def ended(state: RunState, event: WorkerExit, why: str) -> Step:
    """Note the end of a worker that is no new fault: it had finished, or dies while all drain."""
    return sweep_when_empty(replace(state, life=state.life.reaped(event)), event.at_s, why)


def sweep_when_empty(state: RunState, now_s: float, why: str) -> Step:
    """Clean up after the last worker; until then, see whether the window may end."""
    if state.life.alive:
        return end_window_early(state, now_s, f"{why}; {len(state.life.alive)} still run")
    return Step(state=replace(state, phase=Phase.SWEEPING), actions=(_sweep(state),), why=why)


def _sweep(state: RunState) -> Sweep:
    """End what the workers left behind, keep what memory holds, and read what all of them said last."""
    ranks = (*(exit_.rank for exit_ in state.life.exits), *sorted(state.life.alive))
    write_by = grace_window.for_memory(state)
    ends = state.life.drain is None and state.stop is None and state.failure is None
    swept = Sweep(incarnation=state.incarnation, dead=ranks, saves=state.life.saves, write_by=write_by)
    return replace(swept, finished=ends and len(state.topology.nodes) == 1)


def unkillable(state: RunState) -> Step:
    """SIGKILL did not end a worker: the run is over, because nothing may be started beside it."""
    ranks = " ".join(str(rank) for rank in sorted(state.life.alive))
    why = f"rank {ranks} did not end {state.windows.reap_s:g} s after SIGKILL (stuck in the kernel?)"
    code = exit_code_of(state.life.incident.status) if state.life.incident is not None else 1
    lost = replace(state, phase=Phase.SWEEPING, failure=(code, why))
    return Step(state=lost, actions=(_sweep(state),), why=why)


def drained(state: RunState, event: Drained) -> Step:
    """All workers are gone: conclude the incident, then stop, finish or look for the way back.

    A worker that SIGKILL does not end is given up here: it is not waited for, and nothing is started beside
    it.
    """
    life, drain, incident = state.life, state.life.drain, state.life.incident
    if drain is not None and incident is not None:
        incident = conclude(incident, life.exits, drain.deadline.at_s, event.notes, life.steps)
        drain = replace(drain, incident=incident)
    state = one_stop.forget_its_incident(replace(state, life=replace(life, alive=frozenset(), drain=drain)))
    if drain is not None and event.stragglers and state.stop is None and state.failure is None:
        pids = " ".join(str(pid) for pid in event.stragglers)
        why = f"processes of incarnation {state.incarnation} did not end after SIGKILL (pid {pids})"
        code = exit_code_of(None if incident is None else incident.status)
        return node_statement.give_up(state, event.at_s, (code, why))
    if (stop := one_stop.heard_by_ranks_alone(state, event.notes)) is not None:
        step = after_sweep(replace(state, stop=stop), event.at_s)
        return replace(step, why=f"ranks that ended with 0 had been sent {stop.source.value}: this is a stop")
    return after_sweep(state, event.at_s)


def _came_to_the_end(state: RunState) -> bool:
    """Whether one rank was killed after all others had finished, not asked to, and they need it no more."""
    lost = [one for one in state.life.exits if not one.clean]
    alone = len(lost) == 1 and is_hard(lost[0].status) and _drain_of(state).deadline == NO_TIME
    return alone and ends_without(state)


def after_sweep(state: RunState, now_s: float) -> Step:
    """No process is left: wait for what a stop still needs, end, or look for a checkpoint."""
    drain = state.life.drain
    if state.stop is None and state.failure is None and (drain is None or _came_to_the_end(state)):
        return node_statement.await_plan(state, now_s, NodeStatus.DONE, "every rank finished")
    if drain is not None:
        kept = replace(state, life=replace(state.life, drain=replace(drain, swept=True)))
        if state.stop is not None and drain.reading and not drain.deadline.is_over(now_s):
            read_by = min(drain.deadline, Deadline.after(READ_BACK_S, now_s))
            why = "no restart follows; what was saved is being read back"
            return Step(state=kept, actions=(_timer(state, Timer.GRACE, read_by.at_s),), why=why)
        ends = state.stop is not None or state.failure is not None
        if not ends and drain.incident is not None and one_stop.may_follow(drain.incident, now_s):
            until_s = drain.incident.at_s + SAME_STOP_S
            why = "a rank was told to stop; whether all are is known in a moment"
            return Step(state=kept, actions=(_timer(state, Timer.GRACE, until_s),), why=why)
    if state.stop is not None or state.failure is not None:
        return node_statement.await_plan(state, now_s, NodeStatus.DRAINED, "no restart follows")
    state = replace(state, phase=Phase.SURVEYING)
    look = look_for_checkpoint.find_recovery_point(state, state.life.incident)
    return Step(state=state, actions=(look,), why="all workers are gone")
