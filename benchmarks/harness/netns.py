"""A machine of its own for the network's eye: a namespace without a name, kept by descriptors of ours.

Nothing is left of one after the last of its processes and this one, however they end.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache

_CLONE_NEWNET = 0x40000000
_CLONE_NEWUTS = 0x04000000
_KINDS = {"net": _CLONE_NEWNET, "uts": _CLONE_NEWUTS}
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A network and a host name, by the descriptors that keep them alive."""

    fds: tuple[int, ...]

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread is there: its sockets and its children stay there when it is back."""
        before = _current()
        _enter(self.fds)
        try:
            yield
        finally:
            _enter(before)
            _close(before)

    def ip(self, *lines: str) -> None:
        """Do lines of ``ip`` there."""
        with self.inside():
            subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), check=True, text=True)

    @property
    def path(self) -> str:
        """What ``ip link add ... netns`` takes for it."""
        return f"/proc/{os.getpid()}/fd/{self.fds[0]}"

    def close(self) -> None:
        """Let go of it."""
        _close(self.fds)


def new_namespace(name: str) -> Namespace:
    """Make one in which the machine is called ``name``. OSError where this is not allowed."""
    before = _current()
    try:
        _check(_LIBC.unshare(_CLONE_NEWNET | _CLONE_NEWUTS))
        encoded = name.encode()
        _check(_LIBC.sethostname(encoded, len(encoded)))
        return Namespace(fds=_current())
    finally:
        _enter(before)
        _close(before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Machines of their own on one switch. ``addresses`` is where the others reach them; ``ports`` are the
    switch's ends of their cables.
    """

    desk: Namespace
    hosts: Mapping[str, Namespace]
    addresses: Mapping[str, str]
    ports: Mapping[str, str]


def switched(stack: ExitStack, names: Sequence[str], desk: int) -> Switch:
    """Machines of these names; the switch itself has the address with this last number."""
    switch = new_namespace("desk")
    stack.callback(switch.close)
    lines = ["link set lo up", "link add switch type bridge", f"addr add {address(desk)}/24 dev switch"]
    hosts = {}
    for at, name in enumerate(names):
        own = hosts[name] = new_namespace(name)
        stack.callback(own.close)
        lines += [f"link add port{at} type veth peer name eth0 netns {own.path}"]
        lines += [f"link set port{at} master switch up"]
    switch.ip(*lines, "link set switch up")
    addresses = {name: address(at) for at, name in enumerate(names, 1)}
    for name, own in hosts.items():
        own.ip("link set lo up", f"addr add {addresses[name]}/24 dev eth0", "link set eth0 up")
    ports = {name: f"port{at}" for at, name in enumerate(names)}
    return Switch(desk=switch, hosts=hosts, addresses=addresses, ports=ports)


def address(number: int) -> str:
    """The address on the switch with this last number."""
    return f"10.77.0.{number}"


@cache
def refused() -> str:
    """Why there are no namespaces here; empty if there are."""
    if shutil.which("ip") is None:
        return "there is no program ip"
    try:
        tried = new_namespace("tried")
    except OSError as error:
        return f"no network namespace: {os.strerror(error.errno or 0)}"
    try:
        tried.ip("link add one type veth peer name other", "link add switch type bridge")
    except subprocess.CalledProcessError as error:
        return f"no veth or no bridge: ip ended with {error.returncode}"
    finally:
        tried.close()
    return ""


def _current() -> tuple[int, ...]:
    return tuple(os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in _KINDS)


def _enter(fds: tuple[int, ...]) -> None:
    for fd, kind in zip(fds, _KINDS.values(), strict=True):
        _check(_LIBC.setns(fd, kind))


def _close(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)


def _check(refusal: int) -> None:
    if refusal != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
