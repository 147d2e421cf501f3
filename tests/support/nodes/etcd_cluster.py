"""A real etcd for a test: one member beside it, or a cluster of members on hosts of their own."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from faultrun.nodes.etcd import own_server
from faultrun.workers.process import die_with
from support.machine.free_port import free_port
from support.machine.processes import wait_until
from support.nodes.hosts import Host, Network

_CLIENTS, _PEERS = 2379, 2380
_ANSWER_WITHIN_S = 2.0
_NONE = "no etcd in PATH, and faultrun[etcd] is not installed"
_COMMITS_EACH_WRITE = {"ETCD_BACKEND_BATCH_LIMIT": "1", "ETCD_BACKEND_BATCH_INTERVAL": "24h"}
"""Without these, 3.5.0 to 3.5.2 may lose what they have answered when they are killed."""


def programs() -> dict[str, Path]:
    """Every etcd that this machine has, by its version."""
    found = [shutil.which("etcd"), own_server.etcd_of_package()]
    return {_version(Path(program)): Path(program) for program in found if program}


def newest_program() -> Path:
    """The newest of them; the test is skipped where there is none."""
    found = programs()
    if not found:
        pytest.skip(_NONE)
    return found[max(found)]


def _version(program: Path) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[2]


@dataclass
class EtcdMember:
    """A member, alone if ``cluster`` names no others; ``options`` are etcd's, beside addresses and data."""

    program: Path
    folder: Path
    name: str = "alone"
    options: tuple[str, ...] = ("--heartbeat-interval=50", "--election-timeout=500")
    secure: bool = False
    address: str = "127.0.0.1"
    port: int = field(default_factory=free_port)
    peer_port: int = 0
    cluster: str = ""

    def __post_init__(self) -> None:
        while self.peer_port in (0, self.port):
            self.peer_port = free_port()

    @property
    def endpoint(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def command(self) -> list[str | Path]:
        """What starts it, again with its data if it had any."""
        url, peer_url = (
            f"http{'s' if self.secure else ''}://{self.endpoint}",
            f"http://{self.address}:{self.peer_port}",
        )
        words = {
            "name": self.name,
            "data-dir": self.folder / self.name,
            "listen-client-urls": url,
            "advertise-client-urls": url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": self.cluster or f"{self.name}={peer_url}",
            "initial-cluster-token": self.folder.name,
        }
        return [self.program, *(f"--{word}={value}" for word, value in words.items()), *self.options]

    def start(self) -> None:
        """Start it beside the test; returns at once."""
        parent = os.getpid()
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: die_with(parent),  # noqa: PLW1509  no lock is taken in it
            )

    def wait(self) -> None:
        """Return once it has a leader."""
        wait_until(self._healthy, while_runs=self.pid, what=f"etcd {self.name}")

    def kill(self) -> None:
        """SIGKILL, and reap."""
        self._process.kill()
        self._process.wait()

    def _healthy(self) -> bool:
        if self.secure:
            return b"ready to serve client requests" in (self.folder / f"{self.name}.log").read_bytes()
        asked = HTTPConnection(self.address, self.port, timeout=1)
        with contextlib.suppress(OSError, HTTPException), contextlib.closing(asked):
            asked.request("GET", "/health")
            return b'"true"' in asked.getresponse().read()
        return False


@contextlib.contextmanager
def running(member: EtcdMember) -> Iterator[EtcdMember]:
    """It serves inside of the block, and is gone after it."""
    member.start()
    try:
        member.wait()
        yield member
    finally:
        member.kill()


@contextlib.contextmanager
def one_etcd(folder: Path, program: Path | None = None) -> Iterator[EtcdMember]:
    """A member alone, with its data in ``folder``; the newest program if none is given."""
    with running(EtcdMember(program=program or newest_program(), folder=folder)) as member:
        yield member


class EtcdCluster:
    """Members by the names of their hosts."""

    def __init__(
        self, network: Network, members: Sequence[str], folder: Path, program: Path | None = None
    ) -> None:
        self._program = program or newest_program()
        self._network, self._folder = network, folder
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
        member = EtcdMember(
            program=self._program,
            folder=self._folder,
            name=host.name,
            options=("--log-level=error",),
            address=host.address,
            port=_CLIENTS,
            peer_port=_PEERS,
            cluster=",".join(f"{name}=http://{one.address}:{_PEERS}" for name, one in self.members.items()),
        )
        return host.start(member.command, log=self._folder / f"{host.name}.log", environ=_COMMITS_EACH_WRITE)

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

    def _status(self, host: Host) -> dict[str, Any] | None:
        """What the member on ``host`` says of itself; None while it does not answer."""
        with self._network.desk.inside():
            asked = HTTPConnection(host.address, _CLIENTS, timeout=_ANSWER_WITHIN_S)
            with contextlib.suppress(OSError, HTTPException, ValueError), contextlib.closing(asked):
                asked.request("POST", "/v3/maintenance/status", "{}")
                response = asked.getresponse()
                status: dict[str, Any] = json.loads(response.read())
                return status if response.status == 200 else None
        return None
