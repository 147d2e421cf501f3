"""``python -m benchmarks.campaigns.gasps --runs 50 --stops 25``: trainings that lose a rank, or are stopped.

In each of ``--runs`` one rank kills itself at a moment drawn by chance; in
each of ``--stops`` faultrun is told to stop by SIGTERM, and started again.
``--deadlines`` grace windows run to their end with workers that do not
listen. Ends with 1 when a promise was broken; what such a run left is kept,
and the table says where.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.campaigns import engine, gasps_deadline, gasps_run, gasps_table
from benchmarks.campaigns.engine import Campaign, of_case, of_seen
from benchmarks.campaigns.gasps_evidence import Reference
from benchmarks.campaigns.gasps_job import TRAININGS, Training
from benchmarks.campaigns.gasps_plan import SAVE_EVERY, STEPS, Fault, Stop, draw_faults, draw_stops
from benchmarks.campaigns.gasps_run import Outcome, StopOutcome


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaigns that were asked for."""
    asked = _parse(argv)
    engine.ends_with_us()
    training = TRAININGS[asked.framework]
    if asked.workers:
        training = replace(training, workers=asked.workers)
    workers = f"{training.workers} {training.name} workers"
    print(f"{workers}, {STEPS} steps, saved every {SAVE_EVERY}; seed {asked.seed}")
    kept = [_deadlines(asked.deadlines, asked.seed)] if asked.deadlines else []
    if not (asked.runs or asked.stops):
        return 0 if all(kept) else 1
    with tempfile.TemporaryDirectory(prefix="undisturbed-") as folder:
        reference = training.undisturbed(Path(folder), asked.seed)
    drawn = draw_faults(asked.runs, asked.seed, training.workers, training.places)
    deaths = _of_deaths(training, asked.seed, reference).carry_out(drawn, asked) if drawn else []
    moments = draw_stops(asked.stops, asked.seed)
    stops = _of_stops(training, asked.seed, reference).carry_out(moments, asked) if moments else []
    return engine.exit_code([*deaths, *stops], also=all(kept) and gasps_table.loses_little(deaths))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = engine.options("gasps", __doc__)
    parser.add_argument("--runs", type=int, default=50, help="trainings in which a rank kills itself [50]")
    parser.add_argument("--stops", type=int, default=0, help="trainings that are stopped by SIGTERM [0]")
    parser.add_argument("--deadlines", type=int, default=0, help="windows that run to their end [0]")
    parser.add_argument("--framework", choices=sorted(TRAININGS), default="torch", help="[torch]")
    parser.add_argument("--workers", type=int, help="of each training [torch 4, mindspore 2]")
    return parser.parse_args(argv)


def _deadlines(windows: int, seed: int) -> bool:
    found = gasps_deadline.measure(windows, seed)
    print(gasps_table.summary_of_deadlines(found), flush=True)
    return all(one.exact for one in found)


def _of_deaths(training: Training, seed: int, reference: Reference) -> Campaign[Fault, Outcome]:
    return Campaign(
        name="deaths",
        cases="deaths",
        run=partial(gasps_run.run, training, seed=seed, reference=reference),
        judge=lambda _, outcome: outcome.broken,
        columns={
            **of_case("rank", "step", "place"),
            **of_seen("where", "newest", "resumed", "lost", "saved", "drained_s", "pause_s"),
        },
        summary=gasps_table.summary,
    )


def _of_stops(training: Training, seed: int, reference: Reference) -> Campaign[Stop, StopOutcome]:
    return Campaign(
        name="stops",
        cases="stops",
        run=partial(gasps_run.run_stop, training, seed=seed, reference=reference),
        judge=lambda _, outcome: outcome.broken,
        columns={**of_case("step", "after_s"), **of_seen("newest", "resumed", "lost", "saved", "ended_s")},
        summary=gasps_table.summary_of_stops,
    )


if __name__ == "__main__":
    sys.exit(main())
