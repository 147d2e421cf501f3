"""What a run cost: where its time went, what each incident took, and what would lose less.

Times are seconds since the run began. The clock is the journal's ``run_s`` plus
the time in which no supervisor lived, by the wall clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from faultrun.model.run import Phase


class Spending(Enum):
    """What a moment of the run was used for. Every moment is exactly one of these."""

    TRAINING = "training"  # steps that are part of the result
    RECOMPUTE = "recompute"  # steps trained a second time after a restart
    DETECT = "detect"  # no step is done any more and nobody has noticed yet
    DRAIN = "drain"  # survivors save, everything stops, leftovers are swept
    CHOOSE = "choose"  # checkpoints are read and one is agreed on
    BACKOFF = "backoff"  # the pause before a restart
    SPAWN = "spawn"  # configurations rewritten, workers executed
    START = "start"  # workers run and have not done a step
    UNREPORTED = "unreported"  # workers run, and nobody says whether they start up, train or train again
    IDLE = "idle"  # the platform kept workers back
    AWAY = "away"  # no supervisor: it was killed, or the run was stopped and started again

    @property
    def productive(self) -> bool:
        """Whether this is what the run is for."""
        return self is Spending.TRAINING


RECOVERY = (
    Spending.DETECT,
    Spending.DRAIN,
    Spending.CHOOSE,
    Spending.BACKOFF,
    Spending.IDLE,
    Spending.SPAWN,
    Spending.START,
)
"""The parts of a recovery in their usual order, from the fault to the first new step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """An uninterrupted stretch of one kind, ``[begin_s, end_s)``, in the life of one incarnation."""

    kind: Spending
    begin_s: float
    end_s: float
    incarnation: int

    @property
    def length_s(self) -> float:
        """How long it lasted."""
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationRecord:
    """One incarnation. Steps are global; None where nobody reported them.

    ``repeated_steps``: how many of its steps an earlier life had already done.
    """

    number: int
    begin_s: float
    running_s: float | None
    first_step_s: float | None
    end_s: float
    workers: int
    resumed_from: str
    resumed_step: int | None
    reached_step: int | None
    end: str
    repeated_steps: int | None = None


NOT_OVER = "not over"
"""How a fault ends that the run has not got over yet."""

TRAINING_AGAIN = "training again"
"""How a fault ends that the run got over: every rank has done a step."""

RUNNING_AGAIN = "running again"
"""How it ends where no rank reports steps: workers run, and nobody knows when they trained."""

SUPERVISOR_LOST = "supervisor lost"
"""How it ends where a supervisor was killed in the middle of it: nobody saw whether training went on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRecord:
    """One incident and what it cost.

    ``spent`` are seconds by kind, from the fault to the first new step; ``recompute_s`` is what the next
    incarnation then trained a second time. ``saved`` counts ranks with a dying-gasp save. ``timeline`` are
    the finer parts that ``RecoveryTimed`` tells, in seconds, by name and in order, ``timed_s`` its total.
    ``resume`` says where the next life began, beside where it should have; empty while nobody knows.
    """

    number: int
    incarnation: int
    at_s: float
    rank: int | None
    cause: str
    what: str
    step: int | None
    resumed_step: int | None
    lost_steps: int | None
    recompute_s: float
    spent: Mapping[Spending, float]
    saved: int
    refused: int
    end: str
    timeline: Mapping[str, float] = field(default_factory=dict)
    timed_s: float | None = None
    resume: str = ""

    @property
    def recovery_s(self) -> float | None:
        """From the fault until every rank had done a step again, or the run ended.

        None where nobody said when that was: ``spent`` ends when workers ran again.
        """
        if self.end in (RUNNING_AGAIN, SUPERVISOR_LOST):
            return None
        return sum(self.spent.values()) if self.timed_s is None else self.timed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Saves:
    """Dying-gasp saves of the run: ranks asked, saved, failed; ``cut`` windows ran out with a rank left.

    Of all ``windows``, ``kept`` are those that left a copy of every rank's state: one rank's save
    is enough where all hold the same. ``took_s`` is the median time of a save, None without one.
    """

    asked: int = 0
    saved: int = 0
    failed: int = 0
    cut: int = 0
    windows: int = 0
    kept: int = 0
    took_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A whole run. ``spent`` sums to ``wall_s``.

    ``steps`` are samples ``(at_s, global step)`` for a plot, thinned out. ``events`` counts journal lines by
    name. ``standbys`` counts what became of warm standbys. ``ended`` is None while the run goes on.
    """

    began_utc: str
    last_utc: str
    wall_s: float
    spent: Mapping[Spending, float]
    segments: tuple[Segment, ...]
    lives: tuple[IncarnationRecord, ...]
    faults: tuple[IncidentRecord, ...]
    stops: int
    restarts: int
    standbys: Mapping[str, int]
    saves: Saves
    refused: Mapping[str, int]
    steps: tuple[tuple[float, int], ...]
    step_s: float | None
    high_step: int | None
    events: Mapping[str, int]
    ended: tuple[int, str] | None
    phase: Phase | None

    @property
    def productive_share(self) -> float | None:
        """ETTR: productive time over wall time; None where nobody reported steps."""
        return productive_share(self.spent)

    @property
    def lost_steps(self) -> int | None:
        """Steps that were trained twice, over all lives; None where it is not known of one."""
        repeated = [life.repeated_steps for life in self.lives[1:]]
        known = [steps for steps in repeated if steps is not None]
        return sum(known) if len(known) == len(repeated) else None


def productive_share(spent: Mapping[Spending, float]) -> float | None:
    """Training that counts, of all time; None where no time passed, or ranks ran and reported no step."""
    wall_s = sum(spent.values())
    if wall_s <= 0 or spent.get(Spending.UNREPORTED, 0.0) > 0:
        return None
    return spent.get(Spending.TRAINING, 0.0) / wall_s
