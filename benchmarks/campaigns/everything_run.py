"""One run, from its start to its end: each fault in its phase, and what came of it."""

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.campaigns import traces
from benchmarks.campaigns.everything_judge import (
    Cost,
    Line,
    Steps,
    began_anew,
    deserters,
    grows,
    kept_by,
    out_of_step,
    perhaps_kept,
    ran_on,
    recovered_otherwise,
    saved_twice,
    too_cold,
    unsaid,
)
from benchmarks.campaigns.everything_law import EXACT_STEPS, law_of
from benchmarks.campaigns.everything_plan import ENDS, HANG_S, HANGS, Fault, Kind, Way, When, is_ordered
from benchmarks.campaigns.everything_presets import HEALS_S, REJOIN_S
from benchmarks.campaigns.everything_rows import finished, row_of
from benchmarks.campaigns.everything_site import Site
from benchmarks.campaigns.everything_strike import Striker, Struck
from benchmarks.campaigns.judge_nodes import unequal_ends, unnamed_waits
from benchmarks.campaigns.ledgers import Life
from benchmarks.campaigns.promises import Broken, Row
from benchmarks.harness.procfs import environment
from benchmarks.jobs.everything_notes import boot_s

_STARTS_S, _RECOVERS_S, _ENDS_S, _GROWS_S = 180.0, 150.0, 90.0, 60.0
_PHASE_S, _GONE_S, _SHOWS_S, _LOOK_S = 6.0, 5.0, 0.3, 0.02
_READY_S, _SURELY_READY_S = 25.0, 400.0
"""So long standbys are waited for, and where all restarts have to be warm."""

_EMPTY_S = 20.0
"""Within so much the others train on, if they do."""

_SPARE = "spare of run"
_CANNOT_START = 71
_LAST_LINES, _STEPS_LEFT = 100, 800


class Passage:
    """A run under way."""

    def __init__(self, site: Site, seed: int, first: int) -> None:
        self._site, self._setting = site, site.session.setting
        self._chance = random.Random(f"{seed}:{site.session.number}:{first}")
        self._striker = Striker(site, self._chance)
        self._began_s = boot_s()
        self._judge = Steps(law_of(self._setting), self._setting.ranks)
        self._judged = self._apart = self._stuck = 0
        self._known: set[str] = set()
        self._filled: set[str] = set()
        self._costs: list[Cost] = []
        self._armed: list[tuple[int, Fault, int]] = []
        self.over = False

    def starts(self) -> list[str]:
        """Begin, up to the first save; what is wrong with that."""
        self._site.begin()
        begun = self._site.wait(lambda: self._site.steps.has_saved and self._site.whole, _STARTS_S)
        return [] if begun else [f"the run did not begin; it said: {self._last_words()}"]

    def through(self, faults: Sequence[tuple[int, Fault]]) -> list[Row]:
        """Faults of which all but the first meet what the one before set off; a row for each."""
        site, since_life = self._site, self._site.steps.newest_life()
        before = site.census.newest()
        rows, struck = self._strike_all(faults)
        settled = self._settle()
        for place, fault, order in self._armed:
            rows.append(self._row_of_armed(place, fault, order, rows[0]))
        wrong = self._broken(rows[0]["at_s"], since_life, [fault for _, fault in faults])
        if not settled and not site.ended:
            wrong.recovery.append(f"no training on all ranks within {self._recovers_s:g} s")
            self.over = True
        if site.ended:
            self.over = True
            wrong.codes += unequal_ends(site.codes, traces.late(self._site), None)
            if not self._may_end(faults):
                wrong.recovery.append(f"the run ended: {self._last_words()}")
        else:
            wrong.recovery += self._amiss(before, since_life, rows[0], struck)
            wrong.recovery += self._left(before, {fault.kind for _, fault in faults})
        for row in rows:
            wrong.recovery += row.pop("wrong", [])
        rows.sort(key=lambda row: float(row["at_s"]))
        told = [finished(site, row, wrong if row is rows[-1] else Broken(), self._began_s) for row in rows]
        if site.session.watched:
            told[-1]["broken"] |= too_cold(told, self._setting.way is Way.WARM)
        return told

    def _strike_all(self, faults: Sequence[tuple[int, Fault]]) -> tuple[list[Row], Struck]:
        """Each in its phase; those that are ordered beforehand are armed with the first. Whom that struck."""
        site, rows, first = self._site, list[Row](), Struck("", 0.0)
        waiting = [(place, fault) for place, fault in faults if is_ordered(fault)]
        for place, fault in faults:
            if is_ordered(fault):
                continue
            self._await(fault)
            life = site.steps.newest_life()
            if not rows:
                self._armed = [(at, one, self._striker.arm(one, life)) for at, one in waiting]
                self._costs += [site.cost()] if site.session.watched else []
            if fault.kind is Kind.DEVICE:
                site.well.unlink(missing_ok=True)
            struck = self._striker.strike(fault)
            first = first if rows else struck
            if fault.kind is Kind.LOG_DISK:
                self._filled.add(struck.whom.partition(" ")[0])
            rows.append(row_of(place, fault, struck, life))
            if fault.kind is Kind.WELL and site.steps.world(life) < self._setting.ranks:
                self._grows(rows[-1])
        return rows, first

    def _amiss(self, before: Sequence[Life], since_life: int, row: Row, struck: Struck) -> list[str]:
        """What is wrong with the way back, where it is known beforehand."""
        site = self._site
        if self._setting.exact:
            return self._stayed(before, since_life, row["at_s"])
        if len(site.session.faults) == 1 and struck.whom:
            newest = site.steps.newest_life()
            return list(recovered_otherwise(site.journal(), int(row["life"]), newest, struck.rank))
        return []

    def _left(self, before: Sequence[Life], kinds: set[Kind]) -> list[str]:
        """Those that had gone although nobody had struck them, and enough for training were left."""
        struck = {one.pid for one in self._site.steps.struck} | self._striker.killed
        spared = [one for one in before if one.pid not in struck]
        is_held = self._setting.way is Way.TRAINS_ON and Kind.SUPERVISOR not in kinds
        enough = len(spared) * 2 >= self._setting.ranks
        return list(deserters(before, struck, 0)) if is_held and enough else []

    def ends(self) -> Row:
        """End the run as planned; a row about it."""
        site, stopped = self._site, self._site.session.stopped
        if self._setting.small:
            site.wait(self._all_are_here, _STARTS_S)
        at_s, life = boot_s(), site.steps.newest_life()
        if stopped:
            for node in site.nodes.values():
                if node.process is not None:
                    node.process.terminate()
        else:
            (site.folder / "finish").touch()
        site.wait(lambda: False, _ENDS_S)
        wrong = Broken()
        wrong.codes += unequal_ends(site.codes, traces.late(self._site), 143 if stopped else 0)
        if not site.ended:
            wrong.codes.append(f"it did not end within {_ENDS_S:g} s")
        kind = "stop of all" if stopped else "the end"
        row = {"place": -1, "kind": kind, "struck": "all", "when": "training", "at_s": at_s, "life": life}
        wrong.steps += self._judge.wrong(self._fresh())
        return finished(site, row, wrong, self._began_s)

    def last_words(self) -> Broken:
        """What only the whole run shows."""
        site, wrong = self._site, traces.at_the_end(self._site, self._filled)
        wrong.together += self._new(ran_on(site.census.lives, self._kept(site.journal())))
        wrong.saves += self._new(saved_twice(site.steps.lines, site.journal()))
        wrong.orphans += grows(self._costs)
        return wrong

    def keep(self, folder: Path) -> None:
        """Copy what there is to see of it."""
        traces.keep(self._site, self._began_s, folder)

    def _may_end(self, faults: Sequence[tuple[int, Fault]]) -> bool:
        """Where no worker can be started because the one node's disk is full, that is what is promised.

        Where all were to end they may; and three nodes may agree that nothing goes on.
        """
        codes = set(self._site.codes.values())
        if self._setting.small or (codes == {0} and any(fault.place == ENDS for _, fault in faults)):
            return True
        full = any(fault.kind is Kind.LOG_DISK for _, fault in faults)
        return full and codes == {_CANNOT_START}

    def _trained(self, since_s: float) -> float | None:
        return self._site.steps.trains_since(since_s)

    def _await(self, fault: Fault) -> None:
        """The phase that the fault is for; what changed nothing has no phases."""
        site, ranks = self._site, self._site.census.newest()
        life = max((one.life for one in site.census.lives), default=-1)
        match fault.when:
            case When.DRAINING:
                site.wait(lambda: not all(one.lives() for one in ranks), _PHASE_S)
            case When.GONE:
                site.wait(lambda: not any(one.lives() for one in ranks), _PHASE_S)
            case When.STARTING:
                site.wait(lambda: any(one.life > life for one in site.census.lives), _PHASE_S)
            case When.EMPTY | When.COMES:
                site.wait(self._trains_on, _EMPTY_S)
                if fault.when is When.COMES:
                    site.wait(lambda: bool(self._striker.waiting()), _PHASE_S)
            case When.TRAINING if fault.ready:
                site.wait(site.has_standbys, _SURELY_READY_S if site.session.watched else _READY_S)
            case _:
                pass
        until_s = boot_s() + (0.0 if fault.when is When.AT_ONCE else fault.after_s)
        site.wait(lambda: boot_s() >= until_s, fault.after_s + 1.0)

    def _grows(self, row: Row) -> None:
        """Devices are well: at a save all ranks come back."""
        site, full = self._site, self._setting.ranks
        if not site.wait(lambda: site.steps.world(site.steps.newest_life()) == full, _GROWS_S):
            row["wrong"] = [f"not all ranks were back within {_GROWS_S:g} s"]

    def _row_of_armed(self, place: int, fault: Fault, order: int, first: Row) -> Row:
        """The row of a fault that was ordered beforehand, and may have befallen somebody or nobody."""
        self._striker.disarm(order)
        struck = self._striker.struck(order) or Struck("", first["at_s"])
        before = [one.life for one in self._site.steps.struck if one.step == order]
        return row_of(place, fault, struck, before[0] if before else first["life"])

    def _settle(self) -> bool:
        """Wait until nothing is broken any more, and every rank has done a step since then."""
        since_s = boot_s() + _SHOWS_S

        def settled() -> bool:
            nonlocal since_s
            if not self._site.whole or not self._is_full():
                since_s = boot_s()
                return False
            return self._trained(since_s) is not None

        return self._site.wait(settled, self._recovers_s)

    @property
    def _recovers_s(self) -> float:
        """What a newcomer that gives way to all others may take on a crowded machine, or a start."""
        return HEALS_S if self._setting.way is Way.TRAINS_ON else _RECOVERS_S

    def _is_full(self) -> bool:
        """Whether all nodes take part; a device of one node waits for its own word."""
        steps, setting = self._site.steps, self._setting
        needs_all = setting.way is Way.TRAINS_ON or (setting.way is Way.SHRINKS and setting.nodes > 1)
        return not needs_all or steps.world(steps.newest_life()) == setting.ranks

    def _trains_on(self) -> bool:
        """Whether those that are there have done a step while a place is empty."""
        steps, life = self._site.steps, self._site.steps.newest_life()
        return steps.world(life) < self._setting.ranks and steps.trained_in(life, 0.0) is not None

    def _all_are_here(self) -> bool:
        """Whether every supervisor is the run's: one that comes when the run is over begins another."""
        seats = {one.node for one in self._site.census.newest()}
        nodes = self._site.nodes.values()
        return all(node.name in seats or any(_SPARE in line for _, line in node.here()) for node in nodes)

    def _stayed(self, before: Sequence[Life], since_life: int, since_s: float) -> list[str]:
        """What is wrong with survivors; where all began anew, or the law ends soon, the run is over."""
        site = self._site
        anew = began_anew(site.journal(), since_life) is not None
        newest = max((one.step for one in site.steps.lines[-_LAST_LINES:] if one.what == "step"), default=0)
        self.over = newest > EXACT_STEPS - _STEPS_LEFT or (anew and self._setting.code == "exact-ddp")
        stuck = site.stuck() - self._stuck
        self._stuck += stuck
        if anew:
            return []
        struck = {one.pid for one in site.steps.struck} | self._striker.killed
        wrong = list(deserters(before, struck, stuck))
        lives, trained_s = site.steps.newest_life() - since_life, self._trained(since_s)
        if lives and trained_s is not None and trained_s - since_s > REJOIN_S * lives:
            wrong.append(f"{trained_s - since_s:.1f} s without falling back")
        return wrong

    def _fresh(self) -> list[Any]:
        """What is to be judged: a model that was wrapped anew adds up in another order from then on."""
        lines = self._site.steps.lines[self._judged :]
        self._judged += len(lines)
        anew = began_anew(self._site.journal()) if self._setting.code == "exact-ddp" else None
        return [one for one in lines if anew is None or one.life < anew]

    def _new(self, words: Iterator[str]) -> list[str]:
        """Those that have not been said about this run."""
        fresh = [one for one in words if one not in self._known]
        self._known |= set(fresh)
        return fresh

    def _broken(self, since_s: float, since_life: int, faults: Sequence[Fault]) -> Broken:
        site, wrong = self._site, Broken()
        journal, lines = site.journal(), site.steps.lines
        said = sorted(line for node in site.nodes.values() for line in node.said)
        hangs = any(fault.kind in HANGS for fault in faults)
        more_s = sum(fault.for_s for fault in faults) + HANG_S * hangs
        moments = [(one.at_s, True) for one in lines if one.what == "step"]
        moments += [(one.born_s, False) for one in site.census.lives if one.is_rank]
        wrong.steps += self._judge.wrong(self._fresh())
        wrong.resumes += out_of_step(lines, since_life)
        wrong.together += self._new(ran_on(site.census.lives, self._kept(journal)))
        wrong.orphans += self._orphans()
        if self._setting.small:
            self._ask_the_kernel(wrong)
        wrong.saves += self._new(saved_twice(lines, journal))
        wrong.waits += unsaid(moments, said, since_s, more_s)
        if len(site.nodes) > 1 and not hangs and not kept_by(journal).get(site.steps.newest_life()):
            wrong.waits += unnamed_waits(lines, site.census.lives, said, since_s, boot_s())
        return wrong

    def _kept(self, journal: Sequence[Line]) -> dict[int, frozenset[int]]:
        told = kept_by(journal)
        return perhaps_kept(self._site.census.lives, told) if self._filled else told

    def _orphans(self) -> list[str]:
        """What ranks that are gone have left behind, once there was time to end it."""
        site = self._site
        until_s = boot_s() + _GONE_S
        while True:
            newest = site.census.newest()
            now, ranks = {one.pid for one in newest}, {(one.life, one.rank) for one in newest}
            children = [one for one in site.steps.lines if one.what == "child" and one.pid not in now]
            there = {pid for name in site.nodes for pid in site.net[name].pids}
            left = [f"a child of rank {one.rank} of {one.life}" for one in children if one.step in there]
            others = [one for one in site.census.lives if one.pid not in now and one.lives()]
            left += [one.words() for one in others if one.is_rank or (one.life, one.rank) not in ranks]
            if not left or boot_s() > until_s:
                return self._new(iter(left))
            site.tick()
            time.sleep(_LOOK_S)

    def _ask_the_kernel(self, wrong: Broken) -> None:
        """What lived although one of a newer incarnation was born, or bears the number of an older one."""
        site = self._site
        apart = site.census.together[self._apart :]
        self._apart += len(apart)
        wrong.together += [words for words in apart if words.startswith("rank")]
        wrong.orphans += [words for words in apart if not words.startswith("rank")]
        life = site.steps.newest_life()
        for host in (site.net[name] for name in site.nodes):
            for pid in host.pids:
                of = environment(pid).get("FAULTRUN_INCARNATION")
                if of is not None and int(of) < life:
                    wrong.orphans.append(f"{traces.named(pid)} of incarnation {of} on {host.name}")

    def _last_words(self) -> str:
        said = sorted(line for node in self._site.nodes.values() for line in node.said)
        return " / ".join(line for _, line in said[-3:])[-300:]
