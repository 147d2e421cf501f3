"""What each fault does: ordered from a rank, or done from outside to ranks and nodes."""

import json
import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace

from benchmarks.campaigns.everything_plan import ARMED, AT_A_PLACE, ENDS, Fault, Kind, When
from benchmarks.campaigns.everything_site import Site
from benchmarks.campaigns.ledgers import Told
from benchmarks.campaigns.strike_nodes import NodeStriker, killed
from benchmarks.harness.procfs import environment
from benchmarks.jobs.everything_notes import boot_s

_TAKES_S = 6.0
"""So soon a rank comes to any place in its script."""

_STANDS_S = 0.03
"""For so long a rank that is struck from outside stands at its place."""

_FROZEN_S = (0.05, 0.15, 0.3)
_WAITING = {"FAULTRUN_STANDBY_CHANNEL", "FAULTRUN_REJOIN"}
_AT_ITS_PLACE = frozenset({Kind.RANK, Kind.STUCK, Kind.TWO})


@dataclass(slots=True)
class Struck:
    """Whom it struck, in a word (empty: nobody), and when (CLOCK_BOOTTIME); the first of its ranks."""

    whom: str
    at_s: float
    rank: int = -1


class Striker:
    """Strikes at ``site``."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self._site = site
        self._nodes = NodeStriker(site, chance)
        self._orders = 0
        self.killed: set[int] = set()
        """Ranks that were killed from outside."""

    def arm(self, fault: Fault, life: int) -> int:
        """Order it beforehand, one of the next start behind incarnation ``life``; the number of the order."""
        if fault.when is When.AT_ONCE:
            return self._order(fault, self._rank_of(fault), fault.place, -1)
        if fault.when is When.REPAIR:
            return self._order(fault, self._rank_of(fault), fault.place, life - 1)
        return self._order(fault, self._rank_of(fault), ARMED[fault.when], life)

    def strike(self, fault: Fault) -> Struck:
        """Do it now, and wait until it is done."""
        at_s = boot_s()
        if fault.kind in AT_A_PLACE:
            told = self._obeyed(self._order(fault, self._rank_of(fault), fault.place, -1))
            return _of(told) if told is not None else Struck("", at_s)
        if fault.kind in self._nodes.deeds:
            return Struck(self._nodes.strike(fault), at_s)
        if self._site.session.setting.exact and fault.kind in _AT_ITS_PLACE:
            return self._at_its_place(fault)
        return self._from_outside(fault, at_s)

    def struck(self, order: int) -> Struck | None:
        """What a rank told before it was carried out."""
        told = self._told(order)
        return None if told is None else _of(told)

    def _told(self, order: int) -> Told | None:
        return next((one for one in reversed(self._site.steps.struck) if one.step == order), None)

    def _obeyed(self, order: int) -> Told | None:
        """What the rank told that was ordered to; None: it did not come there in time."""
        self._site.wait(lambda: self._told(order) is not None, _TAKES_S)
        self.disarm(order)
        return self._told(order)

    def _at_its_place(self, fault: Fault) -> Struck:
        """Kill a rank from outside while it stands there; of two, the first ends itself there."""
        kind = Kind.KILL if fault.kind is Kind.TWO else Kind.SLOW
        first = self._rank_of(fault)
        others = [one for one in self._site.census.newest() if one.rank != first]
        told = self._obeyed(self._order(replace(fault, kind=kind), first, fault.place, -1))
        if told is None:
            return Struck("", boot_s())
        if fault.kind is Kind.STUCK:
            with suppress(ProcessLookupError):
                os.kill(told.pid, signal.SIGSTOP)
            time.sleep(_FROZEN_S[first % len(_FROZEN_S)])
        time.sleep(fault.after_s)
        self._kill(others[0].pid if fault.kind is Kind.TWO else told.pid)
        whom = f"ranks {first} {others[0].rank}" if fault.kind is Kind.TWO else f"rank {first}"
        return Struck(f"{whom}, in {fault.place}", told.at_s)

    def _kill(self, pid: int) -> bool:
        self.killed.add(pid)
        return killed(pid)

    def disarm(self, order: int) -> None:
        """Not any more, if nobody has done it."""
        for path in (self._site.folder / "orders").glob(f"*_{order}.json"):
            path.unlink(missing_ok=True)
        self._site.tick()

    def _rank_of(self, fault: Fault) -> int:
        ranks = sorted(one.rank for one in self._site.census.newest())
        if ranks and fault.place in ("save", "saved") and self._site.session.setting.code == "ddp":
            return ranks[0]  # who saves
        return ranks[int(fault.chance * len(ranks))] if ranks else 0

    def _order(self, fault: Fault, rank: int, trigger: str, above: int) -> int:
        slow_s = _STANDS_S if self._site.session.setting.exact else 3.0
        value = {Kind.EXIT: float(2 + int(fault.chance * 50)), Kind.SLOW: slow_s}.get(fault.kind)
        order = {"kind": fault.kind.value, "value": value, "trigger": trigger, "above": above}
        self._orders += 1
        path = self._site.folder / "orders" / f"{rank}_{self._orders}.json"
        partial = path.with_suffix(".new")
        partial.write_text(json.dumps(order))
        partial.replace(path)
        if trigger == ENDS:
            (self._site.folder / "finish").touch()
        return self._orders

    def _from_outside(self, fault: Fault, at_s: float) -> Struck:
        living = [one for one in self._site.census.newest() if one.lives()]
        if fault.kind is Kind.WELL:
            self._site.well.touch()
            return Struck("every device", at_s)
        if fault.kind is Kind.STANDBY:
            return Struck(self._standby(fault.chance), at_s)
        first = int(fault.chance * len(living))
        wanted = {Kind.TWO: 2, Kind.ALL: len(living)}.get(fault.kind, 1)
        turned = [*living[first:], *living[:first]]
        victims = sorted(turned, key=lambda one: one is not turned[0] and one.node == turned[0].node)[:wanted]
        gone = [one.rank for one in victims if self._kill(one.pid)]
        whom = f"rank{'s' * (len(gone) > 1)} {' '.join(map(str, gone))}" if gone else ""
        return Struck(whom, at_s, *gone[:1])

    def waiting(self) -> list[int]:
        """The processes that wait for a rank, or in the place of one, or are on their way there."""
        ranks = {one.pid for one in tuple(self._site.census.lives)}
        ranks |= {one.step for one in self._site.steps.lines if one.what == "child"}
        hosts = [self._site.net[name] for name in self._site.nodes]
        pids = [pid for host in hosts for pid in host.pids if pid not in ranks]
        return [pid for pid in pids if _WAITING & environment(pid).keys()]

    def _standby(self, chance: float) -> str:
        waiting = self.waiting()
        return "a standby" if waiting and killed(waiting[int(chance * len(waiting))]) else ""


def _of(told: Told) -> Struck:
    return Struck(f"rank {told.rank}, {told.path}", told.at_s, told.rank)
