"""The clock and the stretches of an account: every moment of a run, once."""

from dataclasses import dataclass, field

from faultrun.journal.lines import JournalLine, moment
from faultrun.model.events import RunStarted
from faultrun.observe.account.model import Segment, Spending

_MOST_SAMPLES = 4000


@dataclass(slots=True)
class AccountClock:
    """Seconds since the first line, with the time without a supervisor told apart."""

    began_utc: str = ""
    last_utc: str = ""
    _offset_s: float = 0.0
    _last_run_s: float = 0.0
    _first_run_s: float | None = None

    def passes(self, line: JournalLine) -> tuple[float, float]:
        """When ``line`` was written, and for how long before it nobody supervised."""
        gap_s = 0.0
        if self._first_run_s is None:
            self._first_run_s = line.run_s
            self.began_utc = line.at_utc
        elif isinstance(line.event, RunStarted):
            # Run-seconds pass while nobody supervises; in journals of versions before they stood still.
            counted = max(0.0, line.run_s - self._last_run_s)
            gap_s = max(counted, _seconds_between(self.last_utc, line.at_utc))
            self._offset_s += gap_s - counted
        self.last_utc = line.at_utc or self.last_utc
        self._last_run_s = max(line.run_s, self._last_run_s)
        return self._last_run_s - self._first_run_s + self._offset_s, gap_s


def _seconds_between(earlier: str, later: str) -> float:
    begin, end = moment(earlier), moment(later)
    return (end - begin).total_seconds() if begin is not None and end is not None else 0.0


@dataclass(slots=True)
class Timeline:
    """Stretches in order; equal neighbours are one. ``end_s`` is how far it is known."""

    end_s: float = 0.0
    stretches: list[tuple[Spending, float, float, int]] = field(default_factory=list)

    def copy(self) -> "Timeline":
        """Another that may be changed."""
        return Timeline(self.end_s, list(self.stretches))

    def advance(self, to_s: float, kind: Spending, incarnation: int) -> None:
        """All time up to ``to_s`` was of this kind. Time that does not pass changes nothing."""
        if to_s > self.end_s:
            self._append(kind, self.end_s, to_s, incarnation)
            self.end_s = to_s

    def relabel(self, begin_s: float, end_s: float, kind: Spending, incarnation: int) -> float:
        """Make the training of ``incarnation`` within ``[begin_s, end_s)`` another kind; return how much."""
        tail: list[tuple[Spending, float, float, int]] = []
        changed_s = 0.0
        while self.stretches and self.stretches[-1][2] > begin_s:
            tail.append(self.stretches.pop())
        for was, low, high, life in reversed(tail):
            first, last = max(low, begin_s), min(high, end_s)
            if was is not Spending.TRAINING or life != incarnation or last <= first:
                self._append(was, low, high, life)
                continue
            changed_s += last - first
            self._append(was, low, first, life)
            self._append(kind, first, last, life)
            self._append(was, last, high, life)
        return changed_s

    def rename(self, kind: Spending, to: Spending) -> None:
        """All that was called ``kind`` is called ``to``."""
        found, self.stretches = self.stretches, []
        for was, low, high, life in found:
            self._append(to if was is kind else was, low, high, life)

    def within(self, begin_s: float) -> dict[Spending, float]:
        """Seconds by kind from ``begin_s`` to the end."""
        spent: dict[Spending, float] = {}
        for kind, low, high, _ in reversed(self.stretches):
            if high <= begin_s:
                break
            spent[kind] = spent.get(kind, 0.0) + high - max(low, begin_s)
        return spent

    def segments(self) -> tuple[Segment, ...]:
        """The stretches as values."""
        return tuple(
            Segment(kind=kind, begin_s=low, end_s=high, incarnation=life)
            for kind, low, high, life in self.stretches
        )

    def _append(self, kind: Spending, low: float, high: float, incarnation: int) -> None:
        if high <= low:
            return
        if self.stretches:
            was, begin, end, life = self.stretches[-1]
            if was is kind and life == incarnation and end == low:
                self.stretches[-1] = (kind, begin, high, incarnation)
                return
        self.stretches.append((kind, low, high, incarnation))


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
