"""A machine of its own for the network's eye: a namespace without a name, kept by descriptors of ours.

Nothing is left of one after the last of its processes and this one, however they end.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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
