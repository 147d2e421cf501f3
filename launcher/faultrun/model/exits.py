"""How a process ended, as the kernel tells it."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """The worker returned ``code`` of its own accord."""

    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Signaled:
    """The kernel ended the worker with ``signum``; it had no last word."""

    signum: int


ExitStatus = Exited | Signaled


class WorkerExitCodes(Enum):
    """What a worker means by its exit code.

    TORCHFT: of a training that recovers by itself (``torchft.fsdp``): 0 done, 1 start me again, 3 do not.
    """

    USUAL = "usual"
    TORCHFT = "torchft"


NEVER_AGAIN = 3
"""By a worker of ``WorkerExitCodes.TORCHFT``."""


def ended_well(status: ExitStatus, *, done: bool) -> bool:
    """Whether an end is no failure: code 0, or any signal once the worker had said that it was ``done``.

    A code that it returns after that is newer than its word, and counts.
    """
    return status == Exited(code=0) or (done and isinstance(status, Signaled))
