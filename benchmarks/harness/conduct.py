"""Carries a benchmark out: rounds, contenders in changing order, a fresh folder for each attempt."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness import machine
from benchmarks.harness.benchmark import Attempt, Benchmark, NotMeasured
from benchmarks.harness.ledger import Entry, Ledger
from benchmarks.harness.series import Collector, Readings


def conduct(
    benchmark: Benchmark,
    *,
    rounds: int,
    cases: Sequence[str],
    say: Callable[[str], None],
    ledger: Ledger | None = None,
    until_s: float = float("inf"),
) -> Readings:
    """Measure ``cases`` in ``rounds`` rounds; an attempt that gives no number is a result too.

    What ``ledger`` has is not done again. No attempt begins after ``until_s`` (CLOCK_MONOTONIC).
    """
    ledger = ledger or Ledger()
    present = _present(benchmark, say)
    for number in range(rounds):
        for case in cases:
            for contender in _order(present, number):
                if ledger.has(case, contender, number):
                    continue
                if time.monotonic() > until_s:
                    say(f"{benchmark.name}: out of time in round {number + 1}")
                    return readings_of(benchmark, ledger)
                _attempt(benchmark, ledger, (case, contender, number), say)
    return readings_of(benchmark, ledger)


def readings_of(benchmark: Benchmark, ledger: Ledger) -> Readings:
    """Everything that was measured so far, and who took no part."""
    collector = Collector()
    for contender in benchmark.contenders:
        if why := benchmark.missing(contender):
            collector.leave_out(contender, why)
    for entry in ledger.entries:
        if entry.why:
            collector.fail(entry.case, entry.contender, entry.why)
        else:
            collector.add(entry.case, entry.contender, entry.measured)
    return collector.readings()


def _present(benchmark: Benchmark, say: Callable[[str], None]) -> list[str]:
    present = []
    for contender in benchmark.contenders:
        why = benchmark.missing(contender)
        if why:
            say(f"{benchmark.name}: without {contender}: {why}")
        else:
            present.append(contender)
    return present


def _order(contenders: Sequence[str], number: int) -> Sequence[str]:
    """Everybody is first, and last, equally often."""
    if not contenders:
        return ()
    start = number // 2 % len(contenders)
    turned = [*contenders[start:], *contenders[:start]]
    return turned[::-1] if number % 2 else turned


def _attempt(
    benchmark: Benchmark, ledger: Ledger, what: tuple[str, str, int], say: Callable[[str], None]
) -> None:
    case, contender, number = what
    began_s, load = time.monotonic(), machine.load()
    measured: dict[str, tuple[float, ...]] = {}
    why = ""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        attempt = Attempt(contender=contender, case=case, round=number, folder=Path(folder))
        try:
            measured = {name: tuple(values) for name, values in benchmark.measure(attempt).items()}
        except NotMeasured as reason:
            why = str(reason)
    ledger.add(Entry(case=case, contender=contender, round=number, load=load, measured=measured, why=why))
    outcome = f"not measured: {why}" if why else "measured"
    took_s = time.monotonic() - began_s
    say(f"{benchmark.name}: round {number + 1}, {case}, {contender}: {outcome} ({took_s:.1f} s)")
