"""Carries a benchmark out: rounds, contenders in changing order, a fresh folder for each attempt."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness.benchmark import Attempt, Benchmark, NotMeasured
from benchmarks.harness.series import Collector, Readings


def conduct(
    benchmark: Benchmark, *, rounds: int, cases: Sequence[str], say: Callable[[str], None]
) -> Readings:
    """Measure ``cases`` in ``rounds`` rounds; an attempt that gives no number is a result too."""
    collector = Collector()
    present = []
    for contender in benchmark.contenders:
        why = benchmark.missing(contender)
        if why:
            collector.leave_out(contender, why)
            say(f"{benchmark.name}: without {contender}: {why}")
        else:
            present.append(contender)
    for number in range(rounds):
        for case in cases:
            for contender in _order(present, number):
                _attempt(benchmark, collector, (case, contender, number), say)
    return collector.readings()


def _order(contenders: Sequence[str], number: int) -> Sequence[str]:
    """Everybody is first, and last, equally often."""
    if not contenders:
        return ()
    start = number // 2 % len(contenders)
    turned = [*contenders[start:], *contenders[:start]]
    return turned[::-1] if number % 2 else turned


def _attempt(
    benchmark: Benchmark, collector: Collector, what: tuple[str, str, int], say: Callable[[str], None]
) -> None:
    case, contender, number = what
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        attempt = Attempt(contender=contender, case=case, round=number, folder=Path(folder))
        try:
            collector.add(case, contender, benchmark.measure(attempt))
            outcome = "measured"
        except NotMeasured as reason:
            collector.fail(case, contender, str(reason))
            outcome = f"not measured: {reason}"
    took_s = time.monotonic() - began_s
    say(f"{benchmark.name}: round {number + 1}, {case}, {contender}: {outcome} ({took_s:.1f} s)")
