"""One short exchange between two nodes over TCP, for what cannot wait for the store: a question, an answer.

The listening end belongs to a selector that its owner turns, and never waits. The asking end waits,
bounded, for all whom it asks at once. Who does not speak the protocol, or not in time, is cut off.
"""

import contextlib
import errno
import selectors
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from faultrun.nodes.etcd.clock import boot_now
from faultrun.nodes.peers.seal import LONGEST_LINE, Seal

_LIFETIME_S = 2.0
_MOST_CALLERS, _BACKLOG = 128, 256
_UNDER_WAY = (0, errno.EINPROGRESS)

Reply = Callable[[dict[str, Any]], dict[str, Any]]
"""What to answer to a question; must not wait. ValueError, KeyError, TypeError: it was none."""


@dataclass(eq=False, slots=True)
class _Caller:
    sock: socket.socket
    until_s: float
    heard: bytes = b""
    unsaid: bytes = b""


class PeerListener:
    """Answers other nodes. ``seal`` is the present one: a node that was fenced goes on under another."""

    def __init__(
        self,
        address: tuple[str, int],
        selector: selectors.BaseSelector,
        seal: Callable[[], Seal],
        reply: Reply,
    ) -> None:
        """OSError: none can listen at ``address``; its port may be 0."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._sock = socket.create_server(address, family=family, backlog=_BACKLOG)
        self._sock.setblocking(False)
        self._selector, self._seal, self._reply = selector, seal, reply
        self._callers: dict[_Caller, None] = {}
        selector.register(self._sock, selectors.EVENT_READ, self._accept)

    @property
    def port(self) -> int:
        """Where others reach it."""
        return int(self._sock.getsockname()[1])

    def cut_late(self) -> float | None:
        """Cut off who took too long; seconds until the next one does, None while none calls."""
        while self._callers:
            first = next(iter(self._callers))
            if (left_s := first.until_s - boot_now()) > 0:
                return left_s
            self._drop(first)
        return None

    def close(self) -> None:
        """Listen no longer."""
        for caller in list(self._callers):
            self._drop(caller)
        self._selector.unregister(self._sock)
        self._sock.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError:
            return
        if len(self._callers) == _MOST_CALLERS:
            self._drop(next(iter(self._callers)))
        sock.setblocking(False)
        caller = _Caller(sock, boot_now() + _LIFETIME_S)
        self._callers[caller] = None
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._hear(caller))

    def _hear(self, caller: _Caller) -> None:
        try:
            part = caller.sock.recv(LONGEST_LINE)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        caller.heard += part
        if part and b"\n" not in caller.heard and len(caller.heard) < LONGEST_LINE:
            return
        line, _, _ = caller.heard.partition(b"\n")
        seal = self._seal()
        try:
            asked, nonce = seal.read_question(line)
            caller.unsaid = seal.answer(nonce, self._reply(asked))
        except (ValueError, KeyError, TypeError):
            self._drop(caller)
            return
        self._selector.modify(caller.sock, selectors.EVENT_WRITE, lambda: self._say(caller))
        self._say(caller)

    def _say(self, caller: _Caller) -> None:
        try:
            caller.unsaid = caller.unsaid[caller.sock.send(caller.unsaid) :]
        except BlockingIOError:
            return
        except OSError:
            caller.unsaid = b""
        if not caller.unsaid:
            self._drop(caller)

    def _drop(self, caller: _Caller) -> None:
        if caller in self._callers:
            del self._callers[caller]
            self._selector.unregister(caller.sock)
            caller.sock.close()


@dataclass(frozen=True, slots=True)
class Call:
    """One question to one node: ``peer_addr`` is ``host:port``, ``seal`` that of the supervisor there."""

    peer_addr: str
    seal: Seal
    says: dict[str, Any]


@dataclass(eq=False, slots=True)
class _Asked:
    at: int
    call: Call
    sock: socket.socket
    unsaid: bytes
    nonce: str
    heard: bytes = b""


def ask_all(calls: Sequence[Call], within_s: float) -> list[dict[str, Any] | None]:
    """Put every question at once; each answer in the order of ``calls``, None for none in time."""
    answers: list[dict[str, Any] | None] = [None] * len(calls)
    until_s = boot_now() + within_s
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        open_: set[_Asked] = set()
        for at, call in enumerate(calls):
            if (asked := _begun(at, call)) is not None:
                stack.callback(asked.sock.close)
                selector.register(asked.sock, selectors.EVENT_WRITE, asked)
                open_.add(asked)
        while open_ and (left_s := until_s - boot_now()) > 0:
            for key, _ in selector.select(left_s):
                if _goes_on((asked := key.data), selector, answers):
                    continue
                selector.unregister(asked.sock)
                open_.discard(asked)
    return answers


def _begun(at: int, call: Call) -> _Asked | None:
    host, _, port = call.peer_addr.rpartition(":")
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        line, nonce = call.seal.question(call.says)
        sock.setblocking(False)
        under_way = bool(host) and sock.connect_ex((host.strip("[]"), int(port))) in _UNDER_WAY
    except (OSError, ValueError, OverflowError):
        under_way = False
    if under_way:
        return _Asked(at, call, sock, line, nonce)
    sock.close()
    return None


def _goes_on(asked: _Asked, selector: selectors.BaseSelector, answers: list[dict[str, Any] | None]) -> bool:
    """Say or hear what can be without waiting; False when nothing more will come."""
    try:
        if asked.unsaid:
            asked.unsaid = asked.unsaid[asked.sock.send(asked.unsaid) :]
            if not asked.unsaid:
                selector.modify(asked.sock, selectors.EVENT_READ, asked)
            return True
        part = asked.sock.recv(LONGEST_LINE)
        asked.heard += part
        if b"\n" not in asked.heard:
            return bool(part) and len(asked.heard) < LONGEST_LINE
        answers[asked.at] = asked.call.seal.read_answer(asked.heard.partition(b"\n")[0], asked.nonce)
    except BlockingIOError:
        return True
    except (OSError, ValueError, TypeError):
        return False
    return False
