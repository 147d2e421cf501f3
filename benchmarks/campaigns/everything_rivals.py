"""``python -m benchmarks.campaigns.everything_rivals --seed 1``: other launchers on the first hundred faults.

Of the same schedule, what they can be given: one node, DistributedDataParallel, a fault in a rank while it
trains. The script is the same without the SDK; it finds its newest whole save by itself, and saves as often.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.campaigns import engine, kept
from benchmarks.campaigns.everything_plan import AT_A_PLACE, Fault, Kind, Session, Way, When, draw
from benchmarks.campaigns.everything_run import run
from benchmarks.campaigns.everything_site import Site
from benchmarks.campaigns.promises import Row
from benchmarks.campaigns.stage import Node, own_mounts
from benchmarks.harness import launchers
from benchmarks.harness.netns import refused
from support.nodes.hosts import Network

_STARTS_S, _RECOVERS_S, _SHOWS_S = 180.0, 90.0, 0.3
_NOT_THEIRS = frozenset({Kind.DEVICE})
_OUTSIDE = frozenset({Kind.RANK, Kind.TWO, Kind.ALL})
_NAMES = ("torchrun, unshared store", "ft_launcher")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Faults of one run, each with its place there."""

    session: Session
    faults: tuple[tuple[int, Fault], ...]


class RivalSite(Site):
    """The training of a run under another launcher."""

    def __init__(self, session: Session, folder: Path, net: Network, name: str) -> None:
        super().__init__(session, folder, net)
        self._launcher = launchers.launcher(name)

    def start(self, node: Node) -> None:
        """As often as it ends."""
        program = self.job("finds")
        job = launchers.Job(workers=self.session.setting.ranks, program=program, restarts=1000)
        command = list(self._launcher.command(job))
        first = next(at for at, word in enumerate(command) if word.startswith("--"))
        command.insert(first, "--local-addr=127.0.0.1")  # nobody resolves the name of this host
        self.run(node, command, **self._launcher.environ)


def chosen(seed: int, first: int = 100) -> Iterator[Chosen]:
    """Of the first so many faults of the schedule."""
    number, left = 0, first
    while left > 0:
        session = draw(number, seed)
        own = [(place, fault) for place, fault in enumerate(session.faults) if fault.kind is not Kind.WELL]
        fit = tuple(one for one in own[:left] if _fits(one[1]))
        left -= len(own)
        number += 1
        if fit and session.setting.nodes == 1 and session.setting.code == "ddp":
            bare = replace(session, setting=replace(session.setting, way=Way.BARE))
            yield Chosen(session=bare, faults=fit)


def _fits(fault: Fault) -> bool:
    of_a_rank = fault.kind in _OUTSIDE or (fault.kind in AT_A_PLACE and fault.kind not in _NOT_THEIRS)
    return of_a_rank and fault.when is When.TRAINING


def rows_of(one: Chosen, name: str, seed: int, folder: Path) -> Iterator[Row]:
    """Give these faults to trainings under ``name``; they are held to the bits of their steps alone."""
    session = replace(one.session, faults=tuple(fault for _, fault in one.faults))
    for rows in run(session, 0, seed, folder, folder, partial(RivalSite, name=name)):
        for row in rows:
            if row["place"] >= 0:
                broken = {what: words for what, words in row["broken"].items() if what == "steps"}
                yield {"launcher": name, **row, "place": one.faults[row["place"]][0], "broken": broken}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing."""
    asked = read_options(argv)
    if refused():
        return engine.impossible(refused())
    own_mounts()
    until_s = time.monotonic() + asked.minutes * 60
    had = {(row["launcher"], row["session"], row["place"]) for row in kept.read(asked.keep, asked.seed)}
    for name in asked.launcher or _NAMES:
        if launchers.missing(name):
            if (name, -1, -1) not in had:
                missing = {"place": -1, "struck": "nobody", "missing": launchers.missing(name)}
                kept.add(asked.keep, asked.seed, {"launcher": name, "session": -1, "run": "-", **missing})
            continue
        for one in chosen(asked.seed):
            fit = tuple(fault for fault in one.faults if (name, one.session.number, fault[0]) not in had)
            left_out = asked.only and one.session.number not in asked.only
            if not fit or left_out or time.monotonic() > until_s:
                continue
            with tempfile.TemporaryDirectory(prefix="rival-") as folder:
                for row in rows_of(replace(one, faults=fit), name, asked.seed, Path(folder)):
                    print(json.dumps(row), flush=True)
                    kept.add(asked.keep, asked.seed, row)
    return 0


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """How many, and where the rows go."""
    parser = engine.options("everything_rivals", __doc__)
    parser.add_argument("--launcher", action="append", choices=_NAMES, help="this one alone (repeatable)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
