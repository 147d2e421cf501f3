"""What a benchmark is: who answers which questions, and which promises the answers prove. Values only."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from benchmarks.harness.series import NotRun, Readings

OURS = "faultrun"


class Unit(Enum):
    """How numbers are shown. Samples are kept in seconds, MiB, fractions and counts."""

    MILLISECONDS = "ms"
    SECONDS = "s"
    MEBIBYTES = "MiB"
    PERCENT = "%"  # of one core
    COUNT = ""
    SUCCESSES = "of"  # each sample is 1.0 (it worked) or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One column of numbers."""

    key: str
    label: str
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One measurement to be made. ``folder`` is empty, and gone afterwards."""

    contender: str
    case: str
    round: int
    folder: Path


class NotMeasured(Exception):
    """The attempt gave no number; the text says why and becomes part of the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``kept`` is None when it was not measured. ``measured`` is the evidence in a few words."""

    kept: bool | None
    measured: str

    @classmethod
    def of_all(cls, kept: Sequence[bool], words: Iterable[str]) -> "Verdict":
        """Kept where it was kept in every case. NotRun if there is none."""
        if not kept:
            raise NotRun
        return cls(kept=all(kept), measured="; ".join(words))


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One row of what is promised about performance, and how readings are judged by it.

    ``judge`` may raise NotRun.
    """

    text: str
    judge: Callable[[Readings], Verdict]

    def verdict(self, readings: Readings) -> Verdict:
        """What the readings prove."""
        try:
            return self.judge(readings)
        except NotRun:
            return Verdict(kept=None, measured="not run")


def everybody_is_here(contender: str) -> str:
    """The answer of a benchmark whose contenders need nothing that may be missing."""
    del contender
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A module's answer to ``python -m benchmarks NAME``.

    The first of ``contenders`` is ours: the others are shown as multiples of
    it. In every round each case is measured once with each contender, in
    changing order, so that a slow minute of the machine hits everybody.
    ``missing`` says why a contender cannot run here, empty when it can.
    """

    name: str
    title: str
    method: str
    contenders: tuple[str, ...]
    cases: tuple[str, ...]
    metrics: tuple[Metric, ...]
    promises: tuple[Promise, ...]
    rounds: int
    measure: Callable[[Attempt], Mapping[str, Iterable[float]]]
    missing: Callable[[str], str] = everybody_is_here
