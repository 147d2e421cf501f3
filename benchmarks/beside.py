"""Restarts of this checkout beside those of another one, in turns: ``python -m benchmarks.beside OTHER``.

OTHER is a checkout of faultrun; it runs by its own ``.venv`` where it has one. Each way is measured by each
checkout's own benchmark. A change is no slower if the interval of the ratio of medians reaches 1.05 or less.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.kept import commit
from benchmarks.harness.launched import ROOT

WAYS = {
    "cold": ("benchmarks.warm", "faultrun", "2 workers"),
    "warm": ("benchmarks.warm", "faultrun, standbys", "2 workers"),
    "stay": ("benchmarks.stay", "faultrun, survivors stay", "3 ranks of DDP"),
    "mindspore": ("benchmarks.restart_mindspore", "faultrun", "2 workers"),
    "mindspore-warm": ("benchmarks.restart_mindspore", "faultrun, standbys", "2 workers"),
}
"""The module that measures, the contender and the case by the names that it knows."""
MOST = 1.05
_DRAWN = 10_000
_ATTEMPT_S = 600
_ONE = """
import json, pathlib, sys, tempfile
from importlib import import_module
from benchmarks.harness.benchmark import Attempt
module, contender, case = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    attempt = Attempt(contender=contender, case=case, round=0, folder=pathlib.Path(folder))
    print(json.dumps(import_module(module).measure(attempt)["first_step"]))
"""


def main() -> int:
    """Measure, and print a row for each way as soon as it is known."""
    as_it_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_it_is)
    parser.add_argument("other", type=Path)
    parser.add_argument("--ways", default="cold,warm,stay", help=f"of {','.join(WAYS)} [%(default)s]")
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    print(f"{commit()} beside {commit(asked.other)}, {asked.rounds} rounds in turns, kill to first step")
    kept = True
    for way in asked.ways.split(","):
        here, there = measured(way, asked.other, asked.rounds)
        low, high = interval(here, there)
        kept = kept and low <= MOST
        medians = f"{statistics.median(here):.3f} s, {statistics.median(there):.3f} s before"
        ratio = statistics.median(here) / statistics.median(there)
        print(f"| {way} | {medians} | {ratio:.3f} ({low:.3f} to {high:.3f}) | n={len(here)}, {len(there)} |")
        sys.stdout.flush()
    return 0 if kept else 1


def measured(way: str, other: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of this checkout and of the other one; an attempt that did not come back is told."""
    here: list[float] = []
    there: list[float] = []
    for number in range(rounds):
        turns = [(ROOT, here), (other, there)]
        for checkout, seconds in turns if number % 2 == 0 else reversed(turns):
            seconds.extend(attempt(checkout, way))
    return here, there


def attempt(checkout: Path, way: str) -> Iterator[float]:
    """One restart of that checkout."""
    own = checkout / ".venv" / "bin" / "python"
    command = [str(own if own.exists() else sys.executable), "-c", _ONE, *WAYS[way]]
    environ = {**os.environ, "PYTHONPATH": f"{checkout}:{checkout / 'launcher'}"}
    done = subprocess.run(
        command, cwd=checkout, env=environ, capture_output=True, text=True, timeout=_ATTEMPT_S, check=False
    )
    if done.returncode == 0:
        yield from json.loads(done.stdout.splitlines()[-1])
    else:
        print(f"{way} of {checkout.name}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)


def interval(here: list[float], there: list[float]) -> tuple[float, float]:
    """The 90 % bootstrap interval of the ratio of medians."""
    chance = random.Random(0)
    ratios = sorted(
        statistics.median(chance.choices(here, k=len(here)))
        / statistics.median(chance.choices(there, k=len(there)))
        for _ in range(_DRAWN)
    )
    return ratios[int(0.05 * _DRAWN)], ratios[int(0.95 * _DRAWN) - 1]


if __name__ == "__main__":
    sys.exit(main())
