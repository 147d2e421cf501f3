"""``python -m benchmarks.campaigns.nodes --faults 300 --seed 1``: random faults over three nodes and a spare.

Runs of three nodes, a spare and an etcd of three members, each of them on a host of its own; what is lost
comes back as on a platform. Each fault is drawn from the seed: its kind, whom it strikes, and in which phase,
also of the recovery from the one before. ``--keep`` holds a line a fault and goes on where it was cut. Ends
with 1 when a promise was broken; what such a run left is below ``--see``.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.campaigns import kept
from benchmarks.campaigns.nodes_page import HEAD, faults, page, shown, summary
from benchmarks.campaigns.nodes_plan import LEASE_S, draw
from benchmarks.campaigns.nodes_run import run
from benchmarks.campaigns.nodes_site import own_mounts
from benchmarks.campaigns.promises import Row
from benchmarks.harness.netns import refused

_NOT_POSSIBLE = 77


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit code says whether every promise was kept."""
    asked = read_options(argv)
    if refused():
        print(f"not possible here: {refused()}", file=sys.stderr)
        return _NOT_POSSIBLE
    own_mounts()
    rows = kept.read(asked.keep, asked.seed)
    see = asked.see or Path(tempfile.gettempdir(), f"nodes-see-{os.getpid()}")
    print(f"{asked.faults} faults, seed {asked.seed}; {len(faults(rows))} done; lease {LEASE_S} s\n")
    print(HEAD)
    with tempfile.TemporaryDirectory(prefix="nodes-") as folder:
        for row in _more(rows, asked.faults, asked.seed, Path(folder), see):
            print(shown(row), flush=True)
            kept.add(asked.keep, [{"seed": asked.seed, **row}])
    print(f"\n{summary(rows)}")
    if asked.page is not None:
        asked.page.write_text(page(rows, asked.seed), encoding="utf-8")
    return 1 if any(row["broken"] for row in rows) else 0


def _more(rows: list[Row], wanted: int, seed: int, folder: Path, see: Path) -> Iterator[Row]:
    """Go on behind ``rows``, and add to them, until so many faults were had."""
    number = max((row["session"] for row in rows), default=0)
    while len(faults(rows)) < wanted:
        session = draw(number, seed)
        had = [row["place"] for row in rows if row["session"] == number]
        for fresh in run(session, max(had, default=-1) + 1, seed, folder, see):
            rows += fresh
            yield from fresh
            if len(faults(rows)) >= wanted:
                return
        number += 1


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """How many, and where the rows go."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaigns.nodes", description=__doc__)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=None, help="a file of rows, to go on from")
    parser.add_argument("--page", type=Path, default=None, help="where the result is written")
    parser.add_argument("--see", type=Path, default=None, help="where runs are kept that broke a promise")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
