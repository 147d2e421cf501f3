"""What the helper thread needs of whoever holds the training state: torch, MindSpore or the script."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from faultrun.sdk.files import Saved


class NotSaved(Exception):
    """The state could not be saved; the message says why, for a person."""


class After(Enum):
    """What follows a save."""

    LEAVE = "leave"
    GO_ON = "go on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Save by ``until_s`` (monotonic clock). ``step`` is the global step that is wanted; None: the newest.

    ``peers_lost``: a peer is gone or stands still, so a step that talks to it never ends.
    """

    until_s: float
    after: After
    step: int | None = None
    peers_lost: bool = False


class Keeper(Protocol):
    """Holds the training state of this worker."""

    def newest(self) -> int | None:
        """The newest step that could be saved now; None before the first. Any thread."""
        ...

    def save(self, order: Order) -> Saved:
        """Save a step-consistent state. Helper thread only.

        Waits for a consistent moment, at most until ``order.until_s``. With
        ``After.LEAVE`` the main thread may be held up for good. Raises
        NotSaved, OSError, or whatever the framework's writer raises.
        """
        ...

    def prune(self, newest: Saved) -> None:
        """Drop gasps older than ``newest``, which was reported. Helper thread only."""
        ...

    def stop(self) -> None:
        """The main thread changes nothing any more: it raised, or it is on its way out."""
        ...

    def unfinished(self) -> bool:
        """Whether the process would be ending in the middle of training."""
        ...
