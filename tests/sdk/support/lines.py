"""Connections of workers, read line by line by the thread that selects."""

import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from faultrun.model.wire import MAX_LINE_BYTES, parse

Hear = Callable[[socket.socket, dict[str, Any]], None]
"""Given each message of a connection; ``at_s`` in it is when it came."""


def answer(selector: selectors.BaseSelector, patience_s: float) -> None:
    """Have what is ready heard; who has ended (its pidfd is a number) only once all that it said is."""
    ready = [key for key, _ in selector.select(patience_s)]
    said = [key for key in ready if not isinstance(key.fileobj, int)]
    for key in said or ready:
        key.data()


def accept(listener: socket.socket, selector: selectors.BaseSelector, hear: Hear) -> None:
    """Take one connection, and have what comes over it heard until it hangs up."""
    peer, _ = listener.accept()
    buffer = bytearray()
    selector.register(peer, selectors.EVENT_READ, lambda: _read(peer, buffer, selector, hear))


def _read(peer: socket.socket, buffer: bytearray, selector: selectors.BaseSelector, hear: Hear) -> None:
    try:
        data = peer.recv(MAX_LINE_BYTES)
    except OSError:
        data = b""
    if not data:
        selector.unregister(peer)
        peer.close()
        return
    buffer += data
    *lines, rest = bytes(buffer).split(b"\n")
    buffer[:] = rest
    for content in filter(None, map(parse, lines)):
        hear(peer, {**content, "at_s": time.monotonic()})
