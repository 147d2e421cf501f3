"""``python -m benchmarks.campaigns.kills --runs 50 --seed 1``: trainings one by one, each with a rank killed.

Ends with 1 when any run broke a promise; what such a run left is kept, and the table says where.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.campaigns.kill_plan import SAVE_EVERY, STEPS, WORKERS, Kill, plan
from benchmarks.campaigns.kill_run import Outcome, TooLate, run, undisturbed
from benchmarks.harness import machine

_TRIES = 3
_HEAD = "| run | rank | step | when | way | resumed at | lost | training again | took | promises |"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaigns.kills", description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of the kills and of the training")
    parser.add_argument(
        "--only", type=int, action="append", help="this run of the campaign alone (repeatable)"
    )
    asked = parser.parse_args(argv)
    kills = [kill for kill in plan(asked.runs, asked.seed) if not asked.only or kill.number in asked.only]
    print(
        f"{len(kills)} runs, seed {asked.seed}: {WORKERS} torch workers,"
        f" {STEPS} steps, saved every {SAVE_EVERY}"
    )
    print(f"\n{_HEAD}\n|{'---|' * 10}", flush=True)
    outcomes = []
    for outcome, left_in in campaign(kills, asked.seed):
        outcomes.append(outcome)
        print(_row(outcome, left_in), flush=True)
    print(f"\n{summary(outcomes)}")
    return 1 if any(outcome.broken for outcome in outcomes) else 0


def campaign(kills: Sequence[Kill], seed: int) -> Iterator[tuple[Outcome, Path | None]]:
    """Carry the kills out one after another; with each outcome comes what a broken run left behind."""
    with tempfile.TemporaryDirectory(prefix="undisturbed-") as folder:
        expected = undisturbed(Path(folder), seed)
    for kill in kills:
        outcome, folder_of_run = _one(kill, seed, expected)
        if outcome.broken:
            yield outcome, folder_of_run
        else:
            shutil.rmtree(folder_of_run)
            yield outcome, None


def summary(outcomes: Sequence[Outcome]) -> str:
    """What the campaign proved, in a few lines."""
    fine = [outcome for outcome in outcomes if not outcome.broken]
    pauses = [outcome.pause_s for outcome in outcomes if outcome.pause_s is not None]
    most_lost = max((outcome.lost for outcome in outcomes if outcome.resumed >= 0), default=0)
    lines = [
        f"{len(fine)} of {len(outcomes)} runs kept every promise: recovered at the first restart,"
        " exit code 0, no orphan, no step counted twice, every bit of the weights as if nothing had happened",
        f"steps lost: at most {most_lost}, saved every {SAVE_EVERY}",
    ]
    if pauses:
        spread = f"{min(pauses):.1f} to {max(pauses):.1f} s"
        lines.append(f"kill to first step: median {statistics.median(pauses):.1f} s, {spread}")
    lines.append(f"load average {machine.load()} on {machine.describe()['cores']} cores")
    return "\n".join(lines)


def _one(kill: Kill, seed: int, expected: str) -> tuple[Outcome, Path]:
    """A kill that came too late is tried again: it proves nothing about faultrun."""
    for _ in range(_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=f"kill-{kill.number}-"))
        try:
            return run(kill, folder, seed, expected), folder
        except TooLate:
            shutil.rmtree(folder)
    raise SystemExit(f"run {kill.number}: the training was over before the kill, {_TRIES} times")


def _row(outcome: Outcome, left_in: Path | None) -> str:
    kill = outcome.kill
    moment = f"{kill.when.value} +{kill.after_s * 1e3:.0f} ms" if kill.after_s else kill.when.value
    pause = "-" if outcome.pause_s is None else f"{outcome.pause_s:.2f} s"
    verdict = "kept" if left_in is None else f"**broken**: {'; '.join(outcome.broken)} (see {left_in})"
    cells = (kill.number, kill.rank, kill.step, moment, kill.way.value, outcome.resumed, outcome.lost)
    return f"| {' | '.join(map(str, cells))} | {pause} | {outcome.took_s:.1f} s | {verdict} |"


if __name__ == "__main__":
    sys.exit(main())
