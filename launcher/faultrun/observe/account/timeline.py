"""What the time of a run was used for: every moment, once."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from faultrun.journal.lines import JournalLine, moment
from faultrun.model.events import RunStarted
from faultrun.model.run import Phase

_MOST_SAMPLES = 4000
_WRITING_S = 1.0
"""A line's clock is read as it is written, its run-seconds as its event happens: on a busy machine later."""


class Spending(Enum):
    """What a moment of the run was used for. Every moment is exactly one of these."""

    TRAINING = "training"  # steps that are part of the result
    RECOMPUTE = "recompute"  # steps trained a second time after a restart
    DETECT = "detect"  # no step is done any more and that is not noticed yet
    DRAIN = "drain"  # survivors save, everything stops, leftovers are swept
    CHOOSE = "choose"  # checkpoints are read and one is agreed on
    BACKOFF = "backoff"  # the pause before a restart
    SPAWN = "spawn"  # configurations rewritten, workers executed
    START = "start"  # workers run and have not done a step
    UNREPORTED = "unreported"  # workers run, and it is unknown whether they start up, train or train again
    IDLE = "idle"  # the platform kept workers back
    AWAY = "away"  # no supervisor: it was killed, or the run was stopped and started again


SPENT_IN = {
    Phase.NEW: Spending.CHOOSE,
    Phase.SURVEYING: Spending.CHOOSE,
    Phase.AWAITING_PLAN: Spending.CHOOSE,
    Phase.BACKING_OFF: Spending.BACKOFF,
    Phase.HOLDING: Spending.IDLE,
    Phase.PREPARING: Spending.SPAWN,
    Phase.AWAITING_GO: Spending.SPAWN,
    Phase.RUNNING: Spending.TRAINING,
    Phase.REPLACING: Spending.CHOOSE,
    Phase.DRAINING: Spending.DRAIN,
    Phase.KILLING: Spending.DRAIN,
    Phase.SWEEPING: Spending.DRAIN,
}
"""What a moment of each phase is spent on, until more is known."""

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


@dataclass(slots=True)
class AccountClock:
    """Seconds since the first line, with the time without a supervisor told apart."""

    began_utc: str = ""
    last_utc: str = ""
    _offset_s: float = 0.0
    _last_run_s: float = 0.0
    _first_run_s: float | None = None

    def passes(self, line: JournalLine) -> tuple[float, float]:
        """When ``line`` was written, and for how long before it no supervisor lived."""
        gap_s = 0.0
        if self._first_run_s is None:
            self._first_run_s = line.run_s
            self.began_utc = line.at_utc
        elif isinstance(line.event, RunStarted):
            # Run-seconds pass while no supervisor lives; in journals of versions before they stood still.
            counted = max(0.0, line.run_s - self._last_run_s)
            passed = seconds_between(self.last_utc, line.at_utc)
            gap_s = passed if passed > counted + _WRITING_S else counted
            self._offset_s += gap_s - counted
        self.last_utc = line.at_utc or self.last_utc
        self._last_run_s = max(line.run_s, self._last_run_s)
        return self.of_run_s(self._last_run_s), gap_s

    def of_run_s(self, run_s: float) -> float:
        """The second of the account in which the supervisor that writes now would have written ``run_s``."""
        return run_s - (self._first_run_s or 0.0) + self._offset_s


def seconds_between(earlier: str, later: str) -> float:
    """From one moment in UTC to another; 0 where one of them is none."""
    begin, end = moment(earlier), moment(later)
    return (end - begin).total_seconds() if begin is not None and end is not None else 0.0


@dataclass(slots=True)
class Timeline:
    """Stretches in order; equal neighbours are one. ``end_s`` is how far it is known."""

    end_s: float = 0.0
    segments: list[Segment] = field(default_factory=list)

    def copy(self) -> "Timeline":
        """Another that may be changed."""
        return Timeline(self.end_s, list(self.segments))

    def advance(self, to_s: float, kind: Spending, incarnation: int) -> None:
        """All time up to ``to_s`` was of this kind. Time that does not pass changes nothing."""
        self._append(kind, self.end_s, to_s, incarnation)
        self.end_s = max(self.end_s, to_s)

    def relabel(
        self,
        begin_s: float,
        end_s: float,
        kind: Spending,
        incarnation: int,
        was: Spending = Spending.TRAINING,
    ) -> float:
        """Call another kind what ``incarnation`` spent on ``was`` in ``[begin_s, end_s)``; how much."""
        tail: list[Segment] = []
        changed_s = 0.0
        while self.segments and self.segments[-1].end_s > begin_s:
            tail.append(self.segments.pop())
        for one in reversed(tail):
            first, last = max(one.begin_s, begin_s), min(one.end_s, end_s)
            if one.kind is not was or one.incarnation != incarnation or last <= first:
                first = last = one.end_s
            self._append(one.kind, one.begin_s, first, one.incarnation)
            self._append(kind, first, last, one.incarnation)
            self._append(one.kind, last, one.end_s, one.incarnation)
            changed_s += last - first
        return changed_s

    def rename(self, kind: Spending, to: Spending, incarnations: Collection[int]) -> None:
        """What these incarnations spent on ``kind`` is called ``to``."""
        found, self.segments = self.segments, []
        for one in found:
            named = to if one.kind is kind and one.incarnation in incarnations else one.kind
            self._append(named, one.begin_s, one.end_s, one.incarnation)

    def within(self, begin_s: float) -> dict[Spending, float]:
        """Seconds by kind from ``begin_s`` to the end."""
        spent: dict[Spending, float] = {}
        for one in reversed(self.segments):
            if one.end_s <= begin_s:
                break
            spent[one.kind] = spent.get(one.kind, 0.0) + one.end_s - max(one.begin_s, begin_s)
        return spent

    def _append(self, kind: Spending, begin_s: float, end_s: float, incarnation: int) -> None:
        if end_s <= begin_s:
            return
        last = self.segments[-1] if self.segments else None
        if last and (last.kind, last.incarnation, last.end_s) == (kind, incarnation, begin_s):
            begin_s = self.segments.pop().begin_s
        self.segments.append(Segment(kind=kind, begin_s=begin_s, end_s=end_s, incarnation=incarnation))


@dataclass(slots=True)
class Samples:
    """Steps over time; when there are too many every second one goes, so any length fits a plot."""

    every: int = 1
    seen: int = 0
    kept: list[tuple[float, int]] = field(default_factory=list)
    newest: tuple[float, int] | None = None

    def add(self, at_s: float, step: int) -> None:
        """A step that was reported."""
        self.newest = (at_s, step)
        if self.seen % self.every == 0:
            self.kept.append(self.newest)
        self.seen += 1
        if len(self.kept) > _MOST_SAMPLES:
            self.kept = self.kept[::2]
            self.every *= 2

    def points(self) -> tuple[tuple[float, int], ...]:
        """What was kept, and the newest."""
        if self.newest is None or self.kept[-1] == self.newest:
            return tuple(self.kept)
        return (*self.kept, self.newest)


def productive_share(spent: Mapping[Spending, float]) -> float | None:
    """Training that counts, of all time; None where no time passed, or ranks ran and reported no step."""
    if (wall_s := sum(spent.values())) <= 0 or spent.get(Spending.UNREPORTED, 0.0) > 0:
        return None
    return spent.get(Spending.TRAINING, 0.0) / wall_s


def shares(segments: Sequence[Segment], wall_s: float, bins: int) -> dict[Spending, list[float]]:
    """What part of each of ``bins`` equal stretches of ``wall_s`` went into each kind that occurs."""
    width_s = wall_s / bins
    found: dict[Spending, list[float]] = {}
    for segment in segments:
        row = found.setdefault(segment.kind, [0.0] * bins)
        at = segment.begin_s
        while at < segment.end_s - 1e-9:
            place = min(bins - 1, int(at / width_s))
            if (until := min(segment.end_s, (place + 1) * width_s)) <= at:
                break
            row[place] += (until - at) / width_s
            at = until
    return found
