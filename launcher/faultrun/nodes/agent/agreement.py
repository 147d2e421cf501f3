"""Agreement of several nodes, as one supervisor takes part in it: words to its member process, and back.

The member process (``agent.py``) holds the lease, watches the store and talks with other nodes; nothing of
that can hold up the supervisor. What was agreed on comes back as events, and so does until when this node's
workers may live: the supervisor hands that on to the deadman. So both must be well for a node to train.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from faultrun.core.plan.next_plan import Rules
from faultrun.errors import FaultrunError
from faultrun.journal.codec import decode, encode
from faultrun.model.actions import RaiseAlarm
from faultrun.model.events import Event, NodesEvent
from faultrun.model.observed.agreement import IncarnationOver, MembershipLost
from faultrun.model.observed.hang import NodeSpoke
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.spec.nodes_spec import EtcdAccess
from faultrun.model.topology import BootId, RunId
from faultrun.nodes.agent.pipe_protocol import ALARM, FACT, LEAVE, RANKS, SAYS, TELLS, UNTIL, WHY
from faultrun.nodes.values.membership import NodeSettings
from faultrun.platforms.ports import PortRange
from faultrun.supervisor.launch.progress_page import LiveWorkers
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.workers.deadman import Deadman
from faultrun.workers.forked_helper import Forked, Orders
from faultrun.workers.shared_deadline import SharedDeadline

_CHUNK = 1 << 16
LEAVING_S = 5.0
"""The lease is revoked in milliseconds, unless the store is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSetting:
    """What a member process is made for; ``boot`` also tags its supervisor's workers (``workers.sweep``).

    ``terms`` are without the address of that process, which listens at ``host``. ``deadline`` is the
    deadman's: only the supervisor moves it, so it shows whether that one is well. ``serves``: etcd is
    this node's own, and ends with it. ``ports`` are those that firewalls leave open.
    """

    run_id: RunId
    terms: NodeSettings
    host: str
    boot: BootId
    etcd: EtcdAccess
    rules: Rules
    clock: RunClock
    deadline: SharedDeadline
    serves: bool = False
    ports: PortRange | None = None


MemberWork = Callable[[Orders, int], object]
"""What the member process does: it reads the orders, and writes lines to the descriptor."""


class MemberLost(FaultrunError):
    """The member process ended before it was told to."""

    exit_code = 70


class NodesAgreement:
    """Implements ``interfaces.Agreement``. Make it before any thread is started; ``say`` tells a person.

    ``leaving_s``: how long the member process may take to leave.
    """

    def __init__(
        self, work: MemberWork, deadman: Deadman, say: Callable[[str], None], leaving_s: float = LEAVING_S
    ) -> None:
        self._deadman, self._say, self._leaving_s = deadman, say, leaving_s
        self._orders = Orders()
        self._fd, words = os.pipe2(os.O_CLOEXEC)
        orders = self._orders
        self._member = Forked(lambda: work(orders, words), keep=(words, *orders.kept))
        os.close(words)
        orders.leave_to_helper()
        os.set_blocking(self._fd, False)
        self._unread = b""

    @property
    def pid(self) -> int:
        """The member process."""
        return self._member.pid

    def attach(self, reactor: Reactor, workers: LiveWorkers) -> None:
        """Have what is agreed on returned by ``reactor``; an end after how far the workers are."""
        reactor.watch(self._fd, lambda: self._heard(workers))

    def publish(self, fact: NodeFact) -> None:
        """Hand ``fact`` to the member process as this node's newest statement."""
        self._orders.send({FACT: encode(fact)})

    def raise_alarm(self, order: RaiseAlarm) -> None:
        """Have the member process tell all nodes that an incarnation is over."""
        self._orders.send({ALARM: encode(order)})

    def tell_nodes(self, incarnation: int, works: str) -> None:
        """Have the member process tell the other nodes directly what ours do: ``works``. It may be lost."""
        self._orders.send({RANKS: incarnation, WHY: works})

    def close(self) -> None:
        """Leave: the others need not wait for the end of our lease."""
        self._orders.send({LEAVE: True})
        self._orders.close()
        self._member.end(self._leaving_s)
        os.close(self._fd)

    def _heard(self, workers: LiveWorkers) -> Iterable[Event]:
        for line in self._lines():
            if UNTIL in (words := json.loads(line)):
                self._deadman.feed(words[UNTIL])
            if SAYS in words:
                self._say(words[SAYS])
            if TELLS in words:
                event: Event = decode(words[TELLS], NodesEvent | MembershipLost | NodeSpoke)
                if isinstance(event, IncarnationOver):
                    yield from workers.newest_steps()
                yield event

    def _lines(self) -> Iterator[bytes]:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            what = "the process that keeps this node in its run has ended"
            hint = "dmesg tells whether the kernel ended it; start faultrun again: the node comes back"
            raise MemberLost(what, because="it was killed, or met a bug", hint=hint)
        *lines, self._unread = (self._unread + data).split(b"\n")
        yield from lines
