"""Real supervisors that are one of several nodes, and a hub in memory that lets them agree.

The hub answers every statement by ``core.plan.next_plan.next_step``, as a coordinator does; leases,
elections and lost nodes are no matter of these tests. Each supervisor is a process of its own: this module.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from faultrun.cli.console import say
from faultrun.cli.options.command import FaultrunGroup, run_command
from faultrun.cli.options.settings import Asked, collect
from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.resolve.spec import resolve
from faultrun.cli.run.composition import Supervisor
from faultrun.cli.run.helpers import Helpers
from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.core.plan.waiting import Waiting
from faultrun.journal.codec import decode, encode
from faultrun.model.actions import RaiseAlarm
from faultrun.model.events import Event, GoGiven, PlanAdopted, RunFinished
from faultrun.model.observed.agreement import IncarnationOver
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Plan
from faultrun.model.topology import NodeId, NodeSlots, Topology
from faultrun.nodes.agent.agreement import NodesAgreement
from faultrun.supervisor.interfaces import Agreement
from faultrun.supervisor.launch.progress_page import LiveWorkers
from faultrun.supervisor.reactor import Reactor, RunClock
from support.stories.story import POLICY

_CHUNK = 1 << 16
Agreed = PlanAdopted | GoGiven | IncarnationOver | RunFinished


class Hub:
    """Where the nodes of one run agree, at the Unix socket ``path``."""

    def __init__(self, path: Path, nodes: int, slots: int) -> None:
        self.rules = Rules(
            topology=Topology(nodes=(NodeSlots(node=NodeId(""), slots=slots),) * nodes), policy=POLICY
        )
        self.plan: Plan | None = None
        self.facts: dict[NodeId, NodeFact] = {}
        self.waits = ""
        self._told: set[str] = set()
        self._peers: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Hang up on everybody."""
        for one in (self._listener, *self._peers):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                with self._lock:
                    self._peers.append(peer)
                thread = threading.Thread(target=self._serve, args=(peer,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, peer: socket.socket) -> None:
        with suppress(OSError), peer.makefile("rb") as lines:
            for line in lines:
                with self._lock:
                    self._heard(json.loads(line), peer)

    def _heard(self, said: dict[str, Any], peer: socket.socket) -> None:
        if "over" in said:
            order: RaiseAlarm = decode(said["over"], RaiseAlarm)
            over = IncarnationOver(
                at_s=0,
                incarnation=order.incarnation,
                why=order.why,
                node=said["node"],
                stop=order.stop,
                stays=order.stays,
            )
            self._tell(over, [one for one in self._peers if one is not peer])
            return
        fact = decode(said["fact"], NodeFact)
        known = self.facts.get(fact.node)
        self.facts[fact.node] = replace(fact, arrived=len(self.facts) + 1 if known is None else known.arrived)
        answer = next_step(self.rules, self.plan, self.facts, now_s=0.0)
        self.waits = answer.reason if isinstance(answer, Waiting) else ""
        if isinstance(answer, PlanAdopted):
            self.plan = answer.plan
        if not isinstance(answer, Waiting):
            self._tell(answer, self._peers)

    def _tell(self, event: Agreed, peers: Iterable[socket.socket]) -> None:
        """Each answer once: nodes are told of changes."""
        line = json.dumps(encode(event))
        if line not in self._told:
            self._told.add(line)
            for peer in peers:
                with suppress(OSError):
                    peer.sendall(line.encode() + b"\n")


class HubAgreement:
    """Implements ``interfaces.Agreement``: this node's end of the hub."""

    def __init__(self, path: str, node: NodeId, reactor: Reactor) -> None:
        self._node = node
        self._reactor = reactor
        self._hub = socket.socket(socket.AF_UNIX)
        self._hub.connect(path)
        self._rest = b""
        reactor.watch(self._hub.fileno(), self._heard)

    def publish(self, fact: NodeFact) -> None:
        self._send({"fact": encode(fact)})

    def raise_alarm(self, order: RaiseAlarm) -> None:
        self._send({"over": encode(order), "node": self._node})

    def tell_nodes(self, incarnation: int, works: str) -> None:
        """The hub does not pass it on: it may be lost."""

    def _send(self, said: dict[str, Any]) -> None:
        self._hub.sendall(json.dumps(said).encode() + b"\n")

    def _heard(self) -> Iterable[Event]:
        data = self._hub.recv(_CHUNK)
        if not data:
            self._reactor.forget(self._hub.fileno())
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            told: Agreed = decode(json.loads(line), Agreed)
            yield replace(told, at_s=self._reactor.now())


class OneOfSeveral(Supervisor):
    """The real supervisor, whose agreement is the hub's."""

    hub = ""

    def _nodes(self, helpers: Helpers, clock: RunClock) -> None:
        """No member process."""

    def _agreement(self, reactor: Reactor, nodes: NodesAgreement | None, workers: LiveWorkers) -> Agreement:
        return HubAgreement(self.hub, self._spec.node, reactor)


def main(hub: str, words: Sequence[str]) -> int:
    """As ``faultrun run WORDS``, for one of several nodes."""
    group = FaultrunGroup(run_command(lambda asked: asked), version="0")
    asked = group.main(list(words), "faultrun", standalone_mode=False)
    assert isinstance(asked, Asked)
    around = ProcessContext(
        environ=dict(os.environ), python=sys.executable, import_path=tuple(sys.path), pid=os.getpid()
    )
    spec = resolve(collect(asked, around.environ), around).spec
    OneOfSeveral.hub = hub
    running = OneOfSeveral(spec, around, say, lambda: None, None)
    try:
        code, _ = running.run()
    finally:
        running.close()
    running.mark_end(code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
