"""Ports that will still be free when a worker binds them."""

import random
import socket
from pathlib import Path

_FALLBACK_EPHEMERAL_LOW, _LOWEST = 32768, 20000


def is_free(address: str, port: int) -> bool:
    """Whether a listener could be bound to ``address:port`` now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def fresh_port(address: str, avoid: frozenset[int]) -> int:
    """A free port below the kernel's range for outgoing connections.

    A port that ``bind(0)`` gives away can be taken by any outgoing connection
    before the worker binds it, one or two seconds later; one from below that
    range can only be taken by another listener. OSError: none is free.
    """
    low = min(_LOWEST, _ephemeral_low() - 1000)
    candidates = random.sample(range(low, _ephemeral_low()), k=200)
    for port in candidates:
        if port not in avoid and is_free(address, port):
            return port
    raise OSError(f"no free port on {address} in {low}-{_ephemeral_low() - 1}")


def _ephemeral_low() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
        return max(int(text.split()[0]), 11000)
    except (OSError, ValueError, IndexError):
        return _FALLBACK_EPHEMERAL_LOW
