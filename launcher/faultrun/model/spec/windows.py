"""How long workers may go on when they are asked to leave."""

from dataclasses import dataclass

TERMINATION_VARIABLE = "FAULTRUN_TERMINATION_GRACE_S"
"""``terminationGracePeriodSeconds`` of the pod: Kubernetes does not tell a container, so manifests do."""

PLATFORM_MARGIN_S = 5.0
"""How far the window of a stop stays below the platform's."""
MAY_BE_LATE_S = 3.0
"""Of these; the rest is for the end of all processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Every bounded wait of a drain, in seconds.

    ``grace_s``: SIGTERM to SIGKILL after a peer died. ``stop_grace_s``: the
    same when we are told to stop, cut at ``stop_by_utc_s`` where the platform
    ends the job then (SLURM). ``reap_s``: after SIGKILL, until a worker
    that the kernel does not give back is called unkillable. ``rejoin_s``: after a death, until survivors and
    who takes the dead rank's place are one group; 0: survivors never stay. ``stay_asked``: they are to by
    ``--on_fault=replace``, so an incident in which none does always says why.
    """

    grace_s: float = 30.0
    stop_grace_s: float = 30.0
    stop_grace_source: str = "default"
    stop_by_utc_s: float | None = None
    reap_s: float = 10.0
    rejoin_s: float = 0.0
    stay_asked: bool = False

    def stop_window_s(self, left_s: float | None, late_s: float = 0.0) -> float:
        """How long workers may save when the run is stopped now, ``late_s`` after the platform said so.

        ``left_s`` until the platform ends the job, None where it does not; an end that is
        over was moved (``scontrol update``) or comes with a period of its own.

        Windows leave the platform's clock some seconds for what comes before and
        after the save; only what is later than ``MAY_BE_LATE_S`` is taken from it.
        """
        over_s = max(0.0, late_s - MAY_BE_LATE_S)
        window_s = max(min(1.0, self.stop_grace_s), self.stop_grace_s - over_s)
        if left_s is None or left_s <= 0:
            return window_s
        return min(window_s, max(1.0, left_s))
