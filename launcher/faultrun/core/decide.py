"""The supervisor's mind: one pure function from a fact to a decision.

Every change of phase is made in this file and nowhere else. It reads no
clock, file, environment or process: time arrives on events, waiting leaves as
``StartTimer``.
"""

from dataclasses import replace

from faultrun.core import gasp, notices
from faultrun.core.diagnose import conclude, describe, exit_code_of, open_incident
from faultrun.core.roster import fallen, never_started, progressed, reaped, renewed, taken_up
from faultrun.core.statement import survey, sweep, tell
from faultrun.model.actions import (
    Action,
    Kill,
    Prepare,
    RaiseAlarm,
    RequestGasp,
    Spawn,
    StartTimer,
    Tell,
    VerifySave,
)
from faultrun.model.events import (
    ConfigRewritten,
    Drained,
    Event,
    Exited,
    FaultNotice,
    FirstStep,
    GaspAcknowledged,
    GaspFailed,
    GaspRequested,
    GaspSaved,
    GaspVerified,
    GoGiven,
    Heartbeat,
    HelperExit,
    IncarnationStarted,
    NothingWhole,
    PlanAdopted,
    Prepared,
    PrepareFailed,
    RecoveryPointChosen,
    RunFinished,
    RunStarted,
    SpawnFailed,
    StopRequested,
    StopSource,
    Timer,
    TimerFired,
    WorkerExit,
    WorkerStarted,
)
from faultrun.model.facts import Standing
from faultrun.model.incident import Incident
from faultrun.model.run import Phase, RunState, Step


def decide(state: RunState, event: Event) -> Step:  # noqa: C901, PLR0911, PLR0912  one row a case: a table reads better whole
    """Return the state after ``event``, what must now be done about it, and why.

    Total: every phase answers every event, and "nothing" is an answer that
    says why. Facts of an earlier incarnation are never acted on.
    """
    match event:
        case RunStarted():
            return _take_up(state, event)
        case _ if state.done:
            return Step(state=state, why=f"the run is over; {type(event).__name__} changes nothing")
        case RunFinished():
            return _finish(state, event)
        case PlanAdopted():
            return _adopt(state, event)
        case StopRequested():
            return _stop(state, event)
        case FaultNotice():
            return _notice(state, event)
        case _ if event.incarnation != state.incarnation:
            return Step(state=state, why=f"stale: incarnation {event.incarnation} is gone")

    match state.phase, event:
        case Phase.SURVEYING, RecoveryPointChosen():
            return _offer(state, event)
        case Phase.SURVEYING, NothingWhole():
            return _give_up(state, event.at_s, (65, event.why))
        case Phase.BACKING_OFF, TimerFired(timer=Timer.BACKOFF):
            return _prepare(state, event.at_s, "the wait before the restart is over")
        case Phase.HOLDING, TimerFired(timer=Timer.HOLD):
            return _leave(state, event.at_s, f"{notices.hold(state)} for too long; leaving for another place")
        case Phase.PREPARING, Prepared():
            return _ready(state, event)
        case Phase.PREPARING, PrepareFailed():
            return _give_up(state, event.at_s, (event.exit_code, event.why))
        case Phase.AWAITING_GO, GoGiven():
            return _spawn(state, event)
        case Phase.RUNNING, WorkerExit(clean=True):
            return _sweep_when_empty(reaped(state, event), event.at_s, f"rank {event.rank} finished")
        case Phase.RUNNING, WorkerExit() | HelperExit() | SpawnFailed():
            return _fault(state, event)
        case ((Phase.DRAINING | Phase.KILLING), WorkerExit(rank=rank, status=status)):
            return _sweep_when_empty(reaped(state, event), event.at_s, f"rank {rank} {describe(status)}")
        case ((Phase.DRAINING | Phase.KILLING), SpawnFailed(rank=rank)):
            return _sweep_when_empty(never_started(state, event), event.at_s, f"rank {rank} never started")
        case Phase.DRAINING, TimerFired(timer=Timer.GRACE):
            return _kill(state, event.at_s, "the grace window is over")
        case ((Phase.DRAINING | Phase.KILLING | Phase.SWEEPING), GaspSaved()):
            return _saved(state, event)
        case _, GaspVerified():
            why = f"the save of rank {event.rank}: {event.why}"
            return _end_window_early(gasp.verified(state, event), event.at_s, why)
        case Phase.DRAINING, GaspAcknowledged():
            return Step(state=gasp.acknowledged(state, event), why=f"rank {event.rank} heard it")
        case Phase.DRAINING, GaspFailed():
            why = f"rank {event.rank} cannot save: {event.why}"
            return _end_window_early(gasp.failed(state, event), event.at_s, why)
        case Phase.KILLING, TimerFired(timer=Timer.REAP):
            return _unkillable(state)
        case Phase.SWEEPING, Drained():
            return _drained(state, event)
        case ((Phase.RUNNING | Phase.DRAINING), Heartbeat()):
            return Step(state=progressed(state, event), why="progress")
        case _, (WorkerStarted() | IncarnationStarted() | FirstStep() | ConfigRewritten() | GaspRequested()):
            return Step(state=state, why="noted")
        case _, (GaspAcknowledged() | GaspFailed() | HelperExit()):
            return Step(state=state, why="noted")
        case _:
            return Step(state=state, why=f"{type(event).__name__} means nothing while {state.phase.value}")


def _take_up(state: RunState, event: RunStarted) -> Step:
    """Begin, or go on where a lost supervisor was: whatever it ran died with it."""
    if state.done and state.stop is None:
        return Step(state=state, why="the run had ended; nothing is taken up")
    fresh = replace(taken_up(state, event), phase=Phase.SURVEYING)
    fresh = replace(fresh, platform=notices.known_at_start(fresh, event.notices))
    why = "a new run" if state.plan is None else f"going on after incarnation {state.incarnation}"
    return Step(state=fresh, actions=(survey(fresh),), why=why)


def _offer(state: RunState, event: RecoveryPointChosen) -> Step:
    step = event.point.global_step if event.point is not None else None
    high_step = max(state.high_step, -1 if step is None else step)
    state = replace(state, point=event.point, high_step=high_step)
    where = "from nothing" if event.point is None else f"from {event.point.path}"
    return _await_plan(state, event.at_s, Standing.JOINED, f"resume {where}")


def _await_plan(state: RunState, now_s: float, standing: Standing, why: str) -> Step:
    state = replace(state, phase=Phase.AWAITING_PLAN)
    return Step(state=state, actions=(tell(state, now_s, standing),), why=why)


def _adopt(state: RunState, event: PlanAdopted) -> Step:
    plan = event.plan
    if state.phase is not Phase.AWAITING_PLAN or plan.incarnation <= state.incarnation:
        return Step(state=state, why=f"a plan for incarnation {plan.incarnation} comes at the wrong time")
    if state.stop is not None or state.failure is not None:
        return Step(state=state, why=f"no incarnation {plan.incarnation}: the run is about to end")
    if state.node not in (entry.node for entry in plan.topology.nodes):
        return Step(state=state, why=f"incarnation {plan.incarnation} has no place for this node")
    state = renewed(state, plan)
    if plan.start_at_s > event.at_s:
        return _back_off(state, event.at_s, plan.start_at_s)
    return _prepare(state, event.at_s, f"incarnation {plan.incarnation} is planned")


def _back_off(state: RunState, now_s: float, until_s: float) -> Step:
    wait = StartTimer(timer=Timer.BACKOFF, at_s=until_s, incarnation=state.incarnation)
    why = f"incarnation {state.incarnation} starts in {until_s - now_s:.1f} s"
    return Step(state=replace(state, phase=Phase.BACKING_OFF), actions=(wait,), why=why)


def _prepare(state: RunState, now_s: float, why: str) -> Step:
    if state.plan is None:
        return Step(state=state, why="there is no plan to prepare")
    if state.platform.not_before_s > now_s:
        return _back_off(state, now_s, state.platform.not_before_s)
    against = notices.hold(state)
    if against:
        timer = StartTimer(timer=Timer.HOLD, at_s=now_s + notices.HOLD_S, incarnation=state.incarnation)
        why = f"workers wait for the platform: {against}"
        return Step(state=replace(state, phase=Phase.HOLDING), actions=(timer,), why=why)
    return Step(state=replace(state, phase=Phase.PREPARING), actions=(Prepare(plan=state.plan),), why=why)


def _ready(state: RunState, event: Prepared) -> Step:
    fact = replace(tell(state, event.at_s, Standing.READY).fact, master_port=event.master_port)
    return Step(state=replace(state, phase=Phase.AWAITING_GO), actions=(Tell(fact=fact),), why="prepared")


def _spawn(state: RunState, event: GoGiven) -> Step:
    if state.plan is None:
        return Step(state=state, why="there is no plan to start")
    if notices.hold(state):
        return _prepare(state, event.at_s, "the platform spoke while the start was prepared")
    ranks = tuple(state.plan.topology.ranks_of(state.node))
    spawn = Spawn(plan=state.plan, ranks=ranks, master_addr=event.master_addr, master_port=event.master_port)
    said = notices.started(state.platform)
    state = replace(state, phase=Phase.RUNNING, alive=frozenset(ranks), platform=said)
    return Step(state=state, actions=(spawn,), why=f"incarnation {state.incarnation} starts")


def _fault(state: RunState, event: WorkerExit | HelperExit | SpawnFailed) -> Step:
    if isinstance(event, HelperExit) and (state.finished or event.status == Exited(code=0)):
        return Step(state=state, why=f"{event.name} left; its end never decides the run")
    incident = open_incident(state.incidents + 1, event, state.steps)
    state = fallen(state, event)
    who = "the workers" if incident.rank is None else f"rank {incident.rank}"
    return _open(state, incident, f"{who}: {incident.explanation}")


def _open(state: RunState, incident: Incident, why: str) -> Step:
    alarm = RaiseAlarm(incarnation=state.incarnation, why=incident.explanation)
    state = replace(state, incident=incident)
    return _drain(state, incident.at_s, state.windows.grace_s, why, (alarm,))


def _notice(state: RunState, event: FaultNotice) -> Step:
    said, verdict = notices.judge(state, event.notice, event.at_s)
    state = replace(state, platform=said)
    match verdict:
        case notices.Note(why=why) if state.phase is Phase.HOLDING and not notices.hold(state):
            return _prepare(state, event.at_s, why)
        case notices.Note(why=why):
            return Step(state=state, why=why)
        case notices.Restart(why=why):
            return _open(state, notices.incident_of(state, verdict, event.at_s), why)
        case notices.Leave(ranks=ranks):
            if ranks and state.phase is Phase.RUNNING:
                state = replace(state, incident=notices.incident_of(state, verdict, event.at_s))
            return _leave(state, event.at_s, verdict.why)


def _leave(state: RunState, now_s: float, why: str) -> Step:
    """End the run as if it was told to: whoever starts it again, elsewhere, goes on with it."""
    asked = StopRequested(at_s=now_s, incarnation=state.incarnation, source=StopSource.PLATFORM)
    return replace(_stop(state, asked), why=why)


def _drain(state: RunState, now_s: float, window_s: float, why: str, first: tuple[Action, ...] = ()) -> Step:
    """Open the grace window for every living rank, or sweep at once when none lives."""
    if not state.alive:
        step = _sweep_when_empty(state, now_s, why)
        return replace(step, actions=(*first, *step.actions))
    deadline_s = now_s + window_s
    request = RequestGasp(ranks=state.alive, deadline_s=deadline_s)
    timer = StartTimer(timer=Timer.GRACE, at_s=deadline_s, incarnation=state.incarnation)
    state = replace(state, phase=Phase.DRAINING, told=state.alive, told_at_s=now_s, deadline_s=deadline_s)
    why = f"{why}; {len(state.alive)} get {window_s:g} s to save"
    return Step(state=state, actions=(request, *first, timer), why=why)


def _stop(state: RunState, event: StopRequested) -> Step:
    """End the run with a gasp; a second signal cuts the window short.

    The SIGTERM that follows a preStop hook is the platform's routine and not
    impatience: the window that the hook opened goes on.
    """
    again = event.source.is_signal and state.stop_signals > 0
    signals = state.stop_signals + event.source.is_signal
    state = replace(state, stop=state.stop or event.source, stop_signals=signals)
    if state.phase.without_workers:
        return _await_plan(state, event.at_s, Standing.JOINED, "told to stop; no worker runs")
    match state.phase:
        case Phase.RUNNING:
            window_s = state.windows.stop_window_s(event.at_s)
            return _drain(state, event.at_s, window_s, f"told to stop by {event.source.value}")
        case Phase.DRAINING if again:
            return _kill(state, event.at_s, "told to stop a second time")
        case Phase.DRAINING:
            deadline_s = min(state.deadline_s, event.at_s + state.windows.stop_window_s(event.at_s))
            timer = StartTimer(timer=Timer.GRACE, at_s=deadline_s, incarnation=state.incarnation)
            return Step(
                state=replace(state, deadline_s=deadline_s),
                actions=(timer,),
                why="told to stop; the open window serves, no restart follows",
            )
        case _:
            return Step(state=state, why="told to stop; no restart will follow")


def _saved(state: RunState, event: GaspSaved) -> Step:
    verify = VerifySave(incarnation=event.incarnation, rank=event.rank, path=event.path)
    state = gasp.saved(state, event)
    return Step(state=state, actions=(verify,), why=f"rank {event.rank} saved step {event.step}")


def _end_window_early(state: RunState, now_s: float, why: str) -> Step:
    if state.phase is Phase.DRAINING and state.alive and gasp.may_end(state):
        return _kill(state, now_s, f"{why}; every replica group has its newest step")
    return Step(state=state, why=why)


def _kill(state: RunState, now_s: float, why: str) -> Step:
    timer = StartTimer(timer=Timer.REAP, at_s=now_s + state.windows.reap_s, incarnation=state.incarnation)
    return Step(
        state=replace(state, phase=Phase.KILLING, deadline_s=min(state.deadline_s, now_s)),
        actions=(Kill(ranks=state.alive), timer),
        why=f"{why}; killing {len(state.alive)}",
    )


def _sweep_when_empty(state: RunState, now_s: float, why: str) -> Step:
    if state.alive:
        return _end_window_early(state, now_s, f"{why}; {len(state.alive)} still run")
    return Step(state=replace(state, phase=Phase.SWEEPING), actions=(sweep(state),), why=why)


def _unkillable(state: RunState) -> Step:
    ranks = " ".join(str(rank) for rank in sorted(state.alive))
    why = f"rank {ranks} did not end {state.windows.reap_s:g} s after SIGKILL (stuck in the kernel?)"
    code = exit_code_of(state.incident.status) if state.incident is not None else 1
    lost = replace(state, phase=Phase.SWEEPING, failure=(code, why))
    return Step(state=lost, actions=(sweep(state),), why=why)


def _drained(state: RunState, event: Drained) -> Step:
    """All workers are gone: conclude the incident, then stop, finish or look for the way back.

    A worker that SIGKILL does not end is given up here: nobody waits for it
    any more, and nothing is started beside it.
    """
    state = replace(state, alive=frozenset())
    if state.incident is not None:
        incident = conclude(state.incident, state.exits, state.deadline_s, event.notes)
        state = replace(state, incident=incident)
    if state.stop is not None or state.failure is not None:
        return _await_plan(state, event.at_s, Standing.DRAINED, "no restart follows")
    if state.incident is None:
        return _await_plan(state, event.at_s, Standing.DONE, "every rank finished")
    if event.stragglers:
        pids = " ".join(str(pid) for pid in event.stragglers)
        why = f"processes of incarnation {state.incarnation} did not end after SIGKILL (pid {pids})"
        return _give_up(state, event.at_s, (exit_code_of(state.incident.status), why))
    state = replace(state, phase=Phase.SURVEYING)
    return Step(state=state, actions=(survey(state),), why="all workers are gone")


def _give_up(state: RunState, now_s: float, failure: tuple[int, str]) -> Step:
    state = replace(state, failure=failure)
    return _await_plan(state, now_s, Standing.JOINED, f"giving up: {failure[1]}")


def _finish(state: RunState, event: RunFinished) -> Step:
    if state.alive:
        return Step(state=state, why="workers still run; the end waits for them")
    state = replace(state, phase=Phase.FINISHED, exit_code=event.exit_code)
    return Step(state=state, why=f"the end: {event.why}")
