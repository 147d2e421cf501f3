"""``python -m benchmarks.campaigns.gasps --runs 50 --stops 25``: trainings that lose a rank, or are stopped.

In each of ``--runs`` one rank kills itself at a moment drawn by chance; in
each of ``--stops`` faultrun is told to stop by SIGTERM, and started again.
``--deadlines`` grace windows run to their end with workers that do not
listen. Ends with 1 when a promise was broken; what such a run left is kept,
and the table says where.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from benchmarks.campaigns import gasps_deadline, gasps_run, gasps_stop, gasps_table
from benchmarks.campaigns.gasps_evidence import Reference
from benchmarks.campaigns.gasps_job import TRAININGS, Training
from benchmarks.campaigns.gasps_plan import SAVE_EVERY, STEPS, Fault, Stop, draw_faults, draw_stops
from benchmarks.campaigns.gasps_run import Outcome, Survived
from benchmarks.campaigns.gasps_stop import StopOutcome
from benchmarks.harness import machine

Drawn = TypeVar("Drawn", Fault, Stop)
Judged = TypeVar("Judged", Outcome, StopOutcome)

_TRIES = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaigns that were asked for."""
    asked = _parse(argv)
    signal.signal(signal.SIGTERM, _leave)
    training = TRAININGS[asked.framework]
    if asked.workers:
        training = replace(training, workers=asked.workers)
    faults = _only(draw_faults(asked.runs, asked.seed, training.workers, training.places), asked.only)
    stops = _only(draw_stops(asked.stops, asked.seed), asked.only)
    workers = f"{training.workers} {training.name} workers"
    print(f"{workers}, {STEPS} steps, saved every {SAVE_EVERY}; seed {asked.seed}")
    kept = [_deadlines(asked.deadlines, asked.seed)] if asked.deadlines else []
    if faults or stops:
        with tempfile.TemporaryDirectory(prefix="undisturbed-") as folder:
            reference = training.undisturbed(Path(folder), asked.seed)
        kept += _disturbed(training, asked.seed, reference, faults, stops)
    print(f"load average {machine.load()} on {machine.describe()['cores']} cores")
    return 0 if all(kept) else 1


def _leave(signum: int, _: object) -> None:
    """End in good order: what runs must not outlive us."""
    print(f"ended by {signal.Signals(signum).name}", flush=True)
    sys.exit(128 + signum)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaigns.gasps", description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="trainings in which a rank kills itself [50]")
    parser.add_argument("--stops", type=int, default=0, help="trainings that are stopped by SIGTERM [0]")
    parser.add_argument("--deadlines", type=int, default=0, help="windows that run to their end [0]")
    parser.add_argument("--seed", type=int, default=1, help="of the faults and of the training [1]")
    parser.add_argument("--framework", choices=sorted(TRAININGS), default="torch", help="[torch]")
    parser.add_argument("--workers", type=int, help="of each training [torch 4, mindspore 2]")
    parser.add_argument(
        "--only", type=int, action="append", help="this run of the campaigns alone (repeatable)"
    )
    return parser.parse_args(argv)


def _only(drawn: Sequence[Drawn], numbers: Sequence[int] | None) -> Sequence[Drawn]:
    return [one for one in drawn if not numbers or one.number in numbers]


def _deadlines(windows: int, seed: int) -> bool:
    found = gasps_deadline.measure(windows, seed)
    print(gasps_table.summary_of_deadlines(found), flush=True)
    return all(one.exact for one in found)


def _disturbed(
    training: Training, seed: int, reference: Reference, faults: Sequence[Fault], stops: Sequence[Stop]
) -> list[bool]:
    """Both campaigns; whether each kept its promises."""

    def die(fault: Fault, folder: Path) -> Outcome:
        return gasps_run.run(training, fault, folder, seed, reference)

    def stop(moment: Stop, folder: Path) -> StopOutcome:
        return gasps_stop.run(training, moment, folder, seed, reference)

    kept = []
    if faults:
        print(gasps_table.heads(Outcome), flush=True)
        deaths = [_one(fault, die) for fault in faults]
        print(f"\n{gasps_table.summary(deaths)}", flush=True)
        kept.append(gasps_table.keeps(deaths))
    if stops:
        print(gasps_table.heads(StopOutcome), flush=True)
        ends = [_one(moment, stop) for moment in stops]
        print(f"\n{gasps_table.summary_of_stops(ends)}", flush=True)
        kept.append(not any(end.broken for end in ends))
    return kept


def _one(drawn: Drawn, run: Callable[[Drawn, Path], Judged]) -> Judged:
    """Run, print the row, keep the folder of a broken promise. What came too late is tried again."""
    for _ in range(_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=f"gasp-{drawn.number}-"))
        try:
            done = run(drawn, folder)
        except Survived:
            shutil.rmtree(folder)
            continue
        print(gasps_table.row(done, folder), flush=True)
        if not done.broken:
            shutil.rmtree(folder)
        return done
    raise SystemExit(f"run {drawn.number}: the training was over before it was disturbed, {_TRIES} times")


if __name__ == "__main__":
    sys.exit(main())
