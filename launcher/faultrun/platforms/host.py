"""What a run needs of the kernel and of what is around it: init, ulimits, ports, packages, devices."""

import ctypes
import os
import re
import resource
import select
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from faultrun.platforms.watch import FileWatch

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_GET_PDEATHSIG = 2
_PR_GET_CHILD_SUBREAPER = 37
_LISTEN = "0A"
_DEVICES = re.compile(r"davinci\d+|nvidia\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process as ``/proc`` shows it; ``words`` is its command line, empty for a kernel thread."""

    pid: int
    name: str
    words: tuple[str, ...]
    parent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ulimit:
    """A limit of processes; None is unlimited."""

    soft: int | None
    hard: int | None


def process(pid: int, proc: Path = Path("/proc")) -> Process | None:
    """Look at a process; None if it is gone or hidden."""
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
        words = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    parent = rest.split()[1] if len(rest.split()) > 1 else "0"
    texts = (word.decode(errors="replace") for word in words.split(b"\0") if word)
    return Process(pid=pid, name=name, words=tuple(texts), parent=int(parent))


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
        installed = next(iter(metadata.distributions(name=name)), None)
        if installed is not None:
            found[name] = installed.version
    return found


def device_files(dev: Path = Path("/dev")) -> tuple[str, ...]:
    """Names of accelerators among the device files, sorted."""
    try:
        return tuple(sorted(path.name for path in dev.iterdir() if _DEVICES.fullmatch(path.name)))
    except OSError:
        return ()


def listener(port: int, proc: Path = Path("/proc")) -> Process | None:
    """The process that listens on a TCP port; None if nobody does, or it cannot be seen."""
    sockets = set(_listening(port, proc))
    if not sockets:
        return None
    for folder in proc.iterdir():
        if folder.name.isdigit() and sockets & _sockets(folder / "fd"):
            return process(int(folder.name), proc)
    return None


def _ulimit(soft: int, hard: int) -> Ulimit:
    return Ulimit(
        soft=None if soft == resource.RLIM_INFINITY else soft,
        hard=None if hard == resource.RLIM_INFINITY else hard,
    )


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


def _listening(port: int, proc: Path) -> Iterator[str]:
    """Sockets, as ``/proc`` names them, that listen on ``port`` (proc_net_tcp(5))."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if len(fields) > 9 and fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{fields[9]}]"


def _sockets(folder: Path) -> set[str]:
    """What the open files of a process are; they come and go while we look."""
    try:
        return {_target(entry) for entry in folder.iterdir()}
    except OSError:
        return set()


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
