"""One stop reaches the processes of a job in any order: whether the end of a rank was part of it.

Platforms signal every process of a job, one after the other. Data loaders and ranks may hear of a stop some
tenths of a second before the supervisor does, and end of it.
"""

import re
from dataclasses import replace

from faultrun.core.diagnosis.diagnose import is_hard
from faultrun.model.exits import Exited, Signaled
from faultrun.model.incident import Cause, Incident
from faultrun.model.run import RunState
from faultrun.model.stop import SAME_STOP_S

STOP_SIGNUMS = (1, 2, 10, 12, 15)
"""SIGHUP, SIGINT, SIGUSR1, SIGUSR2 and SIGTERM, by Linux's numbers on x86-64 and arm64."""

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


def as_one(state: RunState) -> RunState:
    """Forget the incident where a signal to stop came in the same moment: nobody failed.

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
