"""``python -m benchmarks.versions --before CHECKOUT``: restarts of another version beside those of this one.

Both run by this environment's Python, in turn, so that what the machine does beside them touches both alike.
The answer is a ratio of medians: a rewrite that keeps the promises keeps this near 1.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import restart_mindspore, warm
from benchmarks.harness.benchmark import OURS, Attempt, NotMeasured
from benchmarks.harness.launched import ROOT
from benchmarks.harness.launchers import WARM
from benchmarks.harness.series import Series

BEFORE, NOW = "before", "now"
KINDS: Mapping[str, tuple[Callable[[Attempt], Mapping[str, list[float]]], str, str]] = {
    "torch, cold": (warm.measure, OURS, "2 workers"),
    "torch, warm": (warm.measure, WARM, "2 workers"),
    "MindSpore, cold": (restart_mindspore.measure, OURS, "2 workers"),
    "MindSpore, warm": (restart_mindspore.measure, WARM, "2 workers"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure in turn, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the other version")
    parser.add_argument("--rounds", type=int, default=7, help="restarts of each [7]")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    asked = parser.parse_args(argv)
    places = {BEFORE: asked.before / "launcher", NOW: ROOT / "launcher"}
    found: dict[tuple[str, str], list[float]] = {(kind, name): [] for kind in asked.kinds for name in places}
    for turn in range(asked.rounds):
        for kind in asked.kinds:
            order = list(places) if turn % 2 == 0 else list(reversed(places))
            for name in order:
                found[kind, name] += _restart(kind, places[name], turn)
    sys.stdout.write("".join(f"{line}\n" for line in table(found, asked.kinds)))
    return 0


def table(found: Mapping[tuple[str, str], Sequence[float]], kinds: Sequence[str]) -> list[str]:
    """Seconds from the kill to the first step: medians, the ratio, how often."""
    lines = ["| restart | before | now | now / before | n |", "|---|---|---|---|---|"]
    for kind in kinds:
        before, now = (Series(values=tuple(found[kind, name])) for name in (BEFORE, NOW))
        if not before.values or not now.values:
            lines.append(f"| {kind} | | | not measured | {len(before)}, {len(now)} |")
            continue
        ratio = now.median / before.median
        words = f"{before.median:.3f} s | {now.median:.3f} s | {ratio:.2f}"
        lines.append(f"| {kind} | {words} | {len(before)}, {len(now)} |")
    return lines


def _restart(kind: str, launcher: Path, turn: int) -> list[float]:
    measure, contender, case = KINDS[kind]
    os.environ["PYTHONPATH"] = str(launcher)
    with tempfile.TemporaryDirectory(prefix="versions-") as folder:
        try:
            seconds = measure(Attempt(contender=contender, case=case, round=turn, folder=Path(folder)))[
                "first_step"
            ]
        except (NotMeasured, KeyError) as error:
            sys.stderr.write(f"{kind} by {launcher}: {error}\n")
            return []
    sys.stderr.write(f"{kind} by {launcher}: {seconds[0]:.3f} s\n")
    return list(seconds)


if __name__ == "__main__":
    sys.exit(main())
