"""What the kernel says about processes: who carries a tag, memory, processor time, signals."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def tagged(variable: str, value: str) -> set[int]:
    """Pids of living processes that were executed with ``variable=value`` in their environment."""
    wanted = f"\0{variable}={value}\0".encode()
    found = set()
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            with suppress(OSError):
                if wanted in b"\0" + (_PROC / entry.name / "environ").read_bytes():
                    found.add(int(entry.name))
    return found


def environment(pid: int) -> dict[str, str]:
    """The variables with which the process was executed; empty when it is gone."""
    with suppress(OSError):
        words = (_PROC / str(pid) / "environ").read_bytes().decode("utf-8", errors="replace").split("\0")
        return {name: value for name, _, value in (word.partition("=") for word in words) if name}
    return {}


def parent(pid: int) -> int:
    """Its parent; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def clones(pid: int) -> list[int]:
    """Its children that have executed nothing since they were forked: helpers, not workers."""
    own, children = _words(pid), Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if _words(int(child)) == own]


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def rss_mib(pid: int) -> float:
    """VmRSS of one process; 0 when it is gone."""
    return _kib(_PROC / str(pid) / "status", "VmRSS:") / 1024


def peak_rss_mib(pid: int) -> float:
    """VmHWM: the largest VmRSS that the process ever had; 0 when it is gone."""
    return _kib(_PROC / str(pid) / "status", "VmHWM:") / 1024


def pss_mib(pid: int) -> float:
    """Proportional set size: pages that several processes share are divided among them."""
    return _kib(_PROC / str(pid) / "smaps_rollup", "Pss:") / 1024


def cpu_s(pid: int) -> float:
    """Processor time used so far by all its threads, user and system; 0 when it is gone."""
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2)  # CPUCLOCK_SCHED of a whole process
    return 0.0


def heeds(pid: int, signum: signal.Signals) -> bool:
    """Whether the process catches ``signum`` or holds it back for later, instead of dying of it."""
    try:
        lines = (_PROC / str(pid) / "status").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigBlk:", "SigCgt:"))]
    return any(mask >> (signum - 1) & 1 for mask in masks)


def _kib(path: Path, name: str) -> int:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/<pid>/stat`` from the third on: the name before them may hold anything."""
    try:
        return (_PROC / str(pid) / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except OSError:
        return []
