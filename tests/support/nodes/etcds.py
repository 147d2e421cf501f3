"""A real etcd for a test, which is killed and started again as that likes, and never left behind."""

import contextlib
import http.client
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from faultrun.nodes.etcd import own_server
from faultrun.workers.process import die_with
from support.machine.free_port import free_port
from support.machine.processes import wait_until


def programs() -> dict[str, Path]:
    """Every etcd that this machine has, by its version."""
    found = [shutil.which("etcd"), own_server.etcd_of_package()]
    return {_version(Path(program)): Path(program) for program in found if program}


def _version(program: Path) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[2]


@dataclass
class Member:
    """A cluster of one member; ``options`` are etcd's, beside addresses and data."""

    program: Path
    folder: Path
    name: str = "alone"
    options: tuple[str, ...] = ("--heartbeat-interval=50", "--election-timeout=500")
    secure: bool = False
    host: str = "127.0.0.1"
    port: int = field(default_factory=free_port)
    peer_port: int = 0

    def __post_init__(self) -> None:
        while self.peer_port in (0, self.port):
            self.peer_port = free_port()

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def peer_url(self) -> str:
        return f"http://{self.host}:{self.peer_port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start it, again with its data after ``kill``; returns at once."""
        url = f"http{'s' if self.secure else ''}://{self.host}:{self.port}"
        words = {
            "name": self.name,
            "data-dir": self.folder / self.name,
            "listen-client-urls": url,
            "advertise-client-urls": url,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": f"{self.name}={self.peer_url}",
            "initial-cluster-token": self.folder.name,
        }
        parent = os.getpid()
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.program, *(f"--{word}={value}" for word, value in words.items()), *self.options],
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
        asked = http.client.HTTPConnection(self.host, self.port, timeout=1)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(asked):
            asked.request("GET", "/health")
            return b'"true"' in asked.getresponse().read()
        return False


@contextlib.contextmanager
def running(member: Member) -> Iterator[Member]:
    """It serves inside of the block, and is gone after it."""
    member.start()
    try:
        member.wait()
        yield member
    finally:
        member.kill()
