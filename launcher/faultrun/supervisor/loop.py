"""The only loop. It carries facts in and decisions out, and has no opinions."""

from collections.abc import Sequence

from faultrun.core.phases.decide import decide
from faultrun.core.standby.policy import decide_standbys
from faultrun.core.standby.state import StandbyState
from faultrun.model.actions import (
    Action,
    FindRecoveryPoint,
    FreeSurvivors,
    Kill,
    Publish,
    RaiseAlarm,
    RequestGasp,
    SeatStandbys,
    Spawn,
    Sweep,
)
from faultrun.model.events import RunStarted
from faultrun.model.observed.node_fact import NodeFact, NodeReady
from faultrun.model.run import RunState
from faultrun.model.stop import StopRequested
from faultrun.supervisor.interfaces import EventListener, Executor, Journal


def supervise(
    state: RunState,
    world: Executor,
    journal: Journal,
    listeners: Sequence[EventListener],
    standbys: StandbyState,
) -> RunState:
    """Run until the state is done; return it. ``listeners`` are told everything, one after the other.

    The journal line is on the disk before its actions, so a supervisor that is killed in between replays the
    decision instead of forgetting it. Only signals to our own workers and alarms to other nodes go out first:
    workers die with us anyway, and a slow or hung disk must not eat the survivors' time to save. A sweep, a
    look for checkpoints, and a start by a plan that is on the disk begin while the disk takes the line:
    what they do does not outlive this machine, and what follows from them waits for the disk. That a node is
    ready says nothing that the plan's own line does not: it waits for no disk at all.
    """
    # A run that was stopped replays to its end, and the first event takes it up again.
    while True:
        for event in world.wait():
            if state.done and not isinstance(event, RunStarted | StopRequested):
                continue
            standbys, step = decide_standbys(standbys, event, decide(state, event))
            state = step.state
            at_once, written, meanwhile, later = _in_order(step.actions)
            for action in at_once:
                world.perform(action)
            journal.append(event, step)
            for action in (*written, *meanwhile):
                world.perform(action)
            if later or state.done:
                journal.sync()
            elif meanwhile:
                journal.sync_soon()
            for action in later:
                world.perform(action)
            for listener in listeners:
                listener.tell(event, step)
        if state.done:
            return state


def _in_order(actions: Sequence[Action]) -> tuple[list[Action], ...]:
    """What to do before the line is written, when it is (no sync), while a disk takes it, and after that."""
    at_once: list[Action] = []
    written: list[Action] = []
    meanwhile: list[Action] = []
    later: list[Action] = []
    for action in actions:
        match action:
            case RequestGasp() | FreeSurvivors() | Kill() | RaiseAlarm():
                at_once.append(action)
            case Publish(fact=NodeFact(status=NodeReady())):
                written.append(action)
            case Sweep() | FindRecoveryPoint() | SeatStandbys():  # a standby is seated before it is started
                meanwhile.append(action)
            case Spawn(plan=plan) if not plan.kept:  # the plan itself is on the disk since it was prepared
                meanwhile.append(action)
            case _:
                later.append(action)
    return at_once, written, meanwhile, later
