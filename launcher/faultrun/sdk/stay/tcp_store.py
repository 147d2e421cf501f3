"""A rank's end of the store over which ranks of several nodes become one process group again.

Knows nothing of a framework. Every wait is short: who waits for a peer looks in between whether the group
that is being formed is over.
"""

import socket
import threading
from collections.abc import Sequence
from typing import Any

from faultrun.model.observed.rendezvous_store import meeting_seal
from faultrun.model.wire import MAX_LINE_BYTES, message, parse

_ANSWER_S = 10.0
"""Beyond what a question says that it waits for: the store's machine is slow, or gone."""


class RendezvousClient:
    """Connected to ``address`` (host:port) as one who knows ``secret``. OSError, always, when it is gone."""

    def __init__(self, address: str, secret: str, within_s: float) -> None:
        host, _, port = address.rpartition(":")
        self._unread = b""
        self._lock = threading.Lock()
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=within_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nonce = str(self._heard(within_s).get("nonce", ""))
            self._socket.sendall(message("hello", seal=meeting_seal(secret, nonce)))
        except BaseException:
            self._socket.close()
            raise

    def set(self, key: str, value: bytes) -> None:
        """Write one key."""
        self._ask("set", key=key, value=value.hex())

    def get(self, keys: Sequence[str], within_s: float) -> list[bytes] | None:
        """The values of ``keys``, once all are there; None: they were not in time."""
        values = self._ask("get", within_s, keys=list(keys), within_s=within_s)["values"]
        return None if len(values) < len(keys) else [bytes.fromhex(one) for one in values]

    def add(self, key: str, amount: int) -> int:
        """Add to a number that begins at 0; what it is now."""
        return int(self._ask("add", key=key, amount=amount)["number"])

    def swap(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Write ``desired`` where ``expected`` is; what is there now."""
        answer = self._ask("swap", key=key, expected=expected.hex(), desired=desired.hex())
        return bytes.fromhex(answer["values"][0])

    def drop(self, key: str) -> bool:
        """Remove one key; whether it was there."""
        return bool(self._ask("drop", key=key)["number"])

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _ask(self, kind: str, waits_s: float = 0.0, **fields: Any) -> dict[str, Any]:
        with self._lock:
            self._socket.sendall(message(kind, **fields))
            return self._heard(waits_s + _ANSWER_S)

    def _heard(self, within_s: float) -> dict[str, Any]:
        self._socket.settimeout(within_s)
        while b"\n" not in self._unread:
            part = self._socket.recv(MAX_LINE_BYTES)
            if not part or len(self._unread) > MAX_LINE_BYTES:
                raise ConnectionError("the store over which ranks meet has hung up")
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        if (answer := parse(line)) is None:
            raise ConnectionError("the store over which ranks meet gave an answer that is not understood")
        return answer

    def __del__(self) -> None:
        try:
            self._socket.close()
        except (OSError, AttributeError):
            return  # it was never connected
