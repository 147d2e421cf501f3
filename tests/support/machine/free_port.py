"""A port that nobody listens at right now, and that no connection is given meanwhile."""

import random
import socket
from contextlib import suppress

_BELOW_THOSE_OF_CONNECTIONS = range(20_000, 29_000)
"""The kernel gives these to nobody who does not ask for them by number."""


def free_port() -> int:
    """One of thousands: another test that asks at the same time gets another."""
    for port in random.sample(_BELOW_THOSE_OF_CONNECTIONS, 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("a hundred ports are taken")
