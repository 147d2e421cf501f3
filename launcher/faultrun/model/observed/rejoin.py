"""What ranks say that keep their processes: the place of a dead one is taken, or one is repaired."""

from dataclasses import dataclass, field

from faultrun.model.event_base import UNLESS_USED, Fact
from faultrun.model.observed.evidence import DeathNote


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCanRejoin(Fact):
    """``rank`` can leave its process group and form another, from the step that it is at on.

    ``trains_on``: why it cannot do a missing rank's share meanwhile; "" where it can, None: it was not asked.
    ``waits``: it stands between two steps with all others, for who comes to an empty place.
    """

    rank: int
    trains_on: str | None = field(default=None, metadata=UNLESS_USED)
    waits: bool = field(default=False, metadata=UNLESS_USED)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFaultFound(Fact):
    """Memory of ``rank`` is bad, and its process lives: it could go on with a state from elsewhere."""

    rank: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorsFreed(Fact):
    """The ranks of one of several nodes were told to leave their group; it listens at ``meeting_port``.

    0: it could not, and ``why``.
    """

    meeting_port: int
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathsExamined(Fact):
    """What the logs of ``dead`` say last, and the kernel of them, while the others live."""

    dead: tuple[int, ...]
    notes: tuple[DeathNote, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRejoined(Fact):
    """``rank`` is in the group of this incarnation, with the state of global step ``step``."""

    rank: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCannotRejoin(Fact):
    """``rank`` cannot come back by itself: all must begin anew."""

    rank: int
    why: str


RejoinEvent = (
    RankCanRejoin | MemoryFaultFound | SurvivorsFreed | DeathsExamined | RankRejoined | RankCannotRejoin
)
