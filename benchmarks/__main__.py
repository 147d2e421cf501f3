"""``python -m benchmarks [NAME...]``: measure the promises about performance, next to their rivals."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import catalog
from benchmarks.harness import machine, report
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.conduct import conduct

RESULTS = Path(__file__).parent / "results"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 when ``--strict`` is given and a promise was not kept."""
    asked = _parse(argv)
    if asked.list:
        for benchmark in catalog.load(catalog.names()):
            print(f"{benchmark.name:<12} {benchmark.title} ({benchmark.rounds} rounds)")
        return 0
    broken = 0
    for benchmark in catalog.load(asked.names or catalog.usual()):
        broken += _run(benchmark, asked)
    return 1 if asked.strict and broken else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {' '.join(catalog.names())}")
    parser.add_argument("--rounds", type=int, help="more rounds are surer [each benchmark's own]")
    parser.add_argument("--case", action="append", help="only this case (repeatable) [all]")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where tables go [benchmarks/results]")
    parser.add_argument("--remark", action="append", default=[], help="a sentence for the page (repeatable)")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a promise is not kept")
    parser.add_argument("--list", action="store_true", help="say what there is, and end")
    asked = parser.parse_args(argv)
    unknown = [name for name in asked.names if name not in catalog.names()]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]}; there are: {' '.join(catalog.names())}")
    if asked.rounds is not None and asked.rounds < 1:
        parser.error("--rounds takes a number from 1")
    return asked


def _run(benchmark: Benchmark, asked: argparse.Namespace) -> int:
    """Measure, write the page, show it; return how many promises were not kept."""
    cases = [case for case in benchmark.cases if not asked.case or case in asked.case]
    rounds = asked.rounds or benchmark.rounds
    load_before = machine.load()
    readings = conduct(benchmark, rounds=rounds, cases=cases, say=_say)
    around = report.Circumstances(
        machine=machine.describe(),
        loads=(load_before, machine.load()),
        rounds=rounds,
        cases=cases,
        remarks=asked.remark,
    )
    page = report.write(asked.results, benchmark, readings, around)
    print(page.read_text(encoding="utf-8"), flush=True)
    return sum(promise.verdict(readings).kept is False for promise in benchmark.promises)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
