"""``python -m benchmarks.campaigns.kills --runs 50 --seed 1``: trainings one by one, each with a rank killed.

Ends with 1 when any run broke a promise; what such a run left is kept, and the table says where.
"""

import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.campaigns import engine
from benchmarks.campaigns.engine import Campaign, Row
from benchmarks.campaigns.kill_plan import SAVE_EVERY, Kill, plan
from benchmarks.campaigns.kill_run import Outcome, run, undisturbed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign that was asked for."""
    parser = engine.options("kills", __doc__)
    seed = parser.parse_known_args(argv)[0].seed
    with tempfile.TemporaryDirectory(prefix="undisturbed-") as folder:
        expected = undisturbed(Path(folder), seed)
    campaign: Campaign[Kill, Outcome] = Campaign(
        name="kills",
        cases="runs",
        run=partial(run, seed=seed, expected=expected),
        judge=lambda _, outcome: outcome.broken,
        columns={
            "rank": lambda kill, _: kill.rank,
            "step": lambda kill, _: kill.step,
            "when": lambda kill, _: kill.when.value,
            "after_s": lambda kill, _: kill.after_s,
            "way": lambda kill, _: kill.way.value,
            "resumed": lambda _, outcome: outcome.resumed,
            "lost": lambda _, outcome: outcome.lost,
            "pause_s": lambda _, outcome: outcome.pause_s,
        },
        summary=summary,
    )
    return engine.main(campaign, plan, parser, argv, many=50)


def summary(rows: Sequence[Row]) -> list[str]:
    """What the campaign proved, in a few lines."""
    pauses = [row["pause_s"] for row in rows if row["pause_s"] is not None]
    lost = max((row["lost"] for row in rows if row["resumed"] is not None), default=0)
    lines = [
        "promised are recovery at the first restart, exit code 0, no orphan, no step counted twice, every bit"
        " of the weights as if nothing had happened",
        f"steps lost: at most {lost}, saved every {SAVE_EVERY}",
    ]
    if pauses:
        spread = f"{min(pauses):.1f} to {max(pauses):.1f} s"
        lines.append(f"kill to first step: median {statistics.median(pauses):.1f} s, {spread}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
