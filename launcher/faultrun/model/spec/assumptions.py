"""What is assumed of a training without faultrun, to say what the same faults would have cost there."""

from dataclasses import dataclass, replace
from enum import Enum


class UsualLauncher(Enum):
    """What starts the workers again where there is no faultrun."""

    TORCHRUN = "torchrun"
    NONE = "none"


_RESTARTS_BY_ITSELF = {"torch": UsualLauncher.TORCHRUN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Every number that is compared with and that no journal can know. Times in seconds, sources in the docs.

    By hand: ``notice_s`` until a person sees that training stands still, ``restart_s`` from then until its
    workers run again. By ``launcher`` (None: the one that is usual for the framework): ``relaunch_s`` from a
    death until new workers run, ``hang_s`` until a rank that stands still is noticed. ``devices`` wait while
    the run does; None: one for each worker.
    """

    notice_s: float = 900.0
    restart_s: float = 600.0
    launcher: UsualLauncher | None = None
    relaunch_s: float = 0.35
    hang_s: float = 600.0
    devices: int | None = None

    def settled(self, framework: str) -> "Assumptions":
        """Fill in the usual launcher if none is given; under msrun and a bare Python only hands restart."""
        usual = _RESTARTS_BY_ITSELF.get(framework, UsualLauncher.NONE)
        return self if self.launcher is not None else replace(self, launcher=usual)
