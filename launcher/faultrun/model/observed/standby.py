"""Standbys: spare worker processes that have imported their framework and wait for a rank."""

from dataclasses import dataclass
from enum import Enum

from faultrun.model.event_base import Fact

EVERY_RANK = -1
"""In ``StandbyChanged``: it is about all standbys."""


class StandbyPhase(Enum):
    """Where a standby stands."""

    STARTING = "starting"  # imports its framework and rehearses, at low priority
    READY = "ready"  # waits for its turn
    PARKING = "parking"  # runs the user's program as its rank, up to the first step
    PARKED = "parked"  # waits there to join ranks that live
    TAKEN = "taken"  # answered the hand-over: the user's program runs in it
    LOST = "lost"  # died, hung, or refused
    DISMISSED = "dismissed"  # not ready when the processors were needed for something else
    OFF = "off"  # no more standbys in this run


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyChanged(Fact):
    """The standby of ``rank`` came to ``state`` after ``took_s`` in the one before.

    ``memory_bytes`` is its proportional share (PSS) once it is ready, 0 where it was not measured;
    ``imported`` are the packages that it has imported by then.
    """

    rank: int
    state: StandbyPhase
    why: str = ""
    took_s: float = 0.0
    memory_bytes: int = 0
    imported: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomFound(Fact):
    """There are processors for standbys, for ``at_once`` of them side by side; ``why`` says what was seen."""

    at_once: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUsed(Fact):
    """What ``rank`` has needed at most, by its own word: after its first steps, and when it was more.

    ``host_bytes`` of the machine's memory, ``device_bytes`` of its accelerator ``device`` by what its
    framework has reserved there ("": it has none). By the driver ``total_bytes`` are there (0: it did not
    say), ``free_bytes`` free, and ``beside_bytes`` were used besides: contexts, other processes.
    """

    rank: int
    host_bytes: int
    device: str = ""
    device_bytes: int = 0
    beside_bytes: int = 0
    free_bytes: int = 0
    total_bytes: int = 0


StandbyEvent = StandbyChanged | RoomFound | MemoryUsed


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyWish:
    """How many standbys this run shall have (``--standby``), and of what kind.

    ``asked``: the user named the number and answers for it; otherwise it is ours (``auto``), and any
    word in ``doubts`` has made it 0. In a worker's argument vector the interpreter's own words end
    before ``program_at``, and the program's arguments begin at ``arguments_at``. Variables whose
    names begin with one of ``hidden`` reach a standby with its rank and not before.
    ``estimate_bytes``: what one is taken to need until one was measured. ``imports`` are statements that it
    runs beside the framework's own, ``sets`` the variables that the program sets once it runs.
    """

    count: int = 0
    asked: bool = False
    doubts: tuple[str, ...] = ()
    framework: str = ""
    program_at: int = 0
    arguments_at: int = 0
    hidden: tuple[str, ...] = ()
    estimate_bytes: int = 0
    imports: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
