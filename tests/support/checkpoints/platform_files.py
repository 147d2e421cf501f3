"""The files of an Ascend platform, as its components write them."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

INITIALIZING = '{"status":"initializing"}'


def table_v1(*sizes: int, version: str = "1.0", devices: Sequence[int] | None = None) -> dict[str, Any]:
    """hccl_tools.py and the device plugin: numbers are texts. ``devices`` are those of each server."""
    first = [sum(sizes[:index]) for index in range(len(sizes))]
    return {
        "version": version,
        "status": "completed",
        "server_count": str(len(sizes)),
        "server_list": [
            {
                "server_id": f"10.0.0.{index + 1}",
                "device": [
                    {
                        "device_id": str(devices[place] if devices else place),
                        "device_ip": f"192.{place}.0.1",
                        "rank_id": str(first[index] + place),
                    }
                    for place in range(size)
                ],
                "host_nic_ip": "reserve",
            }
            for index, size in enumerate(sizes)
        ],
    }


def table_v12(*sizes: int) -> dict[str, Any]:
    """Atlas A3: super devices, and a second server_list inside super_pod_list."""
    table = table_v1(*sizes, version="1.2")
    for server in table["server_list"]:
        server["host_ip"] = server["server_id"].replace("10.0.0", "172.16.0")
        for device in server["device"]:
            device["super_device_id"] = str(100 + int(device["rank_id"]))
    members = [{"server_id": server["server_id"]} for server in table["server_list"]]
    return table | {"super_pod_list": [{"super_pod_id": "0", "server_list": members}]}


def table_v2(*sizes: int) -> dict[str, Any]:
    """Atlas A5: numbers, and no servers."""
    places = [(local, size) for size in sizes for local in range(size)]
    return {
        "status": "completed",
        "version": "2.0",
        "rank_count": len(places),
        "rank_list": [
            {
                "rank_id": rank,
                "local_id": local,
                "device_id": local,
                "level_list": [{"net_layer": 0, "net_type": "TOPO_FILE_DESC", "rank_addr_list": []}],
            }
            for rank, (local, _) in enumerate(places)
        ],
    }


def table_v0(*sizes: int) -> dict[str, Any]:
    """The legacy form: one instance a device."""
    instances = [
        {"devices": [{"device_id": str(local), "device_ip": "1.1.1.1"}], "server_id": f"10.0.0.{server + 1}"}
        for server, size in enumerate(sizes)
        for local in range(size)
    ]
    return {
        "board_id": "0x0000",
        "chip_info": "910",
        "deploy_mode": "lab",
        "group_count": "1",
        "group_list": [
            {
                "device_num": str(len(instances)),
                "server_num": str(len(sizes)),
                "instance_count": str(len(instances)),
                "instance_list": [one | {"rank_id": str(rank)} for rank, one in enumerate(instances)],
            }
        ],
        "para_plane_nic_location": "device",
        "status": "completed",
    }


def reset(ranks: Mapping[int, str], **fields: Any) -> dict[str, Any]:
    """``reset.json`` as Go marshals the device plugin's struct: rank -> status."""
    listed = [
        {
            "RankId": rank,
            "LogicId": rank,
            "Status": status,
            "Policy": "reset",
            "InitialPolicy": "reset",
            "ErrorCode": [2162434],
            "ErrorCodeHex": "20ff02",
        }
        for rank, status in ranks.items()
    ]
    usual = {
        "RankList": listed or None,
        "UpdateTime": 1_700_000_000,
        "RetryTime": 0,
        "FaultFlushing": False,
        "GracefulExit": 0,
        "RestartFaultProcess": False,
    }
    return usual | fields


class ConfigMapVolume:
    """A folder that kubelet fills: names are links through ``..data``, which is swapped in one step."""

    def __init__(self, folder: Path, **files: str) -> None:
        self.folder, self._generation = folder, 0
        folder.mkdir(parents=True, exist_ok=True)
        self.publish(**files)

    def publish(self, **files: str) -> None:
        """Replace all files; a ``_`` in a name of the call stands for a ``.``, two for a ``-``."""
        self._generation += 1
        fresh = self.folder / f"..2026_{self._generation}"
        fresh.mkdir()
        for name, content in files.items():
            (fresh / _file_name(name)).write_text(content)
        swap = self.folder / "..data_tmp"
        swap.symlink_to(fresh.name)
        swap.replace(self.folder / "..data")
        for name in map(_file_name, files):
            link = self.folder / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        self._forget_older(fresh)

    def path(self, name: str) -> Path:
        """What the program opens."""
        return self.folder / name

    def _forget_older(self, fresh: Path) -> None:
        for old in self.folder.glob("..2026_*"):
            if old != fresh:
                for file in old.iterdir():
                    file.unlink()
                old.rmdir()


def _file_name(name: str) -> str:
    return name.replace("__", "-").replace("_", ".")


def text(document: object) -> str:
    """As JSON."""
    return json.dumps(document)


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file in one step, as careful writers do."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(content.encode() if isinstance(content, str) else content)
    fresh.replace(path)
