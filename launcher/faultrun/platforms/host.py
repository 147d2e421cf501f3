"""What a run needs of the kernel and of what is around it: init, ulimits, ports, packages, devices."""

import ctypes
import os
import resource
import select
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata

import psutil

from faultrun.platforms.file_watch import FileWatch

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_GET_PDEATHSIG, _PR_GET_CHILD_SUBREAPER = 2, 37


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenProcess:
    """A process as the kernel shows it; ``words`` is its command line, empty for a kernel thread."""

    pid: int
    name: str
    words: tuple[str, ...]
    parent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ulimit:
    """A limit of processes; None is unlimited."""

    soft: int | None
    hard: int | None


def process(pid: int) -> SeenProcess | None:
    """Look at a process; None if it is gone or hidden."""
    try:
        seen = psutil.Process(pid)
        with seen.oneshot():
            words = tuple(word for word in seen.cmdline() if word)
            return SeenProcess(pid=pid, name=seen.name(), words=words, parent=seen.ppid())
    except (psutil.Error, ValueError, OverflowError):
        return None


def ulimits() -> dict[str, Ulimit]:
    """Open files, processes, core size and locked memory, by the names that ``ulimit`` has for them."""
    kinds = {
        "nofile": resource.RLIMIT_NOFILE,
        "nproc": resource.RLIMIT_NPROC,
        "core": resource.RLIMIT_CORE,
        "memlock": resource.RLIMIT_MEMLOCK,
    }
    return {name: _ulimit(*resource.getrlimit(kind)) for name, kind in kinds.items()}


def missing_features() -> tuple[str, ...]:
    """The kernel's services that faultrun builds on and that this kernel, or its sandbox, does not give."""
    tests = {
        "pidfd": _has_pidfd,
        "child subreaper": lambda: _has_prctl(_PR_GET_CHILD_SUBREAPER),
        "parent death signal": lambda: _has_prctl(_PR_GET_PDEATHSIG),
        "eventfd": _has_eventfd,
        "inotify": _has_inotify,
    }
    return tuple(name for name, test in tests.items() if not test())


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of those packages that are installed; none of them is imported."""
    found: dict[str, str] = {}
    for name in packages:
        if (installed := next(iter(metadata.distributions(name=name)), None)) is not None:
            found[name] = installed.version
    return found


def listener(port: int) -> SeenProcess | None:
    """The process that listens on a TCP port; None if none does, or it cannot be seen."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    for one in connections:
        if one.status == psutil.CONN_LISTEN and one.laddr[1:] == (port,) and one.pid is not None:
            return process(one.pid)
    return None


def _ulimit(soft: int, hard: int) -> Ulimit:
    endless = resource.RLIM_INFINITY
    return Ulimit(soft=None if soft == endless else soft, hard=None if hard == endless else hard)


def _has_pidfd() -> bool:
    """Opened, polled and signalled, as workers are: a sandbox may allow one and not the other."""
    try:
        descriptor = os.pidfd_open(os.getpid())
    except OSError:
        return False
    try:
        signal.pidfd_send_signal(descriptor, 0)
        select.select([descriptor], [], [], 0)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _has_prctl(option: int) -> bool:
    answer = ctypes.c_int()
    refused: int = _LIBC.prctl(option, ctypes.byref(answer), 0, 0, 0)
    return refused == 0


def _has_eventfd() -> bool:
    try:
        os.close(os.eventfd(0, os.EFD_CLOEXEC))
    except OSError:
        return False
    return True


def _has_inotify() -> bool:
    watch = FileWatch([])
    working = bool(watch.fd >= 0)
    watch.close()
    return working
