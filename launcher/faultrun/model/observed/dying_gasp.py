"""Events of the dying gasp: asked for, heard, written, read back."""

from dataclasses import dataclass, field

from faultrun.model.event_base import Fact
from faultrun.model.spec.windows import Deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class GaspRequested(Fact):
    """Survivors were asked to save; ``took_s`` is from the decision to the last signal."""

    ranks: tuple[int, ...]
    deadline: Deadline = field(metadata={"wire": "deadline_s"})
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GaspAcknowledged(Fact):
    """A rank heard the request; ``step`` is the newest consistent step that it can save."""

    rank: int
    step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GaspSaved(Fact):
    """The state of a rank was written. ``replica_group`` is empty when all ranks hold the same.

    ``memory``: not by itself, but from its memory snapshot, once it was gone.
    """

    rank: int
    path: str
    step: int
    size_bytes: int
    took_s: float
    digest: str = ""
    replica_group: tuple[int, ...] = ()
    memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GaspVerified(Fact):
    """The supervisor read a save back; ``why`` says what it found."""

    rank: int
    path: str
    whole: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRequested(Fact):
    """The user (``faultrun checkpoint-now``, a signal) wants a save of all ranks, and no stop."""

    window_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSeen(Fact):
    """A checkpoint lies there that was not there when the workers started: the first that a script wrote."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GaspFailed(Fact):
    """A rank could not save."""

    rank: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveAwaited(Fact):
    """A collective of ``rank`` broke, no peer is known to have failed, and it waits to be asked to save."""

    rank: int


_Answer = GaspAcknowledged | GaspSaved | GaspVerified | GaspFailed
GaspEvent = GaspRequested | _Answer | SaveRequested | SaveSeen | SaveAwaited
