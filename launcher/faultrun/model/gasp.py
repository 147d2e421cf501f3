"""Events of the dying gasp: asked for, heard, written, read back."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GaspRequested:
    """Survivors were asked to save; ``took_s`` is from the decision to the last signal."""

    at_s: float
    incarnation: int
    ranks: tuple[int, ...]
    deadline_s: float
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GaspAcknowledged:
    """A rank heard the request; ``step`` is the newest consistent step that it can save."""

    at_s: float
    incarnation: int
    rank: int
    step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GaspSaved:
    """A rank wrote its state. ``replica_group`` is empty when all ranks hold the same."""

    at_s: float
    incarnation: int
    rank: int
    path: str
    step: int
    size_bytes: int
    took_s: float
    digest: str = ""
    replica_group: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GaspVerified:
    """The supervisor read a save back; ``why`` says what it found."""

    at_s: float
    incarnation: int
    rank: int
    path: str
    whole: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSeen:
    """A checkpoint lies there that was not there when the workers started: the first that a script wrote."""

    at_s: float
    incarnation: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GaspFailed:
    """A rank could not save."""

    at_s: float
    incarnation: int
    rank: int
    why: str
