"""Hosts on one switch, for tests of several nodes: their processes, their power and their links.

A host is a network namespace with an address and a host name of its own. Where the kernel refuses these it is
an address of the loopback: what is done to processes works there too, a test that needs links is skipped.
Whatever was started on a host is killed at the end, and by a janitor when the test's own process is killed.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from secrets import token_hex

import pytest
from benchmarks.harness.netns import Namespace, address, refused, switched

from support.machine.processes import marked
from support.places import TESTS

_MARK = "FAULTRUN_TEST_HOST"
_JANITOR = (
    "import sys; from support.machine.processes import end_all; "
    "sys.stdin.read(); end_all(sys.argv[1], within_s=0)"
)
_NOBODY = "02:00:00:00:00:ff"
"""No host has this address: what is sent to it is lost without a word."""
_DESK = 254


class Host:
    """One host. ``address`` is where the others reach it."""

    def __init__(self, name: str, address: str, mark: str, namespace: Namespace | None) -> None:
        self.name, self.address, self.mark, self._namespace = name, address, mark, namespace
        self._started: list[subprocess.Popen[bytes]] = []

    def __repr__(self) -> str:
        return f"Host({self.name}, {self.address})"

    def inside(self) -> AbstractContextManager[None]:
        """The calling thread is on the host: its sockets and its children are the host's."""
        return self._namespace.inside() if self._namespace is not None else nullcontext()

    def ip(self, *lines: str) -> None:
        """Do lines of ``ip`` there; the test is skipped where hosts have no links of their own."""
        if self._namespace is None:
            pytest.skip(f"hosts have no links here: {refused()}")
        self._namespace.ip(*lines)

    def start(
        self,
        argv: Sequence[str | Path],
        *,
        log: Path,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a process there, with its output in ``log``."""
        env = {**os.environ, **(environ or {}), _MARK: self.mark}
        with self.inside(), log.open("ab") as output:
            process = subprocess.Popen(
                argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self._started.append(process)
        return process

    @property
    def pids(self) -> list[int]:
        """Everything that runs there."""
        return marked(f"{_MARK}={self.mark}")

    def kill(self) -> None:
        """End everything that runs there, at once; the kernel lives on and closes connections."""
        while pids := self.pids:
            self._signal(pids, signal.SIGKILL)
        self.reap()

    def freeze(self) -> None:
        """Stop everything that runs there, new processes of the same second too."""
        seen: set[int] = set()
        while fresh := set(self.pids) - seen:
            self._signal(sorted(fresh), signal.SIGSTOP)
            seen |= fresh

    def thaw(self) -> None:
        """Let everything go on."""
        self._signal(self.pids, signal.SIGCONT)

    def reap(self) -> None:
        """Wait for what was started there and has been killed."""
        for process in self._started:
            process.wait()
        self._started.clear()

    @staticmethod
    def _signal(pids: Sequence[int], signum: signal.Signals) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signum)


class Network:
    """Hosts by name, the switch between them, and what is wrong with the links."""

    def __init__(self, hosts: Mapping[str, Host], desk: Host) -> None:
        self.hosts = hosts
        self.desk = desk
        """Where the test itself sits: it reaches every host, and no link of its own can be cut."""
        self._ports = {name: f"port{number}" for number, name in enumerate(hosts)}
        self._lost: set[tuple[str, str]] = set()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def cut(self, host: Host) -> None:
        """Pull the cable: nothing comes or goes, and nobody is told."""
        self.desk.ip(f"link set {self._ports[host.name]} down")

    def lose(self, sender: Host, to: Host) -> None:
        """What ``sender`` sends to one other host is lost; the other way stays."""
        sender.ip(f"neigh replace {to.address} lladdr {_NOBODY} dev eth0 nud permanent")
        self._lost.add((sender.name, to.name))

    def part(self, ones: Sequence[Host], others: Sequence[Host]) -> None:
        """Nothing passes between two groups, in either direction."""
        for one in ones:
            for other in others:
                self.lose(one, to=other)
                self.lose(other, to=one)

    def restore(self, host: Host) -> None:
        """The cable is in again, and there is power."""
        self.desk.ip(f"link set {self._ports[host.name]} up")

    def join(self, ones: Sequence[Host], others: Sequence[Host]) -> None:
        """What ``part`` has parted comes through again."""
        for pair in [(one, other) for one in ones for other in others]:
            for sender, to in (pair, pair[::-1]):
                if (sender.name, to.name) in self._lost:
                    sender.ip(f"neigh del {to.address} dev eth0")
                    self._lost.remove((sender.name, to.name))

    def power_off(self, host: Host) -> None:
        """The host dies: nobody hears a word from it, not even that its connections are closed."""
        self.cut(host)
        host.kill()

    def heal(self) -> None:
        """Every link is whole again, and every host has power."""
        self.desk.ip(*(f"link set {port} up" for port in self._ports.values()))
        for sender, to in sorted(self._lost):
            self[sender].ip(f"neigh del {self[to].address} dev eth0")
        self._lost.clear()


@contextmanager
def network(*names: str) -> Iterator[Network]:
    """A switch with hosts of these names, until the end of the block."""
    mark = f"{token_hex(8)}/"
    with ExitStack() as stack:
        stack.enter_context(_janitor(mark))
        if refused():
            desk = Host("desk", "127.0.0.1", f"{mark}desk/", None)
            hosts = [Host(name, f"127.0.1.{at}", f"{mark}{name}/", None) for at, name in enumerate(names, 1)]
        else:
            desk, hosts = _linked(stack, mark, names)
        try:
            yield Network({host.name: host for host in hosts}, desk)
        finally:
            for host in (desk, *hosts):
                host.kill()


def _linked(stack: ExitStack, mark: str, names: Sequence[str]) -> tuple[Host, list[Host]]:
    """The switch, which is the desk as well, and its hosts."""
    switch = switched(stack, names, desk=_DESK)
    hosts = [Host(name, switch.addresses[name], f"{mark}{name}/", own) for name, own in switch.hosts.items()]
    return Host("desk", address(_DESK), f"{mark}desk/", switch.desk), hosts


@contextmanager
def _janitor(mark: str) -> Iterator[None]:
    """A process that kills what bears the mark once its standard input ends: with us, however we end."""
    environ = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-S", "-c", _JANITOR, f"{_MARK}={mark}"]
    janitor = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        janitor.communicate()
