"""The worker's end of ``FAULTRUN_SOCKET``. Loses messages rather than time: training never waits for it.

Used by the helper thread, and by the watchdog of a save: sending is locked, receiving is not.
"""

import contextlib
import os
import socket
import struct
import threading
from typing import Any

import faultrun
from faultrun.model.wire import MAX_LINE_BYTES, message, parse
from faultrun.sdk.session import Session

_SEND_TIMEOUT = struct.pack("ll", 1, 0)  # struct timeval


class Link:
    """A connection that introduces itself and comes back when it was lost. Never raises OSError."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._buffer = b""
        self._socket: socket.socket | None = None

    @property
    def fd(self) -> int | None:
        """What to wait on for messages; None while not connected."""
        return self._socket.fileno() if self._socket is not None else None

    def connect(self) -> bool:
        """Connect and say hello; False when nobody listens."""
        if self._socket is not None:
            return True
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        # not settimeout: Python would then wait that long in recv, even with MSG_DONTWAIT
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        try:
            connection.connect(self._session.socket)
        except OSError:
            connection.close()
            return False
        self._buffer = b""
        self._socket = connection
        return self.send(
            "hello",
            rank=self._session.rank,
            pid=os.getpid(),
            incarnation=self._session.incarnation,
            sdk=faultrun.__version__,
        )

    def send(self, kind: str, **fields: Any) -> bool:
        """Send one message; False when it did not get through."""
        line = message(kind, **fields)
        with self._lock:
            if self._socket is None:
                return False
            try:
                self._socket.sendall(line)
            except OSError:
                self._close()
                return False
            return True

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have arrived by now; closes the connection when it has ended."""
        if self._socket is None:
            return []
        try:
            data = self._socket.recv(MAX_LINE_BYTES, socket.MSG_DONTWAIT)
        except (BlockingIOError, TimeoutError):
            return []
        except OSError:
            data = b""
        if not data or len(self._buffer) > MAX_LINE_BYTES:
            with self._lock:
                self._close()
            return []
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [content for content in map(parse, lines) if content is not None]

    def _close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
