"""Our own scheduler for MindSpore's workers: the sockets around ``frameworks.mindspore_cluster``.

It lives in the loop's own thread. A message is answered in some fifty microseconds and a worker sends one
every five seconds once training runs, while a thread could not be had: workers are forked, and must be forked
by a process without threads.
"""

import contextlib
import socket
from collections.abc import Iterable
from pathlib import Path

from faultrun.frameworks.mindspore_cluster import MindSporeCluster, SchedulerAnswer
from faultrun.frameworks.mindspore_wire import Frames, NotUnderstood, frame, read_request
from faultrun.model.events import Event
from faultrun.model.observed.mindspore_rendezvous import ClusterFormed, RankMissed, RanksMet, SchedulerFailed
from faultrun.supervisor.reactor import Reactor

_READ_BYTES = 1 << 16
_CONNECTIONS_A_RANK = 8
"""A worker has two, and for a moment those that it gave up."""


class _Link:
    """One connection. ``known`` once it has said something that only a worker of MindSpore says."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.frames = Frames()
        self.known = False


class BuiltinScheduler:
    """Serves the ``size`` ranks of one incarnation at ``address`` (IPv4) and its port.

    OSError when it cannot listen there. ``log`` takes the place of the log of MindSpore's scheduler process.
    """

    def __init__(
        self, reactor: Reactor, size: int, incarnation: int, address: tuple[str, int], log: Path
    ) -> None:
        self._reactor, self._incarnation = reactor, incarnation
        self._size = size
        self._cluster = MindSporeCluster(size)
        self._links: dict[int, _Link] = {}
        self._address, self._log = address, log
        self._met_at_s: float | None = None
        self._left: set[int] = set()
        self._missed = self._formed = self._failed = False
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(address)
            self._listener.listen(4096)
        except OSError:
            self._listener.close()
            raise
        reactor.watch(self._listener.fileno(), self._accept)
        self._note(f"built-in scheduler for {size} ranks at {address[0]}:{address[1]}")

    def left(self, rank: int) -> Iterable[Event]:
        """``rank`` has ended with exit code 0."""
        self._left.add(rank)
        yield from self._progress()

    def close(self) -> None:
        """Hang up; harmless when it has been done."""
        if self._listener.fileno() < 0:
            return
        self._reactor.forget(self._listener.fileno())
        self._listener.close()
        for fd in list(self._links):
            self._hang_up(fd)
        if self._met_at_s is None:
            missing = sorted(set(range(self._size)) - self._cluster.ranks)
            self._note(f"closed before ranks {' '.join(map(str, missing))} had registered")

    def _accept(self) -> Iterable[Event]:
        with contextlib.suppress(OSError):  # the other side is gone again, or we have no descriptor left
            connection, _ = self._listener.accept()
            if len(self._links) >= _CONNECTIONS_A_RANK * (self._size + 1):
                connection.close()
                return ()
            connection.setblocking(False)
            fd = connection.fileno()
            self._links[fd] = _Link(connection)
            self._reactor.watch(fd, lambda: self._read(fd))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ()

    def _read(self, fd: int) -> Iterable[Event]:
        link = self._links[fd]
        try:
            data = link.connection.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            if data:
                self._hear(fd, link, data)
            else:
                self._hang_up(fd)
                self._send(self._cluster.lose(fd))
        except NotUnderstood as error:
            yield from self._not_understood(fd, link, str(error))
        yield from self._progress()

    def _hear(self, fd: int, link: _Link, data: bytes) -> None:
        for name, body in link.frames.feed(data):
            request = read_request(name, body)
            link.known = True
            self._send(self._cluster.receive(fd, request))

    def _not_understood(self, fd: int, link: _Link, what: str) -> Iterable[Event]:
        """Once training runs, a foreign connection to the port is no reason to stop it."""
        self._note(f"not understood: {what}")
        if self._formed and not link.known:
            self._hang_up(fd)
        elif not self._failed:
            # Heartbeats are answered on: workers that lose us end themselves, and they shall save first.
            self._failed = True
            yield SchedulerFailed(at_s=self._reactor.now(), incarnation=self._incarnation, why=what)

    def _progress(self) -> Iterable[Event]:
        now_s = self._reactor.now()
        if self._met_at_s is None and self._cluster.complete:
            self._met_at_s = now_s
            self._note("every rank has registered")
            yield RanksMet(at_s=now_s, incarnation=self._incarnation)
        missed = self._left - self._cluster.ranks if self._cluster.ranks else set()
        if self._met_at_s is None and missed and not self._missed:
            self._missed = True
            self._note(f"rank {min(missed)} has left, and others wait for it")
            yield RankMissed(at_s=now_s, incarnation=self._incarnation, rank=min(missed))
        if self._met_at_s is not None and not self._formed and self._cluster.formed:
            self._formed = True
            took_s = round(now_s - self._met_at_s, 6)
            self._note(f"the cluster has formed, {took_s:.3f} s later")
            yield ClusterFormed(at_s=now_s, incarnation=self._incarnation, took_s=took_s)

    def _send(self, answers: Iterable[SchedulerAnswer]) -> None:
        """Send now or hang up: an answer is a hundred bytes, and workers wait for it."""
        for answer in answers:
            if (link := self._links.get(answer.link)) is None:
                continue
            content = frame(answer.name, answer.body, self._address)
            try:
                sent = link.connection.send(content, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except OSError:
                sent = 0
            if sent < len(content):
                self._hang_up(answer.link)

    def _hang_up(self, fd: int) -> None:
        if (link := self._links.pop(fd, None)) is not None:
            self._reactor.forget(fd)
            link.connection.close()

    def _note(self, line: str) -> None:
        with contextlib.suppress(OSError), self._log.open("a") as log:
            log.write(f"{self._reactor.now():.3f} {line}\n")
