"""A real etcd of several members, each on a host of its own, and what a test asks and does to it."""

import base64
import json
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from faultrun.nodes.etcd.own_server import NoEtcd, find_etcd
from support.machine.processes import wait_until
from support.nodes.hosts import Host, Network

_CLIENTS, _PEERS = 2379, 2380
_ANSWER_WITHIN_S = 2.0
_COMMITS_EACH_WRITE = {"ETCD_BACKEND_BATCH_LIMIT": "1", "ETCD_BACKEND_BATCH_INTERVAL": "24h"}
"""Without these, 3.5.0 to 3.5.2 may lose what they have answered when they are killed."""


class EtcdCluster:
    """Members by the names of their hosts. Every question goes to one member, over its JSON gateway."""

    def __init__(self, network: Network, members: Sequence[str], folder: Path) -> None:
        try:
            self._program = find_etcd()
        except NoEtcd as error:
            pytest.skip(str(error))
        self._network = network
        self._folder = folder
        self.members = {name: network[name] for name in members}

    @property
    def endpoints(self) -> str:
        """As ``--rdzv-endpoint`` takes them."""
        return ",".join(f"{host.address}:{_CLIENTS}" for host in self.members.values())

    def start(self) -> None:
        """Start all members and wait for a leader that all of them follow."""
        for host in self.members.values():
            self.start_member(host)
        self.await_leader()

    def start_member(self, host: Host) -> "subprocess.Popen[bytes]":
        """Start one, with what it had before."""
        clients, peers = f"http://{host.address}:{_CLIENTS}", f"http://{host.address}:{_PEERS}"
        members = ",".join(f"{name}=http://{one.address}:{_PEERS}" for name, one in self.members.items())
        options = {
            "name": host.name,
            "data-dir": self._folder / host.name,
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": members,
            "log-level": "error",
        }
        argv = [str(self._program), *(f"--{name}={value}" for name, value in options.items())]
        return host.start(argv, log=self._folder / f"{host.name}.log", environ=_COMMITS_EACH_WRITE)

    def leader(self, asked: Sequence[Host] | None = None) -> Host | None:
        """Whom all of ``asked`` follow, every member if nobody is named; None while they do not agree."""
        ids, leaders = {}, set()
        for host in asked or tuple(self.members.values()):
            status = self._status(host)
            if status is None:
                return None
            ids[status["header"]["member_id"]] = host
            leaders.add(status.get("leader", "0"))
        return ids.get(leaders.pop()) if len(leaders) == 1 else None

    def await_leader(self, asked: Sequence[Host] | None = None) -> Host:
        """The same, once there is one."""
        return wait_until(lambda: self.leader(asked), what="an etcd leader that all follow")

    def put(
        self, key: str, value: str, through: Host | None = None, *, within_s: float = _ANSWER_WITHIN_S
    ) -> None:
        """Write a key; OSError if no answer comes in time, ValueError for a refusal."""
        self._ask(through, "kv/put", {"key": _encoded(key), "value": _encoded(value)}, within_s)

    def await_put(self, key: str, value: str, through: Host | None = None) -> None:
        """The same, again and again until it is done."""

        def written() -> bool:
            with suppress(OSError, ValueError):
                self.put(key, value, through)
                return True
            return False

        wait_until(written, what=f"a write of {key}")

    def get(self, key: str, through: Host | None = None, *, within_s: float = _ANSWER_WITHIN_S) -> str | None:
        """Read a key as the majority knows it; None if it is not there."""
        found = self._ask(through, "kv/range", {"key": _encoded(key)}, within_s).get("kvs", [])
        return base64.b64decode(found[0]["value"]).decode() if found else None

    def await_get(self, key: str, through: Host | None = None) -> str | None:
        """The same, once there is an answer: a link that was cut carries messages only after a while."""

        def answered() -> tuple[str | None] | None:
            with suppress(OSError, ValueError):
                return (self.get(key, through),)
            return None

        return wait_until(answered, what=f"an answer about {key}")[0]

    def _status(self, host: Host) -> dict[str, Any] | None:
        with suppress(OSError, ValueError):
            return self._ask(host, "maintenance/status", {})
        return None

    def _ask(
        self, host: Host | None, what: str, question: dict[str, str], within_s: float = _ANSWER_WITHIN_S
    ) -> dict[str, Any]:
        to = host or next(iter(self.members.values()))
        with self._network.desk.inside():
            connection = HTTPConnection(to.address, _CLIENTS, timeout=within_s)
            connection.connect()
        try:
            connection.request("POST", f"/v3/{what}", json.dumps(question))
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        except HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        if response.status != 200:
            raise ValueError(answer.get("error", response.status))
        return answer


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
