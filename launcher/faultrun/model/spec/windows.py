"""How long workers may go on when they are asked to leave, and the moment by which they must have left.

A window is a length, in seconds; a deadline is the moment at which one that was opened is over. Not here:
until when a node's lease lets its workers live, which is on another clock (``workers/shared_deadline.py``).
"""

import math
from dataclasses import dataclass
from typing import ClassVar

DEFAULT_GRACE_S = 30.0
"""Length of the grace window by default: what container platforms give."""

TERMINATION_VARIABLE = "FAULTRUN_TERMINATION_GRACE_S"
"""``terminationGracePeriodSeconds`` of the pod: Kubernetes does not tell a container, so manifests do."""

DEFAULT_HEAL_S = 600.0
"""How long ranks train on without another by default: a host may have to be found."""

PLATFORM_MARGIN_S = 5.0
"""How far the window of a stop stays below the platform's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Every bounded wait of a drain, in seconds.

    ``grace_s``: SIGTERM to SIGKILL after a peer died. ``stop_grace_s``: the same when we are told to stop,
    cut at ``stop_by_utc_s`` where the platform ends the job then (SLURM). ``reap_s``: after SIGKILL, until a
    worker that the kernel does not give back is called unkillable. ``rejoin_s``: after a death, until
    survivors and who takes the dead rank's place are one group; 0: survivors never stay. ``stay_asked``: they
    are to by ``--on_fault=replace``, so an incident in which none does always says why. ``trains_from``: no
    fewer ranks that live train on while others are missing; 0: all wait. ``heal_s``: how long a place may
    stay empty then.
    """

    grace_s: float = DEFAULT_GRACE_S
    stop_grace_s: float = DEFAULT_GRACE_S
    stop_grace_source: str = "default"
    stop_by_utc_s: float | None = None
    reap_s: float = 10.0
    rejoin_s: float = 0.0
    stay_asked: bool = False
    trains_from: int = 0
    heal_s: float = DEFAULT_HEAL_S


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Deadline:
    """A moment of the run's clock, in run-seconds like ``at_s`` of every event.

    The sooner of two is the smaller. Journals hold its number alone.
    """

    WIRE_FIELD: ClassVar[str] = "at_s"

    at_s: float

    @classmethod
    def after(cls, window_s: float, now_s: float) -> "Deadline":
        """The moment at which a window of ``window_s`` is over that opens at ``now_s``."""
        return cls(at_s=now_s + window_s)

    def left_s(self, now_s: float) -> float:
        """Seconds from ``now_s`` until then; 0 when it is over."""
        return max(0.0, self.at_s - now_s)

    def is_over(self, now_s: float) -> bool:
        """Whether nothing is left of it at ``now_s``."""
        return now_s >= self.at_s


NO_DEADLINE = Deadline(at_s=math.inf)
"""There is as much time as anything takes."""

NO_TIME = Deadline(at_s=0.0)
"""There is no time at all."""
