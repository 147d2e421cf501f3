"""A rank table with fewer devices: that of a world which goes on without some of them. Pure.

Nothing is made up: what is left stands as the platform wrote it, addresses and keys that are unknown here
too, and only ranks and counts are those of the smaller world. The formats are those of ``rank_table``.
"""

import json
from collections.abc import Collection
from typing import Any

from faultrun.platforms.rank_table.rank_table import parse_rank_table
from faultrun.platforms.untrusted_files import json_object


def smaller_table(content: bytes, left: Collection[int]) -> bytes:
    """The table with the ranks ``left`` alone, numbered anew in their order.

    Raises what ``parse_rank_table`` raises, also for what came out; ValueError for a rank not in it.
    """
    ranks = {place.rank for server in parse_rank_table(content).servers for place in server.places}
    if not left or not set(left) <= ranks:
        raise ValueError(f"it names {len(ranks)} ranks, and {sorted(left)} are to be left")
    number = {rank: index for index, rank in enumerate(sorted(left))}
    document: dict[str, Any] = dict(json_object(content))
    if "server_list" in document:
        _of_servers(document, number)
    elif "rank_list" in document:
        document["rank_list"] = _renumbered(document["rank_list"], number)
        _count(document, "rank_count", len(number))
    else:
        _of_groups(document, number)
    made = json.dumps(document).encode()
    parse_rank_table(made)
    return made


def _of_servers(document: dict[str, Any], number: dict[int, int]) -> None:
    servers = [{**one, "device": _renumbered(one["device"], number)} for one in document["server_list"]]
    document["server_list"] = [one for one in servers if one["device"]]
    _count(document, "server_count", len(document["server_list"]))
    _of_super_pods(document, {_id_of(one) for one in document["server_list"]})


def _of_super_pods(document: dict[str, Any], servers: Collection[str]) -> None:
    """Leave gone servers out of version 1.2's super pods: HCCL refuses a table that names one of no rank.

    What is no list of them stays as it was written.
    """
    pods = document.get("super_pod_list")
    if isinstance(pods, list) and all(isinstance(_servers_of(pod), list) for pod in pods):
        left = [
            {**pod, "server_list": [one for one in _servers_of(pod) if _id_of(one) in servers]}
            for pod in pods
        ]
        document["super_pod_list"] = [pod for pod in left if pod["server_list"]]


def _servers_of(pod: object) -> Any:
    return pod.get("server_list") if isinstance(pod, dict) else None


def _id_of(server: object) -> str:
    return str(server.get("server_id")) if isinstance(server, dict) else ""


def _of_groups(document: dict[str, Any], number: dict[int, int]) -> None:
    """The legacy form numbers its devices by their order, unless every instance is one and says its rank."""
    old = 0
    for group in document["group_list"]:
        kept = []
        for instance in group["instance_list"]:
            size = len(instance["devices"])
            first = int(instance["rank_id"]) if "rank_id" in instance and size == 1 else old
            old += size
            devices = [one for index, one in enumerate(instance["devices"]) if first + index in number]
            if devices and "rank_id" in instance and size == 1:
                rank = _like(instance["rank_id"], number[first])
                kept.append({**instance, "devices": devices, "rank_id": rank})
            elif devices:
                kept.append({**instance, "devices": devices})
        group["instance_list"] = kept
        _count(group, "instance_count", len(kept))
        _count(group, "device_num", sum(len(one["devices"]) for one in kept))
    document["group_list"] = [group for group in document["group_list"] if group["instance_list"]]
    _count(document, "group_count", len(document["group_list"]))


def _renumbered(entries: list[dict[str, Any]], number: dict[int, int]) -> list[dict[str, Any]]:
    """Those that are left, with their new ranks."""
    return [
        {**one, "rank_id": _like(one["rank_id"], number[int(one["rank_id"])])}
        for one in entries
        if int(one["rank_id"]) in number
    ]


def _count(holder: dict[str, Any], key: str, count: int) -> None:
    if key in holder:
        holder[key] = _like(holder[key], count)


def _like(before: object, number: int) -> object:
    """A text where there was a text."""
    return str(number) if isinstance(before, str) else number
