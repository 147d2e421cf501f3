"""One stop reaches the processes of a job in any order: whether the end of a rank was part of it.

Platforms signal every process of a job, one after the other. Data loaders and ranks may hear of a stop some
tenths of a second before the supervisor does, and end of it.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import replace

from faultrun.core.diagnosis.diagnose import is_hard
from faultrun.model.exits import Exited, Signaled
from faultrun.model.incident import Cause, Incident
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.run import Phase, RunState
from faultrun.model.stop import SAME_STOP_S, Stop, StopSource

STOP_SOURCES = {
    1: StopSource.SIGHUP,
    2: StopSource.SIGINT,
    10: StopSource.SIGUSR1,
    12: StopSource.SIGUSR2,
    15: StopSource.SIGTERM,
}
"""By Linux's numbers on x86-64 and arm64."""

STOP_SIGNUMS = tuple(STOP_SOURCES)
_ENDS = (2, 15)
"""SIGINT and SIGTERM, which ask for nothing but the end."""

_TOLD = {Signaled(signum=one) for one in STOP_SIGNUMS} | {Exited(code=128 + one) for one in STOP_SIGNUMS}
_LOADER_TOLD = re.compile(
    r"killed by signal: (Terminated|User defined signal [12]|Hangup|Interrupt)"
    r"|DataLoader worker .*unexpectedly"
)
"""What torch says of a data loader; ``strsignal`` has the names."""


def may_follow(incident: Incident, now_s: float) -> bool:
    """Whether a stop may be on its way of which the incident is the first sign; a restart waits for that."""
    raised = incident.raised
    words = () if raised is None else (raised.message, *raised.came_from)
    told = incident.status in _TOLD or any(_LOADER_TOLD.search(one) for one in words)
    return told and now_s < incident.at_s + SAME_STOP_S


def comes_too_late(state: RunState) -> bool:
    """Whether a stop that is told now can end nothing any more.

    Ranks that ended with 0 may have heard of it before: only those that were done came to their own end for
    certain. What several nodes have agreed on stays.
    """
    over = state.phase is Phase.SWEEPING or (state.trained and len(state.topology.nodes) == 1)
    if not over or state.stop is not None or state.life.drain is not None:
        return state.done
    return all(end.done for end in state.life.exits)


def heard_by_ranks_alone(state: RunState, notes: Iterable[DeathNote]) -> Stop | None:
    """The stop that only ranks heard of: a signal came, and they ended with 0 without training on.

    How long they took says nothing: a save may be slow. Where they trained on, or nothing tells of steps, the
    window of a stop counts, and moments only of signals that programs use for ends of their own. Not one of
    those that were done. None: every rank came to its own end, or a window was opened, unless another node's
    stop did so, which is this node's too if ranks had left of it before they were asked.
    """
    asked_s = math.inf if state.life.drain is None else state.life.drain.stop_elsewhere_s
    if asked_s is None or state.stop is not None or state.failure is not None:
        return None
    left = [end for end in state.life.exits if end.clean and not end.done and end.at_s <= asked_s]
    ends = {end.rank: end.at_s for end in left}
    for note in notes:
        if note.told is not None and note.rank in ends:
            signum, at_s = note.told
            window_s = state.windows.stop_grace_s if signum in _ENDS else SAME_STOP_S
            if note.trained_on is False or at_s >= ends[note.rank] - window_s:
                return Stop(source=STOP_SOURCES[signum])
    return None


def forget_its_incident(state: RunState) -> RunState:
    """Forget the incident if a signal to stop came in the same moment: no rank failed, all were told.

    What no signal to stop can have led to stays an incident: the kernel's SIGKILL, or a memory fault.
    """
    drain, stop = state.life.drain, state.stop
    if drain is None or stop is None or not stop.signals or (incident := drain.incident) is None:
        return state
    soft = incident.status is not None and not is_hard(incident.status)
    if not (incident.cause is Cause.ELSEWHERE or (soft and incident.cause in (Cause.SIGNAL, Cause.EXIT))):
        return state
    if abs(stop.signals[0].at_s - incident.at_s) > SAME_STOP_S:
        return state
    return replace(state, life=replace(state.life, drain=replace(drain, incident=None)))
