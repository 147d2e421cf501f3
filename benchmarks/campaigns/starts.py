"""``python -m benchmarks.campaigns.starts --starts 100``: MindSpore's ranks meet at the built-in scheduler.

Each run is a few incarnations of real MindSpore workers that come late, die
before, in and after ``init()``, and at last end as scripts end. Ends with 1
when one run fell back to MindSpore's scheduler, added up wrongly, did not end
with 0 or left a process; what it left is kept, and the table says where.
"""

import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.campaigns import engine
from benchmarks.campaigns.engine import Campaign, Row, of_case, of_seen
from benchmarks.harness import journal
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

    broken: tuple[str, ...]
    formed_s: tuple[float, ...]
    leaving_s: float


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
    options = (f"--worker_num={planned.workers}", f"--log_dir={LOG_DIR}", "--max_restarts=99", "--backoff=0s")
    command = (sys.executable, "-m", "faultrun", *options, _RING, *planned.words)
    with Launched(command, folder, {}) as run:
        try:
            code = run.wait_for_the_end(within_s=_RUN_S)
        except NotMeasured as late:
            return _outcome(planned, folder, [str(late)])
        trouble = [] if code == 0 else [f"exit code {code}"]
        if run.wait_until_gone(within_s=_GONE_S):
            trouble.append("processes were left")
    return _outcome(planned, folder, trouble)


def _outcome(planned: Planned, folder: Path, trouble: list[str]) -> Outcome:
    lines = journal.read(folder)
    trouble += [f"fallback: {line['why']}" for line in journal.of(lines, "SchedulerFailed")]
    if any(action.get("native_scheduler") for line in lines for action in line["actions"]):
        trouble.append("MindSpore's scheduler took over")
    formed = journal.of(lines, "ClusterFormed")
    deaths = enumerate(word.partition(":")[0] for word in planned.words)
    meant = {life for life, death in deaths if death not in ("early", "meeting")}
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
        broken=tuple(trouble),
        formed_s=tuple(line["took_s"] for line in formed),
        leaving_s=max(ends) - min(ends) if ends else 0.0,
    )


def summary(rows: Sequence[Row]) -> list[str]:
    """How soon clusters formed, and how far apart ranks ended."""
    starts = sum(len(row["words"]) for row in rows)
    formed = sorted(took_s for row in rows for took_s in row["formed"] or ()) or [0.0]
    leaving = max((row["leaving_s"] or 0.0 for row in rows), default=0.0)
    return [
        f"{starts} starts; the cluster formed in {statistics.median(formed):.2f} s (median of"
        f" {len(formed)}), at most {formed[-1]:.2f} s; all ranks ended within {leaving:.1f} s of the first"
    ]


CAMPAIGN: Campaign[Planned, Outcome] = Campaign(
    name="starts",
    cases="starts",
    run=carry_out,
    judge=lambda _, outcome: outcome.broken,
    columns={
        **of_case("workers", "words"),
        "formed": lambda _, outcome: outcome.formed_s,
        **of_seen("leaving_s"),
    },
    summary=summary,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign that was asked for."""
    return engine.main(CAMPAIGN, plan, engine.options("starts", __doc__), argv, many=100)


if __name__ == "__main__":
    sys.exit(main())
