"""What each fault does to the nodes of a run, to etcd and to disks, and what makes them whole again."""

import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from benchmarks.campaigns.everything_plan import MEMBERS, Fault, Kind, Whom
from benchmarks.campaigns.stage import Node, Stage, fill
from support.nodes.hosts import Host


class NodeStriker:
    """Strikes at ``site``; ``strike`` returns whom it struck, in a word."""

    def __init__(self, site: Stage, chance: random.Random) -> None:
        self._site, self._chance = site, chance
        self.deeds: dict[Kind, Callable[[Fault, Node], str]] = {
            Kind.HOST: self._host,
            Kind.POWER: self._power,
            Kind.SUPERVISOR: self._supervisor,
            Kind.LINK: self._link,
            Kind.STORE_LINK: self._store_link,
            Kind.PEER_LINK: self._peer_link,
            Kind.FREEZE: self._freeze,
            Kind.MEMBER: self._members,
            Kind.MAJORITY: self._members,
            Kind.LOG_DISK: self._log_disk,
            Kind.SAVE_DISK: self._save_disk,
            Kind.STORE_DISK: self._store_disk,
            Kind.STOPPED: self._stop,
        }

    def strike(self, fault: Fault) -> str:
        """Do it now; empty if there is nobody to do it to."""
        node = self._node(fault.whom)
        return "" if node is None else self.deeds[fault.kind](fault, node)

    def _node(self, whom: Whom) -> Node | None:
        """Of those whose supervisor runs; the next best if there is none of the kind."""
        seats = self._seats()
        nodes = [node for node in self._site.nodes.values() if node.runs and not node.away]
        first = [node for node in nodes if node.name == seats.get(0)]
        spares = [node for node in nodes if node.name not in seats.values()]
        others = [node for node in nodes if node not in first and node not in spares]
        wanted = {Whom.FIRST: first, Whom.OTHER: others, Whom.SPARE: spares}[whom] or others or nodes
        return self._chance.choice(wanted) if wanted else None

    def _seats(self) -> dict[int, str]:
        return {one.rank: one.node for one in self._site.census.newest()}

    def _host(self, fault: Fault, node: Node) -> str:
        self._gone(node, fault)
        self._of(node).kill()
        return node.name

    def _power(self, fault: Fault, node: Node) -> str:
        self._gone(node, fault)
        self._site.net.power_off(self._of(node))
        self._site.later(fault.for_s, lambda: self._site.net.restore(self._of(node)))
        return node.name

    def _supervisor(self, _: Fault, node: Node) -> str:
        return node.name if node.process is not None and killed(node.process.pid) else ""

    def _link(self, fault: Fault, node: Node) -> str:
        self._site.net.cut(self._of(node))
        self._site.later(fault.for_s, lambda: self._site.net.restore(self._of(node)))
        return f"{node.name} for {fault.for_s:g} s"

    def _store_link(self, fault: Fault, node: Node) -> str:
        members = [self._site.net[name] for name in MEMBERS]
        self._part([self._of(node)], members, fault)
        return f"{node.name} for {fault.for_s:g} s"

    def _peer_link(self, fault: Fault, node: Node) -> str:
        other = self._chance.choice([one for one in self._site.nodes.values() if one is not node])
        self._part([self._of(node)], [self._of(other)], fault)
        return f"{node.name} from {other.name} for {fault.for_s:g} s"

    def _part(self, ones: list[Host], others: list[Host], fault: Fault) -> None:
        self._site.net.part(ones, others)
        self._site.later(fault.for_s, lambda: self._site.net.join(ones, others))

    def _freeze(self, fault: Fault, node: Node) -> str:
        process = node.process
        if process is None:
            return ""
        process.send_signal(signal.SIGSTOP)
        self._site.later(fault.for_s, lambda: process.send_signal(signal.SIGCONT))
        return f"{node.name} for {fault.for_s:g} s"

    def _members(self, fault: Fault, _: Node) -> str:
        running = [name for name in MEMBERS if self._site.net[name].pids]
        if not running:
            return ""
        count = 2 if fault.kind is Kind.MAJORITY and len(running) > 1 else 1
        struck = self._chance.sample(running, count)
        for name in struck:
            self._site.net[name].kill()
            self._site.later(fault.for_s, partial(self._member_back, name))
        return f"{' '.join(struck)} for {fault.for_s:g} s"

    def _member_back(self, name: str) -> None:
        host = self._site.net[name]
        if not host.pids and self._site.etcd is not None:
            host.reap()
            self._site.etcd.start_member(host)

    def _log_disk(self, fault: Fault, node: Node) -> str:
        self._site.later(fault.for_s, fill(self._site.folder / "logs" / node.name))
        return f"{node.name} for {fault.for_s:g} s"

    def _save_disk(self, fault: Fault, _: Node) -> str:
        self._site.later(fault.for_s, fill(self._site.folder / "ckpt"))
        return f"for {fault.for_s:g} s"

    def _store_disk(self, fault: Fault, _: Node) -> str:
        name = self._chance.choice(MEMBERS)
        empty = fill(self._site.folder / "etcd" / name)

        def back() -> None:
            empty()
            self._member_back(name)

        self._site.later(fault.for_s, back)
        return f"{name} for {fault.for_s:g} s"

    def _stop(self, fault: Fault, node: Node) -> str:
        if node.process is None:
            return ""
        self._gone(node, fault)
        node.process.send_signal(signal.SIGTERM)
        return node.name

    def _gone(self, node: Node, fault: Fault) -> None:
        """The platform brings it back, once it has ended and so much time has passed."""

        def back() -> None:
            if node.runs:
                self._site.later(_AGAIN_S, back)
            else:
                node.away = False

        node.away = True
        self._site.later(fault.for_s, back)

    def _of(self, node: Node) -> Host:
        return self._site.net[node.name]


_AGAIN_S = 0.5


def killed(pid: int) -> bool:
    """Kill it; False: it was gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
