"""``python -m benchmarks.campaigns.hostile --histories 500 --seed 1``: all that may happen to a training.

Ranks, the shells around them and faultrun itself are killed, runs are stopped
twice, requeued and started without their checkpoints, files are renamed,
linked, cut, removed and dated anew. Each rank keeps a ledger; the last start
of each history must end with 0. ``--keep`` holds a line a history and goes on
where it was cut. Ends with 1 when a promise was broken; what such a history
left is kept, and the table says where.
"""

import sys
from collections.abc import Sequence

from benchmarks.campaigns import engine
from benchmarks.campaigns.hostile_judge import broken
from benchmarks.campaigns.hostile_plan import History, draw
from benchmarks.campaigns.hostile_run import Told, run
from benchmarks.harness import machine

CAMPAIGN: engine.Campaign[History, Told] = engine.Campaign(
    name="hostile",
    cases="histories",
    run=run,
    judge=lambda _, told: broken(told, machine.crowding()),
    columns={"history": lambda history, _: history.told()},
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit code says whether every promise was kept."""
    parser = engine.options("hostile", __doc__, beside=2)
    return engine.main(CAMPAIGN, _drawn, parser, argv, many=500)


def _drawn(histories: int, seed: int) -> list[History]:
    return [draw(number, seed) for number in range(histories)]


if __name__ == "__main__":
    sys.exit(main())
