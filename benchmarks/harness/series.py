"""Measured numbers and what is said about them: median, extremes, percentiles, how many."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The samples of one metric, of one contender, in one case; in base units (s, MiB, 1)."""

    values: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def median(self) -> float:
        """The middle sample. ValueError when there is none."""
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        """The smallest sample."""
        return min(self.values)

    @property
    def most(self) -> float:
        """The largest sample."""
        return max(self.values)

    def percentile(self, percent: float) -> float:
        """The smallest sample that is not exceeded by ``percent`` of all: never better than what was seen."""
        ordered = sorted(self.values)
        rank = -(-len(ordered) * percent // 100)  # rounded up
        return ordered[max(0, int(rank) - 1)]


class NotRun(Exception):
    """Nothing was measured of what is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One attempt that gave no number, and why."""

    case: str
    contender: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Everything one benchmark measured. ``missing`` says why a contender took no part."""

    samples: Mapping[tuple[str, str, str], Series] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    def of(self, case: str, contender: str, metric: str) -> Series:
        """The series, empty when nothing was measured."""
        return self.samples.get((case, contender, metric), Series())

    def some(self, case: str, contender: str, metric: str) -> Series:
        """The series. NotRun when nothing was measured."""
        if not (found := self.of(case, contender, metric)).values:
            raise NotRun
        return found

    def medians(self, case: str, names: Iterable[str], metric: str = "first_step") -> dict[str, float]:
        """The median of each contender that has one."""
        series = {name: self.of(case, name, metric) for name in names}
        return {name: one.median for name, one in series.items() if one.values}


class Collector:
    """Gathers samples while a benchmark runs."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str, str], list[float]] = {}
        self._failures: list[Failure] = []
        self._missing: dict[str, str] = {}

    def add(self, case: str, contender: str, measured: Mapping[str, Iterable[float]]) -> None:
        """Append the samples of one attempt."""
        for metric, values in measured.items():
            self._samples.setdefault((case, contender, metric), []).extend(values)

    def fail(self, case: str, contender: str, why: str) -> None:
        """Note an attempt that gave nothing."""
        self._failures.append(Failure(case=case, contender=contender, why=why))

    def leave_out(self, contender: str, why: str) -> None:
        """Note a contender that cannot run here."""
        self._missing[contender] = why

    def readings(self) -> Readings:
        """What was gathered so far."""
        return Readings(
            samples={key: Series(values=tuple(values)) for key, values in self._samples.items()},
            failures=tuple(self._failures),
            missing=dict(self._missing),
        )
