"""``python -m benchmarks.campaigns.starts --starts 100``: MindSpore's ranks meet at the built-in scheduler.

Each run is a few incarnations of real MindSpore workers that come late, die
before, in and after ``init()``, and at last end as scripts end. Ends with 1
when one run fell back to MindSpore's scheduler, added up wrongly, did not end
with 0 or left a process; what it left is kept, and the table says where.
"""

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import journal, machine
from benchmarks.harness.benchmark import NotMeasured
from benchmarks.harness.launched import ROOT, Launched
from benchmarks.harness.launchers import LOG_DIR

_RING = str(ROOT / "tests" / "support" / "mindspore_ring.py")
_SIZES = (2, 4, 1, 8)
_DEATHS = ("early", "meeting", "dies")
_MOST_STARTS = 3
_RUN_S = 600.0
_GONE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """``words`` says what happens in each incarnation; see ``tests/support/mindspore_ring.py``."""

    number: int
    workers: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``formed_s``: last registration to last ``init()``; ``leaving_s``: first end to last, at the end."""

    planned: Planned
    broken: tuple[str, ...]
    formed_s: tuple[float, ...]
    leaving_s: float
    took_s: float


def plan(starts: int, seed: int) -> list[Planned]:
    """Runs with ``starts`` incarnations in all; sizes take turns, the rest is chance."""
    chance = random.Random(seed)
    runs: list[Planned] = []
    while starts > 0:
        workers = _SIZES[len(runs) % len(_SIZES)]
        count = min(starts, chance.randint(1, _MOST_STARTS))
        deaths = [f"{chance.choice(_DEATHS)}:{chance.randrange(workers)}" for _ in range(count - 1)]
        last = chance.choice(("-", f"late:{chance.randrange(workers)}"))
        runs.append(Planned(number=len(runs) + 1, workers=workers, words=(*deaths, last)))
        starts -= count
    return runs


def carry_out(planned: Planned, folder: Path) -> Outcome:
    """One run of faultrun, judged by its journal and its workers' logs."""
    began_s = time.monotonic()
    options = (f"--worker_num={planned.workers}", f"--log_dir={LOG_DIR}", "--max_restarts=99", "--backoff=0s")
    command = (sys.executable, "-m", "faultrun", *options, _RING, *planned.words)
    with Launched(command, folder, {}) as run:
        try:
            code = run.wait_for_the_end(within_s=_RUN_S)
        except NotMeasured as late:
            return _outcome(planned, folder, [str(late)], began_s)
        trouble = [] if code == 0 else [f"exit code {code}"]
        if run.wait_until_gone(within_s=_GONE_S):
            trouble.append("processes were left")
    return _outcome(planned, folder, trouble, began_s)


def _outcome(planned: Planned, folder: Path, trouble: list[str], began_s: float) -> Outcome:
    lines = journal.read(folder)
    trouble += [f"fallback: {line['why']}" for line in journal.of(lines, "SchedulerFailed")]
    if any(action.get("native_scheduler") for line in lines for action in line["actions"]):
        trouble.append("MindSpore's scheduler took over")
    formed = journal.of(lines, "ClusterFormed")
    meant = {
        life for life, word in enumerate(planned.words) if word.partition(":")[0] not in ("early", "meeting")
    }
    if {line["incarnation"] for line in formed} != meant:
        trouble.append(f"formed in {[line['incarnation'] for line in formed]}, meant {sorted(meant)}")
    last, total = len(planned.words) - 1, planned.workers * (planned.workers + 1) // 2
    for rank in range(planned.workers):
        log = folder / LOG_DIR / f"incarnation_{last}" / f"worker_{rank}.log"
        said = log.read_text(errors="replace") if log.exists() else ""
        if f"rank {rank} of {planned.workers}: sum {total}\n" not in said:
            trouble.append(f"rank {rank} did not add up to {total}")
    ends = [line["run_s"] for line in journal.of(lines, "WorkerExit") if line["incarnation"] == last]
    return Outcome(
        planned=planned,
        broken=tuple(trouble),
        formed_s=tuple(line["took_s"] for line in formed),
        leaving_s=max(ends) - min(ends) if ends else 0.0,
        took_s=time.monotonic() - began_s,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaigns.starts", description=__doc__)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from-run", type=int, default=1, help="go on with this run of the plan")
    parser.add_argument("--within-s", type=float, default=float("inf"), help="begin no run after that")
    asked = parser.parse_args(argv)
    runs = [run for run in plan(asked.starts, asked.seed) if run.number >= asked.from_run]
    print(f"{sum(len(run.words) for run in runs)} starts in {len(runs)} runs, seed {asked.seed}")
    print(
        "\n| run | workers | what happens | formed in | took | kept |\n|---|---|---|---|---|---|", flush=True
    )
    outcomes: list[Outcome] = []
    until_s = time.monotonic() + asked.within_s
    for planned in runs:
        if time.monotonic() > until_s:
            print(f"stopped before run {planned.number}")
            break
        folder = Path(tempfile.mkdtemp(prefix=f"start-{planned.number}-"))
        outcomes.append(carry_out(planned, folder))
        print(_row(outcomes[-1], folder), flush=True)
        if not outcomes[-1].broken:
            shutil.rmtree(folder)
    print(f"\n{_summary(outcomes)}")
    return 1 if any(outcome.broken for outcome in outcomes) else 0


def _row(outcome: Outcome, folder: Path) -> str:
    planned = outcome.planned
    formed = " ".join(f"{took_s:.2f}" for took_s in outcome.formed_s)
    verdict = f"**no**: {'; '.join(outcome.broken)} (see {folder})" if outcome.broken else "yes"
    cells = (
        planned.number,
        planned.workers,
        " ".join(planned.words),
        f"{formed} s",
        f"{outcome.took_s:.1f} s",
    )
    return f"| {' | '.join(map(str, cells))} | {verdict} |"


def _summary(outcomes: Sequence[Outcome]) -> str:
    starts = sum(len(outcome.planned.words) for outcome in outcomes)
    broken = sum(bool(outcome.broken) for outcome in outcomes)
    formed = sorted(took_s for outcome in outcomes for took_s in outcome.formed_s) or [0.0]
    leaving = max((outcome.leaving_s for outcome in outcomes), default=0.0)
    return (
        f"{starts} starts, {broken} of {len(outcomes)} runs broken; the cluster formed in"
        f" {statistics.median(formed):.2f} s (median of {len(formed)}), at most {formed[-1]:.2f} s;"
        f" all ranks ended within {leaving:.1f} s of the first\nload average {machine.load()}"
    )


if __name__ == "__main__":
    sys.exit(main())
