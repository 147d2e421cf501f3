"""The three forms of a rank table, each read into places. ``rank_table`` checks what a table must keep to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_MOST_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One rank's device. ``server`` tells servers apart; ``names`` are what it is called, if anything."""

    rank: int
    device: int
    server: str
    names: frozenset[str] = frozenset()


def places_of(document: Mapping[str, object]) -> list[Place]:
    """The places that ``document`` names, in its own order; ValueError for what is no rank table."""
    if "server_list" in document:
        return _by_servers(objects(document, "server_list"))
    if "rank_list" in document:
        return _by_ranks(objects(document, "rank_list"))
    if "group_list" in document:
        return _by_groups(objects(document, "group_list"))
    raise ValueError("it has neither server_list nor rank_list nor group_list")


def objects(holder: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    """The list of objects under ``key``."""
    found = holder.get(key)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ValueError(f"its {key} is not a list of objects")
    return found


def _by_servers(servers: Sequence[Mapping[str, object]]) -> list[Place]:
    """Version 1.0 and 1.2. A server may be known by its id or by its host's or its container's address."""
    places: list[Place] = []
    seen: set[str] = set()
    for server in servers:
        name = _name(server)
        if name in seen:
            raise ValueError(f"it lists server {name} twice")
        seen.add(name)
        names = frozenset(
            str(server[key]) for key in ("server_id", "host_ip", "container_ip") if server.get(key)
        )
        places += [
            Place(
                rank=_number(device, "rank_id"), device=_number(device, "device_id"), server=name, names=names
            )
            for device in objects(server, "device")
        ]
    return places


def _by_ranks(ranks: Sequence[Mapping[str, object]]) -> list[Place]:
    """Version 2.0 names no servers: in the order of the ranks a new one begins where ``local_id`` does."""
    places: list[Place] = []
    server, last = -1, -1
    for rank in sorted(ranks, key=lambda one: _number(one, "rank_id")):
        local = _number(rank, "local_id")
        if local <= last or server < 0:
            server += 1
        last = local
        places.append(
            Place(rank=_number(rank, "rank_id"), device=_number(rank, "device_id"), server=str(server))
        )
    return places


def _by_groups(groups: Sequence[Mapping[str, object]]) -> list[Place]:
    """The legacy form: an instance is one device with its rank, or a pod with several in rank order."""
    instances = [one for group in groups for one in _instances(group)]
    sizes = [len(objects(one, "devices")) for one in instances]
    firsts = [sum(sizes[:index]) for index in range(len(sizes))]
    if all("rank_id" in one for one in instances):
        named = [_number(one, "rank_id") for one in instances]
        if set(sizes) <= {1}:
            firsts = named
        elif named not in (firsts, list(range(len(named)))):
            raise ValueError("its instances of several devices are not in the order of their ranks")
    return [
        Place(
            rank=first + index,
            device=_number(device, "device_id"),
            server=_name(instance),
            names=frozenset({_name(instance)}),
        )
        for instance, first in zip(instances, firsts, strict=True)
        for index, device in enumerate(objects(instance, "devices"))
    ]


def _instances(group: Mapping[str, object]) -> list[Mapping[str, object]]:
    """A group's instances. ``device_num`` counts all its devices, or those of one server."""
    instances = objects(group, "instance_list")
    real = sum(len(objects(one, "devices")) for one in instances)
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
