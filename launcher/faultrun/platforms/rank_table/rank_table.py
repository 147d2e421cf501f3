"""Ascend's rank table (``hccl.json``) as values: which rank runs on which device of which server.

Formats: version 1.x ``server_list[].device[]`` with texts for numbers (1.2 has a second, nested
``server_list`` that says nothing about devices), 2.0 ``rank_list[]`` with numbers and without servers, and
the legacy ``group_list[].instance_list[].devices[]``. A table that is still being written says
``{"status": "initializing"}`` and nothing else. Ranks and devices are those of the table, never
computed from an order of servers. ``rank_table/wait`` waits for a table.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from faultrun.platforms.this_machine import device_files
from faultrun.platforms.untrusted_files import Unfinished, json_object, read_bounded

MOST_TABLE_BYTES = 4 << 20
NODE_VARIABLES = ("XDL_IP", "POD_IP")
"""Hold an address of our node or pod; one of them is this server's name in the table."""

_VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
_MOST_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """One rank's device. ``server`` tells servers apart; ``names`` are what it is called, if anything."""

    rank: int
    device: int
    server: str
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server: the names it goes by, and its places in the order of their ranks."""

    names: frozenset[str]
    places: tuple[RankPlace, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Its global ranks, ascending: local rank i is the i-th of them."""
        return tuple(place.rank for place in self.places)

    @property
    def devices(self) -> tuple[int, ...]:
        """The device of each local rank."""
        return tuple(place.device for place in self.places)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTable:
    """A finished table. ``servers`` are ordered by their lowest rank, not as the file lists them."""

    servers: tuple[Server, ...]

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return sum(len(server.places) for server in self.servers)

    def server_of(self, names: Collection[str]) -> Server:
        """The server that is called exactly one of ``names``; the only one needs no name.

        ValueError lists what the table has when none or several are.
        """
        if len(self.servers) == 1:
            return self.servers[0]
        found = [server for server in self.servers if server.names & set(names)]
        if len(found) == 1:
            return found[0]
        known = " ".join(sorted(name for server in self.servers for name in server.names)) or "none by name"
        asked = " ".join(sorted(names)) or "without XDL_IP or POD_IP"
        raise ValueError(f"{len(found)} of its servers are this node ({asked}); it has {known}")


def parse_rank_table(content: bytes) -> RankTable:
    """Read and check a table.

    Unfinished while it says so, or is not whole JSON; ValueError with the reason if it will never be right.
    """
    document = json_object(content)
    match document.get("status"):
        case "completed" | None:
            pass
        case "initializing":
            raise Unfinished('its status is "initializing", not "completed"')
        case status:
            raise ValueError(f'its status is "{str(status)[:40]}", not "completed"')
    if not (places := _places_of(document)):
        raise ValueError("it names no device")
    _check_ranks(places)
    _check_devices(places)
    table = RankTable(servers=_servers(places))
    _check_declared(document, table)
    return table


def read_rank_table(path: str) -> RankTable:
    """Read the file once, as it is now. Raises OSError, and what ``parse_rank_table`` raises."""
    return parse_rank_table(read_bounded(Path(path), MOST_TABLE_BYTES))


def node_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What this node may be called in a table."""
    return tuple(environ[name] for name in NODE_VARIABLES if environ.get(name))


def seen_devices(devices: Sequence[int], environ: Mapping[str, str], dev: Path) -> tuple[int, ...]:
    """``DEVICE_ID`` of each local rank, for the devices that a table gives it.

    A table holds physical numbers. The CANN runtime counts from 0 the device
    files that it finds in ``dev`` (a container has only its own: davinci4 alone
    is device 0), and then once more those that ``ASCEND_RT_VISIBLE_DEVICES`` lists.
    """
    present = sorted(int(name.removeprefix("davinci")) for name in device_files(dev, "npu"))
    listed = sorted({int(part) for part in environ.get(_VISIBLE, "").split(",") if part.strip().isdigit()})
    return _renumbered(_renumbered(tuple(devices), present), listed)


def _renumbered(devices: tuple[int, ...], among: Sequence[int]) -> tuple[int, ...]:
    """Places in ``among``; unchanged if some are not in it, because then it is not about these devices."""
    return tuple(among.index(device) for device in devices) if set(devices) <= set(among) else devices


def _servers(places: Sequence[RankPlace]) -> tuple[Server, ...]:
    by_server: dict[str, list[RankPlace]] = {}
    for place in sorted(places, key=lambda place: place.rank):
        by_server.setdefault(place.server, []).append(place)
    return tuple(
        Server(names=frozenset().union(*(place.names for place in group)), places=tuple(group))
        for group in by_server.values()
    )


def _check_ranks(places: Sequence[RankPlace]) -> None:
    ranks = sorted(place.rank for place in places)
    if ranks == list(range(len(ranks))):
        return
    if twice := [rank for rank, group in groupby(ranks) if len(list(group)) > 1]:
        raise ValueError(f"it gives rank {twice[0]} to several devices")
    missing = next(rank for rank in range(len(ranks)) if rank not in set(ranks))
    raise ValueError(f"it names {len(ranks)} ranks up to {ranks[-1]}, and rank {missing} is not among them")


def _check_devices(places: Sequence[RankPlace]) -> None:
    (place, count), *_ = Counter((place.server, place.device) for place in places).most_common(1)
    if count > 1:
        raise ValueError(f"it gives device {place[1]} of server {place[0]} to {count} ranks")


def _check_declared(document: Mapping[str, object], table: RankTable) -> None:
    """What the table says of its own size must be so: half of a table is a table too."""
    sizes = [len(server.places) for server in table.servers]
    for key, real in (("server_count", len(sizes)), ("rank_count", sum(sizes))):
        if (declared := document.get(key)) is not None and str(declared) != str(real):
            raise ValueError(f"it says {key} {str(declared)[:20]} and names {real}")
    if len(set(sizes)) > 1:
        what = f"its servers have {' and '.join(map(str, sorted(set(sizes))))} devices, not as many each"
        raise ValueError(what)


def _places_of(document: Mapping[str, object]) -> list[RankPlace]:
    """The places that ``document`` names, in its own order; ValueError for what is no rank table."""
    if "server_list" in document:
        return _by_servers(_objects(document, "server_list"))
    if "rank_list" in document:
        return _by_ranks(_objects(document, "rank_list"))
    if "group_list" in document:
        return _by_groups(_objects(document, "group_list"))
    raise ValueError("it has neither server_list nor rank_list nor group_list")


def _objects(holder: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    """The list of objects under ``key``."""
    found = holder.get(key)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ValueError(f"its {key} is not a list of objects")
    return found


def _by_servers(servers: Sequence[Mapping[str, object]]) -> list[RankPlace]:
    """Version 1.0 and 1.2. A server may be known by its id or by its host's or its container's address."""
    places: list[RankPlace] = []
    seen: set[str] = set()
    for server in servers:
        if (name := _name(server)) in seen:
            raise ValueError(f"it lists server {name} twice")
        seen.add(name)
        keys = ("server_id", "host_ip", "container_ip")
        names = frozenset(str(server[key]) for key in keys if server.get(key))
        devices = ((_number(one, "rank_id"), _number(one, "device_id")) for one in _objects(server, "device"))
        places += [RankPlace(rank=rank, device=device, server=name, names=names) for rank, device in devices]
    return places


def _by_ranks(ranks: Sequence[Mapping[str, object]]) -> list[RankPlace]:
    """Version 2.0 names no servers: in the order of the ranks a new one begins where ``local_id`` does."""
    places: list[RankPlace] = []
    server, last = -1, -1
    for rank in sorted(ranks, key=lambda one: _number(one, "rank_id")):
        if (local := _number(rank, "local_id")) <= last or server < 0:
            server += 1
        last = local
        device = _number(rank, "device_id")
        places.append(RankPlace(rank=_number(rank, "rank_id"), device=device, server=str(server)))
    return places


def _by_groups(groups: Sequence[Mapping[str, object]]) -> list[RankPlace]:
    """The legacy form: an instance is one device with its rank, or a pod with several in rank order."""
    instances = [one for group in groups for one in _instances(group)]
    sizes = [len(_objects(one, "devices")) for one in instances]
    firsts = [sum(sizes[:index]) for index in range(len(sizes))]
    if all("rank_id" in one for one in instances):
        named = [_number(one, "rank_id") for one in instances]
        if set(sizes) <= {1}:
            firsts = named
        elif named not in (firsts, list(range(len(named)))):
            raise ValueError("its instances of several devices are not in the order of their ranks")
    return [
        RankPlace(
            rank=first + index,
            device=_number(device, "device_id"),
            server=_name(instance),
            names=frozenset({_name(instance)}),
        )
        for instance, first in zip(instances, firsts, strict=True)
        for index, device in enumerate(_objects(instance, "devices"))
    ]


def _instances(group: Mapping[str, object]) -> list[Mapping[str, object]]:
    """A group's instances. ``device_num`` counts all its devices, or those of one server."""
    instances = _objects(group, "instance_list")
    real = sum(len(_objects(one, "devices")) for one in instances)
    servers = len({_name(one) for one in instances}) or 1
    if "device_num" in group and _number(group, "device_num") not in (real, real / servers):
        raise ValueError(f"it says device_num {group['device_num']} and names {real}")
    return instances


def _name(server: Mapping[str, object]) -> str:
    name = server.get("server_id")
    if not isinstance(name, str | int) or isinstance(name, bool) or not str(name).strip():
        raise ValueError("a server of it has no server_id")
    return str(name)


def _number(holder: Mapping[str, object], key: str) -> int:
    """A whole number, or a text of nothing but digits: no sign, no blank, no point."""
    value = holder.get(key)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS:
        return int(value)
    if type(value) is int and 0 <= value < 10**_MOST_DIGITS:
        return value
    if value is None:
        raise ValueError(f"a rank of it has no {key}")
    raise ValueError(f"{str(value)[:20]!r} is no {key}")
