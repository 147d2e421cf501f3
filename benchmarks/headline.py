"""``python -m benchmarks.headline``: the comparison that the README shows, and the pages behind it.

Attempts are kept in ``results/attempts``; the same command goes on where it was cut
off, so that it can run in pieces (``--minutes 20``) when the machine is quiet.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import catalog
from benchmarks.harness import machine, report
from benchmarks.harness.conduct import conduct, readings_of
from benchmarks.harness.launched import ROOT
from benchmarks.harness.ledger import Ledger
from benchmarks.harness.plot import draw
from benchmarks.harness.readme import PART, table, written_between

RESULTS = Path(__file__).parent / "results"
README = ROOT / "README.md"

PARTS = (("warm", "2 workers", 15), ("mindspore", "2 workers", 7), ("mindspore", "4 workers", 7))
"""Benchmark, case, rounds: in the order in which they are worth their time."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is missing, then write everything anew from all that was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.headline", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin nothing after that [60]")
    parser.add_argument("--rounds", type=int, help="instead of 15 for torch and 7 for MindSpore")
    parser.add_argument("--again", action="store_true", help="forget earlier attempts")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results go [benchmarks/results]")
    parser.add_argument("--readme", type=Path, default=README, help="the page to rewrite [README.md]")
    asked = parser.parse_args(argv)
    until_s = time.monotonic() + asked.minutes * 60
    names = dict.fromkeys(name for name, *_ in PARTS)
    paths = {name: asked.results / "attempts" / f"{name}.jsonl" for name in names}
    if asked.again:
        for path in paths.values():
            path.unlink(missing_ok=True)
    ledgers = {name: Ledger(path) for name, path in paths.items()}
    for name, case, rounds in PARTS:
        (benchmark,) = catalog.load([name])
        conduct(
            benchmark,
            rounds=asked.rounds or rounds,
            cases=[case],
            say=_say,
            ledger=ledgers[name],
            until_s=until_s,
        )
    write(ledgers, asked.results, asked.readme)
    return 0


def write(ledgers: dict[str, Ledger], results: Path, readme: Path) -> None:
    """Pages, records, plot and the README's table, from what was measured so far."""
    readings = {}
    for name, ledger in ledgers.items():
        (benchmark,) = catalog.load([name])
        readings[name] = readings_of(benchmark, ledger)
        around = report.Circumstances(
            machine=machine.describe(),
            loads=_loads(ledger),
            rounds=max((entry.round + 1 for entry in ledger.entries), default=0),
            cases=[case for case in benchmark.cases if any(entry.case == case for entry in ledger.entries)],
        )
        report.write(results, benchmark, readings[name], around)
    draw(readings["warm"], readings["mindspore"], results)
    loads = [float(load) for ledger in ledgers.values() for load in _loads(ledger)]
    text = table(readings["warm"], readings["mindspore"], machine.describe(), (min(loads), max(loads)))
    page = readme.read_text(encoding="utf-8")
    readme.write_text(written_between(page, PART, text), encoding="utf-8")
    _say(f"{results} and {readme.name} are written")


def _loads(ledger: Ledger) -> tuple[str, str]:
    """Of the first attempt and of the last."""
    if not ledger.entries:
        return machine.load(), machine.load()
    return ledger.entries[0].load, ledger.entries[-1].load


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
