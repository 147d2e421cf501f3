"""The only loop. It carries facts in and decisions out, and has no opinions."""

from collections.abc import Sequence

from faultrun.core.decide import decide
from faultrun.core.standby import StandbyState, decide_standbys
from faultrun.model.actions import Action, Kill, RaiseAlarm, RequestGasp
from faultrun.model.run import RunState
from faultrun.supervisor.ports import EventListener, Journal, World


def supervise(
    state: RunState,
    world: World,
    journal: Journal,
    listeners: Sequence[EventListener],
    standbys: StandbyState,
) -> RunState:
    """Run until the state is done; return it. ``listeners`` are told everything, one after the other.

    The journal line is on the disk before its actions, so a supervisor that
    is killed in between replays the decision instead of forgetting it. Only
    signals to our own workers and alarms to other nodes go out first: workers die
    with us anyway, and a slow or hung disk must not eat the survivors' time to save.
    """
    # A run that was stopped replays to its end, and the first event takes it up again.
    while True:
        for event in world.wait():
            standbys, step = decide_standbys(standbys, event, decide(state, event))
            state = step.state
            for action in step.actions:
                if _cannot_wait(action):
                    world.perform(action)
            journal.append(event, step)
            later = [action for action in step.actions if not _cannot_wait(action)]
            if later or state.done:
                journal.sync()
            for action in later:
                world.perform(action)
            for listener in listeners:
                listener.tell(event, step)
            if state.done:
                return state


def _cannot_wait(action: Action) -> bool:
    return isinstance(action, RequestGasp | Kill | RaiseAlarm)
