"""Where ranks of several nodes meet after a death: keys and values over TCP, in the loop's own thread.

It outlives every rank, which a store that rank 0 hosts does not, and is no file, which other machines do not
see. A group of N ranks asks it a few times N questions, once, of some fifty microseconds each.
"""

import contextlib
import hmac
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from faultrun.core.control_messages import seconds
from faultrun.model.events import Event
from faultrun.model.observed.rendezvous_store import meeting_seal
from faultrun.model.wire import MAX_LINE_BYTES, message, parse
from faultrun.supervisor.reactor import Reactor

_SPARE_STRANGERS = 64
"""Who may wait at the door beside all ranks: none is known before this node has heard of the plan."""
_MOST_BYTES = 64 << 20
_LONGEST_WAIT_S = 10.0


@dataclass(eq=False, slots=True)
class _Guest:
    """``known`` once it has proved that it belongs to the run; ``awaits`` are keys that are not all there."""

    connection: socket.socket
    nonce: str
    unread: bytes = b""
    known: bool = False
    awaits: tuple[str, ...] = ()
    asked: int = 0


class RendezvousStore:
    """Store of ``ranks`` at ``host``; ``port`` 0 is any. OSError if it cannot. ``opens`` lets ranks in."""

    def __init__(
        self, reactor: Reactor, host: str, ranks: int, most_bytes: int = _MOST_BYTES, port: int = 0
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=1024)
        self._listener.setblocking(False)
        self._reactor = reactor
        self._most_strangers = ranks + _SPARE_STRANGERS
        self._secret: str | None = None
        self._values: dict[str, bytes] = {}
        self._bytes = 0
        self._most_bytes = most_bytes
        self._guests: dict[int, _Guest] = {}
        reactor.watch(self._listener.fileno(), self._accept)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def opens(self, secret: str) -> None:
        """Let in every rank that knows this secret, those too that have connected already."""
        self._secret = secret
        for guest in list(self._guests.values()):
            self._hear(guest)

    def close(self) -> None:
        """Hang up; harmless when it has been done."""
        if self._listener.fileno() < 0:
            return
        self._reactor.forget(self._listener.fileno())
        self._listener.close()
        for guest in list(self._guests.values()):
            self._hang_up(guest)

    def _accept(self) -> Iterable[Event]:
        with contextlib.suppress(OSError):  # the other side is gone again, or we have no descriptor left
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            guest = _Guest(connection, os.urandom(16).hex())
            self._guests[connection.fileno()] = guest
            self._reactor.watch(connection.fileno(), lambda: self._read(guest))
            self._say(guest, "nonce", nonce=guest.nonce)
            strangers = [one for one in self._guests.values() if not one.known]
            if len(strangers) > self._most_strangers:
                self._hang_up(strangers[0])
        return ()

    def _read(self, guest: _Guest) -> Iterable[Event]:
        try:
            data = guest.connection.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return ()
        except OSError:
            data = b""
        guest.unread += data
        if not data or len(guest.unread) > 2 * MAX_LINE_BYTES:
            self._hang_up(guest)
        else:
            self._hear(guest)
        return ()

    def _hear(self, guest: _Guest) -> None:
        """One question after the other; the next one when the one before is answered."""
        while b"\n" in guest.unread and not guest.awaits and self._secret is not None:
            line, _, guest.unread = guest.unread.partition(b"\n")
            try:
                self._answer(guest, parse(line))
            except (ValueError, KeyError, TypeError):
                self._hang_up(guest)
                return

    def _answer(self, guest: _Guest, asked: dict[str, Any] | None) -> None:
        match asked:
            case {"kind": "hello", "seal": str(seal)} if not guest.known:
                guest.known = hmac.compare_digest(meeting_seal(self._secret or "", guest.nonce), seal)
                if not guest.known:
                    raise ValueError("somebody else")
            case _ if not guest.known:
                raise ValueError("who is it?")
            case {"kind": "set", "key": str(key), "value": str(value)}:
                self._put(key, bytes.fromhex(value))
                self._say(guest, "done")
            case {"kind": "add", "key": str(key), "amount": int(amount)}:
                number = int(self._values.get(key, b"0")) + amount
                self._put(key, str(number).encode())
                self._say(guest, "number", number=number)
            case {"kind": "swap", "key": str(key), "expected": str(expected), "desired": str(desired)}:
                if self._values.get(key, b"") == bytes.fromhex(expected):
                    self._put(key, bytes.fromhex(desired))
                self._say(guest, "values", values=[self._values.get(key, b"").hex()])
            case {"kind": "drop", "key": str(key)}:
                dropped = self._values.pop(key, None)
                self._bytes -= 0 if dropped is None else len(key) + len(dropped)
                self._say(guest, "number", number=int(dropped is not None))
            case {"kind": "get", "keys": list(keys), "within_s": within_s}:
                self._awaits(guest, tuple(map(str, keys)), seconds(within_s))
            case _:
                raise ValueError("no question")

    def _put(self, key: str, value: bytes) -> None:
        before = self._values.get(key)
        more = len(value) - (-len(key) if before is None else len(before))
        if self._bytes + more > self._most_bytes:
            raise ValueError("the store is full")
        self._bytes += more
        self._values[key] = value
        for guest in [one for one in self._guests.values() if key in one.awaits]:
            self._give(guest)

    def _awaits(self, guest: _Guest, keys: tuple[str, ...], within_s: float) -> None:
        guest.asked += 1
        guest.awaits = keys
        self._give(guest)
        if guest.awaits:
            at_s = self._reactor.now() + min(within_s, _LONGEST_WAIT_S)
            self._reactor.call_at(at_s, self._in_vain(guest, guest.asked))

    def _give(self, guest: _Guest) -> None:
        """All the keys that it waits for, once they are there; then what it asked meanwhile."""
        found = [self._values[key].hex() for key in guest.awaits if key in self._values]
        if len(found) == len(guest.awaits):
            guest.awaits = ()
            self._say(guest, "values", values=found)
            self._hear(guest)

    def _in_vain(self, guest: _Guest, asked: int) -> Callable[[], Iterable[Event]]:
        def over() -> Iterable[Event]:
            if guest.awaits and guest.asked == asked:
                guest.awaits = ()
                self._say(guest, "values", values=[])
                self._hear(guest)
            return ()

        return over

    def _say(self, guest: _Guest, kind: str, **fields: Any) -> None:
        """Now or not at all: an answer is short, and who asked waits for it."""
        line = message(kind, **fields)
        try:
            sent = guest.connection.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            sent = 0
        if sent < len(line):
            self._hang_up(guest)

    def _hang_up(self, guest: _Guest) -> None:
        fd = guest.connection.fileno()
        if self._guests.pop(fd, None) is not None:
            guest.awaits = ()
            self._reactor.forget(fd)
            guest.connection.close()
