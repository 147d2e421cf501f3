"""An etcd of three members on this machine, as long as a benchmark needs it."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

from benchmarks.harness.benchmark import NotMeasured
from benchmarks.harness.procfs import cpu_s, rss_mib

_MEMBERS = 3
_ANSWERS_WITHIN_S = 20.0
_LOOK_AGAIN_S = 0.05
CLIENTS, _PEERS = 2379, 2380
"""Where members listen, each at an address of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Etcd:
    """Where its members listen for clients, and their processes."""

    endpoints: tuple[tuple[str, int], ...]
    pids: tuple[int, ...]

    @property
    def used_cpu_s(self) -> float:
        """Processor time of all members so far."""
        return sum(map(cpu_s, self.pids))

    @property
    def largest_mib(self) -> float:
        """Memory of the largest member now."""
        return max(map(rss_mib, self.pids))


def missing(contender: str) -> str:
    """Why there is no etcd here; empty if there is one."""
    del contender
    return "" if shutil.which("etcd") else "no etcd on the PATH"


@contextmanager
def three_members(folder: Path) -> Iterator[Etcd]:
    """Start them at addresses of the loopback, and wait until all answer; they are killed at the end."""
    addresses = {f"m{at}": f"127.77.0.{at}" for at in range(1, _MEMBERS + 1)}
    with ExitStack() as stack:
        members = [start_member(folder, name, addresses) for name in addresses]
        for member in members:
            stack.callback(member.wait)
            stack.callback(member.kill)
        await_members(addresses)
        yield Etcd(
            endpoints=tuple((address, CLIENTS) for address in addresses.values()),
            pids=tuple(member.pid for member in members),
        )


def start_member(folder: Path, name: str, members: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start the one called ``name`` where the calling thread is; ``members`` have an address each."""
    client, peer = f"http://{members[name]}:{CLIENTS}", f"http://{members[name]}:{_PEERS}"
    options = {
        "name": name,
        "data-dir": folder / name,
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": ",".join(f"{one}=http://{address}:{_PEERS}" for one, address in members.items()),
        "log-level": "error",
    }
    words = (f"--{option}={value}" for option, value in options.items())
    command = [str(shutil.which("etcd")), *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def await_members(members: Mapping[str, str]) -> None:
    """Wait until each of them answers."""
    for address in members.values():
        _wait_for(address)


def leader(members: Mapping[str, str]) -> str:
    """The name of the member that the others follow. OSError where none answers."""
    ids, leaders = {}, []
    for name, address in members.items():
        asked = Request(f"http://{address}:{CLIENTS}/v3/maintenance/status", data=b"{}", method="POST")
        with urlopen(asked, timeout=_ANSWERS_WITHIN_S) as answer:
            status = json.load(answer)
        ids[status["header"]["member_id"]] = name
        leaders.append(status["leader"])
    return ids[leaders[0]]


def _wait_for(address: str) -> None:
    """A member listens for clients once its cluster has a leader."""
    deadline_s = time.monotonic() + _ANSWERS_WITHIN_S
    while not _listens(address):
        if time.monotonic() > deadline_s:
            raise NotMeasured(f"no etcd member at {address} after {_ANSWERS_WITHIN_S:g} s")
        time.sleep(_LOOK_AGAIN_S)


def _listens(address: str) -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, CLIENTS)) == 0
