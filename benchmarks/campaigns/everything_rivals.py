"""``python -m benchmarks.campaigns.everything_rivals --seed 1``: other launchers on the first hundred faults.

Of the same schedule, what they can be given: one node, DistributedDataParallel, a fault in a rank while it
trains. The script is the same without the SDK; it finds its newest whole save by itself, and saves as often.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.campaigns import engine, kept
from benchmarks.campaigns.everything_judge import Steps, lost_steps
from benchmarks.campaigns.everything_law import law_of
from benchmarks.campaigns.everything_plan import AT_A_PLACE, HANGS, Fault, Kind, Session, Way, When, draw
from benchmarks.campaigns.everything_site import Site
from benchmarks.campaigns.everything_strike import Striker
from benchmarks.campaigns.promises import Row
from benchmarks.campaigns.stage import Node, own_mounts
from benchmarks.harness import launchers, machine
from benchmarks.harness.netns import refused
from benchmarks.jobs.everything_notes import boot_s
from support.nodes.hosts import Network, network

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


def run(one: Chosen, name: str, seed: int, folder: Path) -> Iterator[Row]:
    """Give these faults to trainings under ``name``, a new one when one does not come back."""
    left = list(one.faults)
    while left:
        own = folder / f"{one.session.number}_{len(left)}"
        own.mkdir()
        with network("a") as net:
            site = RivalSite(one.session, own, net, name)
            try:
                site.begin()
                begun = _trains(site, 0.0, _STARTS_S)
                striker = Striker(site, random.Random(f"{seed}:{one.session.number}"))
                judge = Steps(law_of(one.session.setting), one.session.setting.ranks)
                while left:
                    row = _struck(site, striker, judge, *left.pop(0)) if begun else _nothing(left.pop(0)[0])
                    yield {
                        "launcher": name,
                        "session": one.session.number,
                        "run": one.session.setting.name,
                    } | row
                    if not begun or row["over"]:
                        break
            finally:
                site.close()
        shutil.rmtree(own, ignore_errors=True)


def _trains(site: Site, since_s: float, within_s: float) -> bool:
    return site.wait(lambda: site.steps.trains_since(since_s) is not None, within_s)


def _struck(site: Site, striker: Striker, judge: Steps, place: int, fault: Fault) -> Row:
    until_s = boot_s() + fault.after_s
    site.wait(lambda: boot_s() >= until_s, fault.after_s + 1.0)
    life, load, seen = site.steps.newest_life(), machine.load(), len(site.steps.lines)
    struck = striker.strike(fault)
    since_s = boot_s() + _SHOWS_S
    back = _trains(site, since_s, _RECOVERS_S)
    now = site.steps.newest_life()
    trained_s = site.steps.trains_since(struck.at_s) if now > life and back else None
    lost = lost_steps(site.steps.lines, life, now) if now > life else 0
    return {
        "place": place,
        "kind": fault.kind.value,
        "struck": struck.whom or "nobody",
        "recovery_s": None if trained_s is None else round(trained_s - struck.at_s, 2),
        "lost": lost,
        "way": "cold restart" if trained_s else "went on by itself" if back else "did not come back",
        "over": not back,
        "noticed": fault.kind not in HANGS or back,
        "load": load,
        "broken": {} if not (wrong := judge.wrong(site.steps.lines[seen:])) else {"steps": wrong},
    }


def _nothing(place: int) -> Row:
    about = {"place": place, "kind": "the start", "struck": "nobody", "recovery_s": None, "lost": 0}
    return {**about, "way": "-", "over": True, "load": machine.load(), "broken": {}}


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
                missing = {**_nothing(-1), "missing": launchers.missing(name)}
                kept.add(asked.keep, asked.seed, {"launcher": name, "session": -1, "run": "-", **missing})
            continue
        for one in chosen(asked.seed):
            fit = tuple(fault for fault in one.faults if (name, one.session.number, fault[0]) not in had)
            left_out = asked.only and one.session.number not in asked.only
            if not fit or left_out or time.monotonic() > until_s:
                continue
            with tempfile.TemporaryDirectory(prefix="rival-") as folder:
                for row in run(replace(one, faults=fit), name, asked.seed, Path(folder)):
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
