"""Where a run takes place: hosts on a switch, etcd members, disks, and the platform.

The platform starts a node again that was lost, as Kubernetes does, also one whose supervisor ended by itself
alone. Everything is in a mount namespace and network namespaces of the campaign's own.
"""

import ctypes
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.campaigns.everything_plan import NODE_WAIT_S
from benchmarks.campaigns.ledgers import Census, Ledgers
from benchmarks.harness.journal import grown
from benchmarks.harness.launched import clean_environ
from benchmarks.jobs.everything_notes import boot_s
from support.nodes.etcd_cluster import EtcdCluster
from support.nodes.hosts import Network

_CLONE_NEWNS = 0x00020000
_LOOK_S = 0.01
_BACK_S = 1.0
_LONE_S = 4.0
_LATE_S = 15.0
_STARTS_S = 5.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def own_mounts() -> None:
    """Have what is mounted from now on seen by this process and its children alone. OSError: not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@dataclass(slots=True)
class Node:
    """One host of the run. ``said`` has the lines of its supervisors, each with when it was seen."""

    name: str
    process: "subprocess.Popen[bytes] | None" = None
    away: bool = False
    """It was killed or told to stop, and the platform brings it back when the fault is over."""

    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    code: int | None = None
    """How its last supervisor ended, if that was by itself."""

    alone: list[int] = field(default_factory=list)
    """Codes of the supervisors that ended by themselves while the run went on."""

    said: list[tuple[float, str]] = field(default_factory=list)
    read: int = 0
    since: int = 0
    """How much of ``said`` is of supervisors before this one."""

    def here(self) -> list[tuple[float, str]]:
        """What the present supervisor has said."""
        return self.said[self.since :] if self.runs else []

    @property
    def runs(self) -> bool:
        """Whether its supervisor is there."""
        return self.process is not None

    def reap(self, now_s: float) -> None:
        """Take note of its end."""
        if self.process is not None and self.process.poll() is not None:
            code, self.process, self.ended_at_s = self.process.returncode, None, now_s
            self.code = None if code < 0 or self.away else code


class Stage:
    """Hosts of one run, from its start until ``close``. ``tick`` does what is due.

    ``disks`` are folders below ``folder``, each a disk of so many MiB.
    """

    def __init__(
        self,
        folder: Path,
        net: Network,
        names: Sequence[str],
        members: Sequence[str],
        disks: Mapping[str, int],
    ) -> None:
        self.folder, self.net = folder, net
        self.nodes = {name: Node(name) for name in names}
        self._disks = tuple(disks)
        for name, size_mib in disks.items():
            _mount(folder / name, size_mib)
        (folder / "told").mkdir()
        self.steps = Ledgers(folder / "told")
        self.census = Census(folder / "told", self.steps)
        self.etcd = EtcdCluster(net, members, folder / "etcd") if members else None
        self._due: list[tuple[float, Callable[[], object]]] = []

    def begin(self) -> None:
        """Start etcd and all supervisors."""
        if self.etcd is not None:
            self.etcd.start()
        for node in self.nodes.values():
            self.start(node)

    def start(self, node: Node) -> None:
        """The same command on each host."""
        raise NotImplementedError

    def run(self, node: Node, command: Sequence[str], **more: str) -> None:
        """Start it there; ``more`` are variables."""
        environ = {**clean_environ(), "FAULTRUN_REPORT": "False"}
        node.code, node.since, node.started_at_s = None, len(node.said), boot_s()
        node.process = self.net[node.name].start(
            command, log=self.console(node), environ={**environ, **more}, cwd=self.folder
        )

    def console(self, node: Node) -> Path:
        """What its supervisors say, one behind the other."""
        return self.folder / f"{node.name}.out"

    def log_dir(self, node: Node) -> Path:
        """Where its journal is."""
        return self.folder / "logs" / node.name / f"node_{node.name}"

    def later(self, after_s: float, do: Callable[[], object]) -> None:
        """Have something done after a while."""
        self._due.append((boot_s() + after_s, do))

    @property
    def whole(self) -> bool:
        """Whether nothing that was broken is to be mended yet, and every node is there."""
        return not self._due and all(node.runs and not node.away for node in self.nodes.values())

    def tick(self) -> None:
        """Mend what is due, bring back what has ended, and take in what was said."""
        now_s = boot_s()
        due = [one for one in self._due if one[0] <= now_s]
        self._due = [one for one in self._due if one[0] > now_s]
        for _, do in due:
            do()
        self.steps.read()
        for node in self.nodes.values():
            self._hear(node, now_s)
            node.reap(now_s)
        for node in self.nodes.values():
            lost = not node.runs and not node.away and not self.ending
            if lost and now_s >= node.ended_at_s + _patience_s(node):
                if node.code is not None:
                    node.alone.append(node.code)
                self.start(node)

    @property
    def codes(self) -> dict[str, int]:
        """The exit codes of the nodes that have ended by themselves."""
        gone = (node for node in self.nodes.values() if not node.runs)
        return {node.name: node.code for node in gone if node.code is not None}

    @property
    def ending(self) -> bool:
        """Whether more than one node has ended by itself, or the only one: then it is the run."""
        return len(self.codes) > (len(self.nodes) > 1)

    @property
    def ended(self) -> bool:
        """Whether the run is over on all nodes that are there, or somebody does not end as the others did."""
        nodes = self.nodes.values()
        late = self.ending and boot_s() > max(node.ended_at_s for node in nodes) + self._late_s()
        return self.ending and (late or not any(node.runs for node in nodes))

    def _late_s(self) -> float:
        """For how long somebody may run on: who came as the others ended waits for those of a run to come."""
        ends = [node.ended_at_s for node in self.nodes.values() if node.code is not None]
        came = any(node.runs and node.started_at_s > min(ends) - _STARTS_S for node in self.nodes.values())
        return _LATE_S + (NODE_WAIT_S if came else 0.0)

    def wait(self, reached: Callable[[], bool], within_s: float) -> bool:
        """Tick until it is so; False if that takes too long, or the run ends."""
        deadline_s = boot_s() + within_s
        while not reached():
            if boot_s() > deadline_s or self.ended:
                return False
            self.tick()
            time.sleep(_LOOK_S)
        return True

    def _hear(self, node: Node, now_s: float) -> None:
        whole, node.read = grown(self.console(node), node.read)
        lines = _COLOURS.sub("", whole.decode(errors="replace")).splitlines()
        node.said += [(now_s, line) for line in lines]

    def close(self) -> None:
        """End everything, and give back the disks."""
        self.census.close()
        for host in (*self.net.hosts.values(), self.net.desk):
            host.kill()
        for mounted in self._disks:
            subprocess.run(["umount", "-l", str(self.folder / mounted)], check=False, capture_output=True)


def fill(folder: Path) -> Callable[[], object]:
    """Leave no byte of this disk; what is returned gives it back."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return lambda: ballast.unlink(missing_ok=True)


def _patience_s(node: Node) -> float:
    """Who ended by itself may be the first of all."""
    return _BACK_S if node.code is None else _LONE_S


def _mount(folder: Path, size_mib: int) -> None:
    folder.mkdir(parents=True)
    options = f"size={size_mib}m,mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)
