"""Ports that will still be free when a worker binds them, and whether one of another machine is open."""

import errno
import random
import socket
from pathlib import Path

_FALLBACK_EPHEMERAL_LOW, _LOWEST = 32768, 20000
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES, errno.EPERM})
_ANSWERS_S = 4.0
"""The kernel asks again after one second and after three."""

PortRange = tuple[int, int]
"""The first and the last of those that firewalls leave open."""


def is_free(address: str, port: int) -> bool:
    """Whether a listener could be bound to ``address:port`` now."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def fresh_port(address: str, avoid: frozenset[int], ports: PortRange | None = None) -> int:
    """A free port of ``ports``, without them one below the kernel's range for outgoing connections.

    A port that ``bind(0)`` gives away can be taken by any outgoing connection
    before the worker binds it, one or two seconds later; one from below that
    range can only be taken by another listener. OSError: none is free.
    """
    low, high = ports or (min(_LOWEST, _ephemeral_low() - 1000), _ephemeral_low() - 1)
    candidates = random.sample(range(low, high + 1), k=min(200, high + 1 - low))
    for port in sorted(candidates, key=avoid.__contains__):  # in a small range their turn comes again
        if is_free(address, port):
            return port
    raise OSError(f"no free port on {address} in {low}-{high}")


def port_in(address: str, ports: PortRange | None) -> int:
    """A free port of ``ports`` to listen at, else 0, which has the kernel choose. OSError: none is free."""
    return 0 if ports is None else fresh_port(address, frozenset(), ports)


def is_shut(address: str, port: int) -> bool:
    """Whether none answers from ``address:port``: a machine on which none listens says so at once."""
    try:
        socket.create_connection((address, port), timeout=_ANSWERS_S).close()
    except OSError as error:
        return isinstance(error, TimeoutError) or error.errno in _UNREACHABLE
    return False


def _ephemeral_low() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
        return max(int(text.split()[0]), 11000)
    except (OSError, ValueError, IndexError):
        return _FALLBACK_EPHEMERAL_LOW
