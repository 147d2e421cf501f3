"""How a run stands at one moment, as ``faultrun status`` shows it."""

from dataclasses import dataclass
from enum import Enum


class Supervisor(Enum):
    """Whether anybody looks after the run."""

    RUNNING = "running"
    GONE = "gone"  # it was killed: the same command goes on with the run
    ENDED = "ended"  # the run is over
    ELSEWHERE = "elsewhere"  # on another machine; what the files say is all that can be known here


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """One worker. None where nobody knows: a script that reports no steps, a process on another machine.

    ``state`` is ``starting``, ``training``, ``ended``, ``failed`` or ``gone``; ``what`` says how it ended.
    ``doing`` is what the rank says of itself (SDK). ``step_age_s`` is the age of its last report, ``rate`` in
    steps a second, ``rss_bytes`` the resident memory, ``cpu`` a share of one processor (2.0: two of them).
    """

    rank: int
    pid: int | None
    state: str
    what: str = ""
    step: int | None = None
    epoch: int | None = None
    doing: str = ""
    step_age_s: float | None = None
    rate: float | None = None
    rss_bytes: int | None = None
    cpu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastIncident:
    """The newest card: its first line, and how long ago the fault was."""

    number: int
    headline: str
    age_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestCheckpoint:
    """The newest file by its time that a checkpoint format claims by its name; nothing was verified."""

    path: str
    step: int | None
    age_s: float
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What would follow if one more rank died now: restart ``number`` of ``allowed``, or the end."""

    restarts: bool
    number: int
    allowed: int
    backoff_s: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Everything on one screen. ``elapsed_s`` is wall time since the run began; it stops when the run ends.

    ``suspected`` is the newest word on a hang that is neither taken back nor acted on, mostly empty.
    ``step`` is the furthest rank's, ``slowest_step`` the one furthest behind, ``rate`` steps a second.
    """

    run_id: str
    command: str
    log_dir: str
    supervisor: Supervisor
    phase: str
    why: str
    suspected: str
    incarnation: int
    world_size: int
    elapsed_s: float
    last_event_age_s: float | None
    step: int | None
    slowest_step: int | None
    rate: float | None
    restarts: int
    restarts_in_window: int
    restarts_left: int
    window_s: float
    incidents: int
    last_incident: LastIncident | None
    resumed_from: str
    resumed_step: int | None
    last_checkpoint: NewestCheckpoint | None
    outlook: Outlook | None
    ended: tuple[int, str] | None
    ranks: tuple[RankState, ...]

    @property
    def up(self) -> int:
        """Workers that run."""
        return sum(rank.state in ("running", "training") for rank in self.ranks)
