"""What each of the thousand faults does: ordered from a rank, or done from outside to ranks and nodes."""

import json
import os
import random
import signal
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.campaigns import nodes_plan
from benchmarks.campaigns.everything_plan import ARMED, AT_A_PLACE, Fault, Kind, When
from benchmarks.campaigns.everything_site import Site
from benchmarks.campaigns.nodes_ledger import Life
from benchmarks.campaigns.nodes_strike import Striker as NodeStriker
from benchmarks.harness.procfs import environment
from benchmarks.jobs.nodes import boot_s

_TAKES_S = 6.0
"""So soon a rank comes to any place in its script."""

_AS_NODES_DO = {
    Kind.SUPERVISOR: nodes_plan.Kind.SUPERVISOR,
    Kind.FREEZE: nodes_plan.Kind.FREEZE,
    Kind.STOPPED: nodes_plan.Kind.STOP,
    Kind.LOG_DISK: nodes_plan.Kind.LOG_DISK,
    Kind.SAVE_DISK: nodes_plan.Kind.SAVE_DISK,
    Kind.HOST: nodes_plan.Kind.HOST,
    Kind.POWER: nodes_plan.Kind.POWER,
    Kind.LINK: nodes_plan.Kind.LINK,
    Kind.STORE_LINK: nodes_plan.Kind.STORE_LINK,
    Kind.PEER_LINK: nodes_plan.Kind.PEER_LINK,
    Kind.MEMBER: nodes_plan.Kind.MEMBER,
    Kind.MAJORITY: nodes_plan.Kind.MAJORITY,
    Kind.STORE_DISK: nodes_plan.Kind.STORE_DISK,
}


@dataclass(slots=True)
class Struck:
    """Whom it struck, in a word (empty: nobody), and when (CLOCK_BOOTTIME)."""

    whom: str
    at_s: float


class Striker:
    """Strikes at ``site``."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self._site = site
        self._nodes = NodeStriker(site, chance)
        self._orders = 0

    def arm(self, fault: Fault, life: int) -> int:
        """Order it beforehand, one of the next start behind incarnation ``life``; the number of the order."""
        if fault.when is When.AT_ONCE:
            return self._order(fault, self._rank_of(fault), fault.place, -1)
        return self._order(fault, self._rank_of(fault), ARMED[fault.when], life)

    def strike(self, fault: Fault) -> Struck:
        """Do it now, and wait until it is done."""
        at_s = boot_s()
        if fault.kind in AT_A_PLACE:
            order = self._order(fault, self._rank_of(fault), fault.place, -1)
            self._site.wait(lambda: self.struck(order) is not None, _TAKES_S)
            self.disarm(order)
            return self.struck(order) or Struck("", at_s)
        if fault.kind in _AS_NODES_DO:
            whom, when = nodes_plan.Whom[fault.whom.name], nodes_plan.When.TRAINING
            kind = _AS_NODES_DO[fault.kind]
            one = nodes_plan.Fault(kind=kind, whom=whom, when=when, after_s=0.0, for_s=fault.for_s)
            return Struck(self._nodes.strike(one), at_s)
        return Struck(self._from_outside(fault), at_s)

    def struck(self, order: int) -> Struck | None:
        """What a rank told before it was carried out."""
        own = [one for one in self._site.steps.struck if one.step == order]
        return Struck(f"rank {own[-1].rank}, {own[-1].path}", own[-1].at_s) if own else None

    def disarm(self, order: int) -> None:
        """Not any more, if nobody has done it."""
        for path in (self._site.folder / "orders").glob(f"*_{order}.json"):
            path.unlink(missing_ok=True)
        self._site.tick()

    def _rank_of(self, fault: Fault) -> int:
        if fault.place in ("save", "saved") and self._site.session.setting.code == "ddp":
            return 0  # who saves
        ranks = sorted(one.rank for one in self._site.census.newest())
        return ranks[int(fault.chance * len(ranks))] if ranks else 0

    def _order(self, fault: Fault, rank: int, trigger: str, above: int) -> int:
        value = {Kind.EXIT: float(2 + int(fault.chance * 50)), Kind.SLOW: 3.0}.get(fault.kind)
        order = {"kind": fault.kind.value, "value": value, "trigger": trigger, "above": above}
        self._orders += 1
        path = self._site.folder / "orders" / f"{rank}_{self._orders}.json"
        partial = path.with_suffix(".new")
        partial.write_text(json.dumps(order))
        partial.replace(path)
        return self._orders

    def _from_outside(self, fault: Fault) -> str:
        living = [one for one in self._site.census.newest() if one.lives()]
        if fault.kind is Kind.WELL:
            self._site.well.touch()
            return "every device"
        if fault.kind is Kind.STANDBY:
            return self._standby(living, fault.chance)
        first = int(fault.chance * len(living))
        wanted = {Kind.TWO: 2, Kind.ALL: len(living)}.get(fault.kind, 1)
        victims = [*living[first:], *living[:first]][:wanted]
        gone = [one for one in victims if _killed(one.pid)]
        return f"rank{'s' * (len(gone) > 1)} {' '.join(str(one.rank) for one in gone)}" if gone else ""

    def _standby(self, living: list[Life], chance: float) -> str:
        """A process that waits for a rank, or in the place of one."""
        ranks = {one.pid for one in living}
        hosts = [self._site.net[name] for name in self._site.nodes]
        pids = [pid for host in hosts for pid in host.pids if pid not in ranks]
        waiting = [pid for pid in pids if "FAULTRUN_STANDBY_CHANNEL" in environment(pid)]
        return "a standby" if waiting and _killed(waiting[int(chance * len(waiting))]) else ""


def _killed(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
