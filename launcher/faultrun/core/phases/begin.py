"""Transitions while no worker runs: the supervisor's start, and from a plan to workers or to the end.

Called by ``decide`` only, which says when each of them applies.
"""

from dataclasses import replace

from faultrun.core.phases import platform_notices
from faultrun.core.phases.look_for_checkpoint import find_recovery_point
from faultrun.core.phases.node_statement import await_plan, publish
from faultrun.core.plan.choose_scheduler import scheduler_abandoned
from faultrun.core.plan.restart_budget import nothing_spent
from faultrun.model.actions import Prepare, Spawn, StartTimer
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import GoGiven, PlanAdopted, Prepared, RunFinished, RunStarted, Timer
from faultrun.model.exits import Signaled
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.evidence import FaultClass
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.plan import Plan
from faultrun.model.run import Drain, Life, Phase, RunState, Step
from faultrun.model.stop import Stop, StopSource

_TAKES_A_PLAN = (Phase.AWAITING_PLAN, Phase.BACKING_OFF, Phase.HOLDING, Phase.PREPARING, Phase.AWAITING_GO)


def take_up(state: RunState, event: RunStarted) -> Step:
    """Begin, or go on where a lost supervisor was: whatever that one ran died with it.

    An incident that no plan has answered is answered by the next, unless the run
    was given up for it. A stop that came before the first start is this supervisor's own.
    """
    if state.trained:
        return Step(state=state, why="the run had ended; nothing is taken up")
    incident = state.life.incident or _killed_together(state, event)
    reached, newest = state.life.reached, state.life.newest
    fresh = RunState(
        node=event.node,
        topology=state.topology,
        windows=state.windows,
        exit_codes=state.exit_codes,
        shrinks=state.shrinks,
        boot=event.boot,
        addr=event.addr,
        stop_by_s=event.stop_by_s,
        native_scheduler=event.native_scheduler,
        phase=Phase.SURVEYING,
        run=replace(
            state.run,
            plan=plan_to_go_on_from(state),
            machine=event.machine,
            oom_kills=event.oom_kills,
            came_to=event.came_to,
        ),
        life=Life(
            drain=None if incident is None or state.given_up else Drain(incident=incident),
            reached=-1 if state.given_up else max(reached, -1 if newest is None else newest.step),
        ),
        stop=state.stop if state.phase is Phase.NEW else None,
    )
    known = platform_notices.known_at_start(fresh, event.notices)
    fresh = replace(fresh, run=replace(fresh.run, platform=known))
    why = "a new run" if state.plan is None else f"going on after incarnation {state.incarnation}"
    # What was written after the fault that ended a run is as doubtful as after any other.
    look = find_recovery_point(fresh, incident)
    return Step(state=fresh, actions=(look,), why=f"{why}, given up before" if state.given_up else why)


def _killed_together(state: RunState, event: RunStarted) -> Incident | None:
    """The incident that it is that supervisor and ranks of one node were killed; None where it costs nothing.

    An eviction, a new node or a power cut says nothing of the program: only want of memory does, or the same
    step twice while the kernel ran on.
    """
    run, at = state.run, event.came_to
    if not state.cut_off or run.plan is None or not run.plan.of_one_node or event.machine != run.machine:
        return None
    starved = event.oom_kills > run.oom_kills
    if not event.machine or not (starved or (at is not None and at == run.came_to)):
        return None
    why = "for want of memory" if starved else f"for the second time at step {at}"
    return Incident(
        number=state.incidents + 1,
        incarnation=state.incarnation,
        at_s=event.at_s,
        cause=Cause.SIGNAL,
        rank=None,
        status=Signaled(signum=9),
        step=at,
        explanation=f"the supervisor and all its ranks were killed by SIGKILL {why}",
        fault_class=FaultClass.RESOURCE if starved else FaultClass.UNKNOWN,
    )


def plan_to_go_on_from(state: RunState) -> Plan | None:
    """The plan that the next one follows: as it was, or with nothing spent if the run had been given up."""
    if (plan := state.plan) is None or not state.given_up:
        return plan
    ledger = replace(nothing_spent(plan.ledger), incidents=max(plan.ledger.incidents, state.incidents))
    return replace(plan, ledger=ledger, slots=None)


def adopt(state: RunState, event: PlanAdopted) -> Step:
    """Take the agreed plan as the next incarnation, or say why it is not for this node now."""
    plan = event.plan
    if state.phase not in _TAKES_A_PLAN or plan.incarnation <= state.incarnation:
        return Step(state=state, why=f"a plan for incarnation {plan.incarnation} comes at the wrong time")
    if state.stop is not None or state.failure is not None:
        return Step(state=state, why=f"no incarnation {plan.incarnation}: the run is about to end")
    if state.life.lacks is not None and plan.begins_anew:
        return Step(state=state, why=f"no incarnation {plan.incarnation}: it begins beside what is torn here")
    if not plan.is_for(state.node, state.boot):
        return Step(state=state, why=f"incarnation {plan.incarnation} has no place for this node")
    if plan.keeps_on(state.node):
        return Step(state=state, why=f"incarnation {plan.incarnation} keeps ranks that were given up here")
    life = Life(topology=plan.topology, point=plan.point, offered=_own_points(state))
    run = replace(state.run, plan=plan, native_scheduler=scheduler_abandoned(state, plan))
    if plan.point is not None:  # of the run, whatever this node thought of it while it had no place
        run = replace(run, known_save=plan.resumes_from(state.node))
    state = replace(state, phase=Phase.AWAITING_PLAN, run=run, life=life)
    if plan.start_at_s > event.at_s:
        return _back_off(state, event.at_s, plan.start_at_s)
    return prepare(state, event.at_s, f"incarnation {plan.incarnation} is planned")


def _own_points(state: RunState) -> tuple[RecoveryPoint, ...]:
    """What this node itself could resume from, whatever the plan that it follows resumes from."""
    if state.phase is not Phase.AWAITING_PLAN:
        return state.life.offered
    return (state.life.point, *state.life.more_points) if state.life.point is not None else ()


def _back_off(state: RunState, now_s: float, until_s: float) -> Step:
    wait = StartTimer(timer=Timer.BACKOFF, at_s=until_s, incarnation=state.incarnation)
    why = f"incarnation {state.incarnation} starts in {until_s - now_s:.1f} s"
    return Step(state=replace(state, phase=Phase.BACKING_OFF), actions=(wait,), why=why)


def prepare(state: RunState, now_s: float, why: str) -> Step:
    """Have the plan applied to this node, unless the platform wants the start to wait."""
    if state.plan is None:
        return Step(state=state, why="there is no plan to prepare")
    if state.run.platform.not_before_s > now_s:
        return _back_off(state, now_s, state.run.platform.not_before_s)
    if against := platform_notices.hold(state):
        until_s = now_s + platform_notices.HOLD_S
        timer = StartTimer(timer=Timer.HOLD, at_s=until_s, incarnation=state.incarnation)
        why = f"workers wait for the platform: {against}"
        return Step(state=replace(state, phase=Phase.HOLDING), actions=(timer,), why=why)
    return Step(state=replace(state, phase=Phase.PREPARING), actions=(Prepare(plan=state.plan),), why=why)


def ready(state: RunState, event: Prepared) -> Step:
    """The node is prepared; say so, with the port that it holds."""
    state = replace(state, phase=Phase.AWAITING_GO, life=replace(state.life, master_port=event.master_port))
    return Step(state=state, actions=(publish(state, event.at_s, NodeStatus.READY),), why="prepared")


def withdraw(state: RunState, now_s: float, why: str) -> Step:
    """Give up an incarnation that has no worker here yet; another plan follows, or the end.

    Survivors whom it would have met have trained since this node looked through the checkpoints.
    """
    if state.phase not in _TAKES_A_PLAN or state.phase is Phase.AWAITING_PLAN:
        return Step(state=state, why=f"this incarnation is over here already: {why}")
    if state.plan is not None and state.plan.kept and state.stop is None and state.failure is None:
        look = find_recovery_point(state, state.life.incident)
        words = f"incarnation {state.incarnation} is given up: {why}; looking through the checkpoints again"
        return Step(state=replace(state, phase=Phase.SURVEYING), actions=(look,), why=words)
    own, *more = state.life.offered or (None,)
    state = replace(state, life=replace(state.life, point=own, more_points=tuple(more)))
    return await_plan(state, now_s, NodeStatus.JOINED, f"incarnation {state.incarnation} is given up: {why}")


def spawn(state: RunState, event: GoGiven) -> Step:
    """Every node is prepared: start the ranks of this one."""
    if state.plan is None:
        return Step(state=state, why="there is no plan to start")
    if platform_notices.hold(state):
        return prepare(state, event.at_s, "the platform spoke while the start was prepared")
    ranks = state.plan.topology.ranks_of(state.node)
    spawn = Spawn(
        plan=state.plan,
        ranks=tuple(ranks),
        master_addr=event.master_addr,
        master_port=event.master_port,
        native_scheduler=state.plan.native_scheduler,
        patience=state.run.patience,
    )
    awaited = frozenset(ranks) if state.plan.kept else frozenset()
    life = replace(state.life, alive=frozenset(ranks), rejoining=awaited, regroups=1 if awaited else 0)
    life = replace(life, master_addr=event.master_addr, master_port=event.master_port)
    run = replace(state.run, platform=platform_notices.started(state.run.platform))
    state = replace(state, phase=Phase.RUNNING, run=run, life=life)
    running = publish(state, event.at_s, NodeStatus.RUNNING)
    why = f"incarnation {state.incarnation} starts"
    if not awaited:
        return Step(state=state, actions=(running, spawn), why=why)
    until_s = event.at_s + state.windows.rejoin_s
    timer = StartTimer(timer=Timer.REJOIN, at_s=until_s, incarnation=state.incarnation)
    return Step(state=state, actions=(running, spawn, timer), why=f"{why} beside survivors of other nodes")


def finish(state: RunState, event: RunFinished) -> Step:
    """The agreement ended the run. A stop that came after it had been decided did not end it."""
    if not state.phase.without_workers:
        return Step(state=state, why="the end waits for the workers")
    stop = None if event.stopped is False else state.stop
    if event.stopped and stop is None:
        stop = Stop(source=event.stop or StopSource.SIGTERM)
    state = replace(state, phase=Phase.FINISHED, exit_code=event.exit_code, stop=stop, unheard=event.unheard)
    return Step(state=state, why=f"the end: {event.why}")
