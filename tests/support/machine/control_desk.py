"""A control socket with a reactor of its own, and real sockets at its other end."""

import contextlib
import json
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from faultrun.model.events import Event, Timer, TimerFired
from faultrun.model.wire import message
from faultrun.supervisor.control import Control
from faultrun.supervisor.launch.progress_page import ProgressPage
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.supervisor.snapshots.memory import SnapshotMemory

E = TypeVar("E", bound=Event)

_PATIENCE_S = 10.0
_GIVEN_UP = 99


@dataclass(slots=True)
class Desk:
    """A control socket with its reactor; ``control`` listens for incarnation 3."""

    control: Control
    reactor: Reactor
    page: ProgressPage
    open_: list[socket.socket] = field(default_factory=list)
    waiting: list[Event] = field(default_factory=list)

    def peer(self) -> "Peer":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.control.path))
        connection.settimeout(_PATIENCE_S)
        self.open_.append(connection)
        return Peer(connection, self)

    def worker(self, rank: int, incarnation: int = 3) -> "Peer":
        peer = self.peer()
        peer.says("hello", rank=rank, pid=1, incarnation=incarnation, sdk="1")
        return peer

    def heard(self, *, within_s: float = _PATIENCE_S) -> Event:
        """The next event; a watchdog ends the wait."""
        if not self.waiting:
            self.reactor.start_timer(Timer.REAP, self.reactor.clock.now() + within_s, _GIVEN_UP)
            self.waiting += self.reactor.wait()
        return self.waiting.pop(0)

    def hears(self, kind: type[E]) -> E:
        """The next event, which is of ``kind``."""
        event = self.heard()
        assert isinstance(event, kind), event
        return event

    def nothing(self) -> None:
        """Everything that was sent so far is read and leads to no event."""
        assert not self.waiting, self.waiting
        while select.select([self.reactor._epoll.fileno()], [], [], 0)[0]:  # one connection is taken a round
            event = self.heard(within_s=0)
            assert isinstance(event, TimerFired), event


@dataclass(slots=True)
class Peer:
    connection: socket.socket
    desk: Desk

    def says(self, kind: str, **fields: Any) -> None:
        self.connection.sendall(message(kind, **fields))

    def is_told(self) -> dict[str, Any]:
        """The next line that arrives here; the desk may have to work for it."""
        line = b""
        while not line.endswith(b"\n"):
            line += self.connection.recv(1)
        told: dict[str, Any] = json.loads(line)
        return told


@contextlib.contextmanager
def open_desk(folder: Path) -> Iterator[Desk]:
    """A desk of two workers whose socket is in ``folder``; nothing of it is left afterwards."""
    reactor = Reactor(RunClock())
    control = Control(folder, reactor, 30.0, SnapshotMemory(lambda: None))
    page = ProgressPage(folder / "progress", (0, 1))
    control.begin(3, page)
    desk = Desk(control, reactor, page)
    yield desk
    for connection in desk.open_:
        connection.close()
    control.close()
    reactor.close()
    page.close()
