"""``python -m benchmarks.campaigns.everything --faults 1000 --seed 1``: every fault, over every training.

One node and three (network namespaces, a real etcd of three members); torch with DistributedDataParallel and
fully_shard, MindSpore; with the SDK and without, with standbys, with survivors that stay, with fewer ranks.
``--preset nodes``: faults over three nodes and a spare. ``--preset stay``: ranks killed at exact places of a
step where the others keep their processes; ``phases``: another in each phase of the repair. ``--keep`` holds
a line a fault and goes on where it was cut. Ends with 1 when a promise was broken; what such a run left is
below ``--see``.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.campaigns import engine
from benchmarks.campaigns.everything_page import HEAD, faults, shown, summary, write
from benchmarks.campaigns.everything_plan import MEMBERS, Session, rounds
from benchmarks.campaigns.everything_presets import PRESETS
from benchmarks.campaigns.everything_rows import unbegun
from benchmarks.campaigns.everything_run import Passage
from benchmarks.campaigns.everything_site import NODES, Site
from benchmarks.campaigns.promises import Row, add, kept_if_broken
from benchmarks.campaigns.stage import own_mounts
from benchmarks.harness import kept
from benchmarks.harness.netns import refused
from support.nodes.hosts import network


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing; the exit code says whether every promise was kept."""
    asked = read_options(argv)
    if asked.only_page:
        write(asked.page, asked.keep, asked.preset, asked.seed, asked.faults)
        return 0
    if refused():
        return engine.impossible(refused())
    own_mounts()
    rows = kept.read(asked.keep, asked.seed)
    see = asked.see or Path(tempfile.gettempdir(), f"{asked.preset}-see-{os.getpid()}")
    print(f"{asked.faults} faults, seed {asked.seed}; {len(faults(rows))} done\n\n{HEAD}", flush=True)
    with tempfile.TemporaryDirectory(prefix=f"{asked.preset}-") as folder:
        for row in _more(rows, asked, Path(folder), see):
            print(shown(row), flush=True)
            kept.add(asked.keep, asked.seed, row)
    print(f"\n{summary(rows)}")
    write(asked.page, asked.keep, asked.preset, asked.seed, asked.faults)
    return 1 if any(row["broken"] for row in rows) else 0


def _more(rows: list[Row], asked: argparse.Namespace, folder: Path, see: Path) -> Iterator[Row]:
    """Go on behind ``rows``, and add to them, until so many faults were had, or the time is over."""
    until_s = time.monotonic() + asked.minutes * 60
    number = asked.only[0] if asked.only else 0
    while len(faults(rows)) < asked.faults and time.monotonic() < until_s:
        session = PRESETS[asked.preset].draw(number, asked.seed)
        if session is None:
            return
        had = [row["place"] for row in rows if row["session"] == number]
        first = len(session.faults) if {-1, len(session.faults) - 1} & set(had) else max(had, default=-1) + 1
        for fresh in run(session, first, asked.seed, folder, see):
            rows += fresh
            yield from fresh
            if len(faults(rows)) >= asked.faults or time.monotonic() > until_s:
                return
        if asked.only:
            return
        number += 1


def run(session: Session, first: int, seed: int, folder: Path, see: Path) -> Iterator[list[Row]]:
    """Give the faults of ``session`` from the ``first`` on to runs, until all were had; rows as they come."""
    left = [(place, fault) for place, fault in enumerate(session.faults) if place >= first]
    attempt = 0
    setting = session.setting
    names = (*NODES[setting.way], *MEMBERS) if setting.nodes > 1 else ("a",)
    while left:
        own = folder / f"run_{session.number}_{attempt}"
        own.mkdir(parents=True)
        with network(*names) as net:
            site = Site(session, own, net)
            try:
                passage = Passage(site, seed, left[0][0])
                wrong = passage.starts()
                rows: list[Row] = []
                for together in rounds(left) if not wrong else ():
                    rows = passage.through(together)
                    left = left[len(together) :]
                    if passage.over:
                        break
                    yield kept_if_broken(rows, see, passage.keep)
                if not passage.over and not wrong:
                    rows = [passage.ends()]
                if wrong:
                    rows, left = [unbegun(session, left[0][0], wrong)], left[1:]
                add(rows, passage.last_words())
                yield kept_if_broken(rows, see, passage.keep)
            finally:
                site.close()
        shutil.rmtree(own, ignore_errors=True)
        attempt += 1


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """How many, of which campaign, and where the rows go."""
    parser = engine.options("everything", __doc__)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--preset", choices=tuple(PRESETS), default="thousand", help="[thousand]")
    parser.add_argument("--only_page", action="store_true", help="run nothing, write the page anew")
    parser.add_argument("--see", type=Path, default=None, help="where runs are kept that broke a promise")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
