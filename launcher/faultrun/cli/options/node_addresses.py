"""What a text means where several nodes and their meeting place are named.

Every reader raises ``ValueError`` with the reason as a phrase that follows "because:".
"""

import re
from dataclasses import dataclass

from faultrun.cli.options.values import MOST_WORKERS, seconds, whole

ETCD_PORT = 2379
_SHORTEST_LEASE_S, _LONGEST_LEASE_S = 3, 600


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One member of etcd. ``scheme`` is http, https, or empty where it was not written."""

    scheme: str
    host: str
    port: int

    @property
    def at(self) -> str:
        """``host:port``, or ``[v6]:port``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def bare(host: str) -> str:
    """An address of IPv6 without the brackets that it may stand in."""
    return host.strip().removeprefix("[").removesuffix("]")


def nodes(text: str) -> int:
    """Torchrun's ``N`` or ``MIN:MAX``, of which the larger counts."""
    return _nodes(text)[1]


def fewest_nodes(text: str) -> int:
    """The smaller number of the same."""
    return _nodes(text)[0]


def endpoint(text: str) -> tuple[str, int | None]:
    """``host:port``, ``host`` or ``[v6]:port`` as (host, port)."""
    if (match := re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?", text.strip())) is None:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return match[1], None if match[2] is None else whole(0, 65_535)(match[2])


def endpoints(text: str) -> tuple[Endpoint, ...]:
    """``host:port`` between commas, with or without ``http://`` or ``https://``; etcd's own port if none."""
    if "@" in text:
        raise ValueError("a user or password in an address is seen by every user")
    found = []
    for part in (one.strip() for one in text.split(",") if one.strip()):
        scheme, _, rest = part.rpartition("://")
        if scheme not in ("", "http", "https"):
            raise ValueError(f"{part!r} is neither HOST:PORT nor https://HOST:PORT")
        host, port = endpoint(rest.rstrip("/"))
        found.append(Endpoint(scheme, host.strip("[]"), port or ETCD_PORT))
    return tuple(found)


def node_rank(text: str) -> int | None:
    """A whole number; None for msrun's -1, which leaves it to others."""
    return None if (number := whole(-1, MOST_WORKERS)(text)) < 0 else number


def lease_ttl(text: str) -> int:
    """Whole seconds, as etcd counts: from 3 (its own shortest is 2) to ten minutes."""
    length_s = seconds()(text)
    if length_s != int(length_s) or not _SHORTEST_LEASE_S <= length_s <= _LONGEST_LEASE_S:
        raise ValueError(
            f"{text} is not a whole number of seconds from {_SHORTEST_LEASE_S} to {_LONGEST_LEASE_S}"
        )
    return int(length_s)


def _nodes(text: str) -> tuple[int, int]:
    if (match := re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", text.strip())) is None:
        raise ValueError(f"{text!r} is neither N nor MIN:MAX")
    fewest, most = int(match[1]), int(match[2] or match[1])
    if not 0 < fewest <= most:
        raise ValueError(f"{text} holds no number of nodes")
    return fewest, most
