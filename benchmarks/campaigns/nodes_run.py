"""One run over several nodes from its start to its end: each fault in its phase, and what was seen of it."""

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.campaigns import traces
from benchmarks.campaigns.broken_runs import kept_if_broken
from benchmarks.campaigns.nodes_judge import (
    lost_steps,
    unequal_ends,
    unnamed_waits,
    waits_said,
    wrong_resumes,
)
from benchmarks.campaigns.nodes_plan import Fault, Kind, Session, When
from benchmarks.campaigns.nodes_site import Site, site
from benchmarks.campaigns.nodes_strike import Striker
from benchmarks.campaigns.promises import Broken, Row, add
from benchmarks.harness import machine
from benchmarks.harness.procfs import environment
from benchmarks.jobs.nodes import boot_s

_STARTS_S = 120.0
_RECOVERS_S = 120.0
_PHASE_S = 6.0
_ENDS_S = 90.0
_GONE_S = 3.0
_LOOK_S = 0.02
_SPARE = "spare of run"
_SHOWS_S = 0.3
"""So soon every fault has ended what it ends at once."""


def rounds(faults: Sequence[tuple[int, Fault]]) -> Iterator[list[tuple[int, Fault]]]:
    """Faults, each with its place, together with those that meet their recovery."""
    one: list[tuple[int, Fault]] = []
    for place, fault in faults:
        if fault.when is When.TRAINING and one:
            yield one
            one = []
        one.append((place, fault))
    if one:
        yield one


class Passage:
    """A run under way. ``rows`` are what it gave: one for each fault, and one for its end."""

    def __init__(self, site: Site, seed: int, first: int) -> None:
        self._site = site
        self._began_s = boot_s()
        self._chance = random.Random(f"{seed}:{site.session.number}:{first}")
        self._striker = Striker(site, self._chance)
        self._told_apart = 0
        self._alone = 0
        self._filled: set[str] = set()
        """Nodes whose disk was full at times: what they wrote then may be cut."""

        self.over = False

    def starts(self) -> list[str]:
        """Begin; what is wrong with that."""
        self._site.begin()
        trains = self._site.wait(lambda: self._trained(0.0) is not None and self._site.whole, _STARTS_S)
        return [] if trains else ["the run did not begin"]

    def through(self, faults: Sequence[tuple[int, Fault]]) -> list[Row]:
        """Faults of which all but the first meet the recovery of the one before; a row for each."""
        rows: list[Row] = []
        since_life = self._site.ledgers.newest_life()
        for place, fault in faults:
            self._await(fault)
            at_s, life = boot_s(), self._site.ledgers.newest_life()
            struck = self._striker.strike(fault)
            if fault.kind is Kind.LOG_DISK:
                self._filled.add(struck.partition(" ")[0])
            rows.append(
                {
                    "place": place,
                    "kind": fault.kind.value,
                    "struck": struck or "nobody",
                    "when": fault.when.value,
                    "at_s": at_s,
                    "life": life,
                }
            )
        settled = self._settle()
        wrong = self._broken(rows[0]["at_s"], since_life)
        if not settled and not self._site.ended:
            wrong.recovery.append(f"no training on all nodes within {_RECOVERS_S:g} s")
            self.over = True
        if self._site.ended:
            self.over = True
            wrong.codes += unequal_ends(self._site.codes, traces.late(self._site), None)
        found = [self._finished(row, wrong if row is rows[-1] else Broken()) for row in rows]
        return [*({**row, "ended": None} for row in found[:-1]), found[-1]]

    def ends(self) -> Row:
        """End the run as planned; a row about it."""
        session = self._site.session
        self._site.wait(self._all_are_here, _STARTS_S)
        at_s, life = boot_s(), self._site.ledgers.newest_life()
        if session.stopped:
            for node in self._site.nodes.values():
                if node.process is not None:
                    node.process.terminate()
        else:
            (self._site.folder / "finish").touch()
        self._site.wait(lambda: False, _ENDS_S)
        wrong = Broken()
        wrong.codes += unequal_ends(self._site.codes, traces.late(self._site), 143 if session.stopped else 0)
        kind = "stop of all" if session.stopped else "the end"
        row = {"place": -1, "kind": kind, "struck": "all", "when": "training", "at_s": at_s, "life": life}
        return self._finished(row, wrong)

    def _all_are_here(self) -> bool:
        """Whether every supervisor is the run's: one that comes when the run is over begins another."""
        seats = {one.node for one in self._site.census.newest()}
        nodes = self._site.nodes.values()
        return all(node.name in seats or any(_SPARE in line for _, line in node.here()) for node in nodes)

    def last_words(self) -> Broken:
        """What only the whole run shows: journals, and what is left of it."""
        wrong = traces.at_the_end(self._site, self._filled)
        wrong.together += self._site.census.overlaps()
        return wrong

    def keep(self, folder: Path) -> None:
        """Copy what there is to see of it."""
        traces.keep(self._site, self._began_s, folder)

    def _trained(self, since_s: float) -> float | None:
        return self._site.ledgers.trains_since(since_s, self._site.ranks)

    def _await(self, fault: Fault) -> None:
        """The phase that the fault is for, as the kernel shows it; what changed nothing has no phases."""
        census = self._site.census
        ranks = census.newest()
        life = ranks[0].life
        match fault.when:
            case When.TRAINING | When.AT_ONCE:
                pass
            case When.DRAINING:
                self._site.wait(lambda: not all(one.lives() for one in ranks), _PHASE_S)
            case When.PREPARING:
                self._site.wait(lambda: not any(one.lives() for one in ranks), _PHASE_S)
            case When.STARTING:
                self._site.wait(lambda: any(one.life > life for one in census.lives), _PHASE_S)
        until_s = boot_s() + fault.after_s
        self._site.wait(lambda: boot_s() >= until_s, fault.after_s + 1.0)

    def _settle(self) -> bool:
        """Wait until nothing is broken any more, and every rank has done a step since then."""
        since_s = boot_s() + _SHOWS_S

        def settled() -> bool:
            nonlocal since_s
            if not self._site.whole:
                since_s = boot_s()
                return False
            return self._trained(since_s) is not None

        return self._site.wait(settled, _RECOVERS_S)

    def _broken(self, since_s: float, since_life: int) -> Broken:
        ledgers, census = self._site.ledgers, self._site.census
        apart = census.together[self._told_apart :]
        self._told_apart += len(apart)
        said = sorted(line for node in self._site.nodes.values() for line in node.said)
        wrong = Broken()
        wrong.resumes += wrong_resumes(ledgers.lines, since_life)
        wrong.together += [words for words in apart if words.startswith("rank")]
        wrong.orphans += [words for words in apart if not words.startswith("rank")]
        wrong.orphans += [f"{one.words()} lives" for one in census.older_than(ledgers.newest_life())]
        wrong.orphans += self._strays(ledgers.newest_life())
        wrong.waits += unnamed_waits(ledgers.lines, census.lives, said, since_s, boot_s())
        return wrong

    def _strays(self, life: int) -> list[str]:
        """By the environment of every process on the hosts: those of an older incarnation."""
        hosts = [self._site.net[name] for name in self._site.nodes]
        found = [
            (host, pid, environment(pid).get("FAULTRUN_INCARNATION")) for host in hosts for pid in host.pids
        ]
        return [
            f"{traces.named(pid)} of incarnation {of} on {host.name}"
            for host, pid, of in found
            if of is not None and int(of) < life
        ]

    def _finished(self, row: Row, wrong: Broken) -> Row:
        ledgers, session = self._site.ledgers, self._site.session
        life, at_s = ledgers.newest_life(), row["at_s"]
        trained_s = self._trained(at_s) if life > row["life"] else None
        said = [line for node in self._site.nodes.values() for line in node.said]
        alone = [f"{node.name} {code}" for node in self._site.nodes.values() for code in node.alone]
        fresh, self._alone = alone[self._alone :], len(alone)
        return {
            "session": session.number,
            "run": session.told(),
            **row,
            "at_s": round(at_s - self._began_s, 2),
            "lives": life - row["life"],
            "recovery_s": None if trained_s is None else round(trained_s - at_s, 2),
            "lost": lost_steps(ledgers.lines, life) if life > row["life"] else None,
            "waits": waits_said(said, at_s),
            "alone": fresh,
            "ended": sorted(set(self._site.codes.values())) if self._site.ended else None,
            "load": machine.load(),
            "broken": wrong.by_name(),
        }


def run(session: Session, first: int, seed: int, folder: Path, kept: Path) -> Iterator[list[Row]]:
    """Give the faults of ``session`` from the ``first`` on to runs, until all were had; rows as they come."""
    left = [(place, fault) for place, fault in enumerate(session.faults) if place >= first]
    attempt = 0
    while left:
        own = folder / f"run_{session.number}_{attempt}"
        own.mkdir(parents=True)
        with site(session, own) as one:
            passage = Passage(one, seed, left[0][0])
            rows: list[Row] = []
            wrong = passage.starts()
            for faults in rounds(left) if not wrong else ():
                rows = passage.through(faults)
                left = left[len(faults) :]
                if passage.over:
                    break
                yield kept_if_broken(rows, kept, passage.keep)
            if not passage.over and not wrong:
                rows = [passage.ends()]
            add(rows, passage.last_words())
            if wrong:
                rows = [_unbegun(session, left[0][0], wrong)]
                left = left[1:]
            yield kept_if_broken(rows, kept, passage.keep)
        shutil.rmtree(own, ignore_errors=True)
        attempt += 1


def _unbegun(session: Session, place: int, wrong: list[str]) -> Row:
    about = {"kind": "the start", "struck": "nobody", "when": "-", "at_s": 0.0, "life": -1, "lives": 0}
    none: Row = {
        "load": machine.load(),
        "recovery_s": None,
        "lost": None,
        "waits": [],
        "alone": [],
        "ended": None,
    }
    return {
        "session": session.number,
        "run": session.told(),
        "place": place,
        **about,
        **none,
        "broken": {"recovery": wrong},
    }
