"""Sends the memory snapshots of this node's ranks to the next one, no faster than its share of link and core.

The other end is ``receiver``, where the words are. A copy is read where its rank writes it: whether
it was written over meanwhile is known when all of it has left. Then it is called torn, and the next one sent.
"""

import time
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

from faultrun.model.observed.rendezvous_store import meeting_seal
from faultrun.model.wire import MAX_LINE_BYTES, message, parse
from faultrun.sdk.snapshots.buffer import Leaving, Snapshots

SHARE = 0.25
"""The share of time in which bytes are on their way: the ranks' collectives have the link and core else."""
_AT_ONCE = 1 << 20
_LONGEST_REST_S = 1.0


class NotHeld(Exception):
    """The next node does not keep our copies; the message says why."""


class SnapshotSender:
    """Over one connection. ``send`` blocks until all has gone; OSError ends it. NotHeld: so does this."""

    def __init__(
        self,
        stream: BinaryIO,
        send: Callable[["bytes | memoryview"], object],
        secret: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[float], object] = time.sleep,
    ) -> None:
        self._stream, self._send = stream, send
        self._clock, self._rest = clock, rest
        self._known: dict[int, Snapshots] = {}
        self._seen: dict[int, bytes] = {}
        hello = self._hear()
        if hello["kind"] != "nonce":
            raise NotHeld("another process answers there")
        self._send(message("hello", seal=meeting_seal(secret, str(hello.get("nonce")))))

    def keep(self, rank: int, copies: Snapshots, size_bytes: int) -> None:
        """Have room made for this rank's two copies, which take ``size_bytes``."""
        if self._known.get(rank) is not copies:
            self._send(message("room", rank=rank, bytes=size_bytes))
            self._expect("room")
            self._known[rank] = copies

    def send_newest(self, rank: int) -> bool:
        """Send what the other node lacks of this rank, the newest last. False: nothing was lacking."""
        copies, sent = self._known[rank], False
        stamp = copies.stamp
        if self._seen.get(rank) == stamp:
            return False
        self._seen[rank] = stamp
        for copy in tuple(copies.leaving()):
            sent = True
            if self._has_gone(rank, copy):
                copies.mark_elsewhere(copy)
        return sent

    def say_bye(self) -> None:
        """Our node goes on living without this connection."""
        self._send(message("bye"))

    def _has_gone(self, rank: int, copy: Leaving) -> bool:
        """False: it was written over meanwhile."""
        self._send(message("copy", rank=rank, step=copy.step, bytes=copy.size_bytes))
        self._pour(copy.texts, 0)
        header = self._known[rank].header_for(copy, self._pour(copy.parts, 0))
        self._send(message("torn") if header is None else message("whole", header=header.hex()))
        self._expect("held")
        return header is not None

    def _pour(self, content: memoryview, found: int) -> int:
        """The sum of what was sent: the very bytes that left, whatever is written there now."""
        for at in range(0, content.nbytes, _AT_ONCE):
            began_s = self._clock()
            piece = bytes(content[at : at + _AT_ONCE])
            found = zlib.crc32(piece, found)
            self._send(piece)
            took_s = self._clock() - began_s
            self._rest(min(_LONGEST_REST_S, took_s * (1 - SHARE) / SHARE))
        return found

    def _expect(self, kind: str) -> None:
        told = self._hear()
        if told["kind"] != kind:
            raise NotHeld(str(told.get("why", f"it answers {told['kind']}")))

    def _hear(self) -> dict[str, Any]:
        line = self._stream.readline(MAX_LINE_BYTES)
        if (told := parse(line)) is None:
            raise NotHeld("the connection has ended" if not line else "it answers what is no message")
        return told
