"""What a fault does to this process. Nothing is imitated: the kernel or the interpreter does it."""

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

from faultrun.testing.fault import FaultKind, InjectedFault

_SMALL_BYTES = 256 << 20
"""Only a file system as small as this is filled: it was made for it."""

GROUP_PREFIX = "faultrun_chaos_"
"""The beginning of the names of control groups that ``oom`` makes, and leaves in ``MEMORY_GROUPS``."""

_ROOM_BYTES, _CHUNK_BYTES = 64 << 20, 1 << 20
_SLOW_S = 5.0
_STATM = Path("/proc/self/statm")
MEMORY_GROUPS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)


class InjectedError(RuntimeError):
    """The exception of ``raise``."""


def strike(fault: InjectedFault, where: str, path: str = "") -> None:
    """Do it; returns only from what can be survived."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    match fault.kind:
        case FaultKind.KILL | FaultKind.STOP:
            os.kill(os.getpid(), signal.SIGKILL if fault.kind is FaultKind.KILL else signal.SIGSTOP)
        case FaultKind.SEGV:
            ctypes.string_at(0)
        case FaultKind.SPIN:
            while True:
                pass
        case FaultKind.SLEEP | FaultKind.SLOW:
            usual_s = 1e6 if fault.kind is FaultKind.SLEEP else _SLOW_S
            time.sleep(usual_s if fault.value is None else fault.value)
        case FaultKind.RAISE:
            raise InjectedError(f"injected {where}")
        case FaultKind.EXIT:
            os._exit(int(fault.value or 0))
        case FaultKind.OOM:
            _eat_memory()
        case FaultKind.TORN:
            _tear(path)
        case FaultKind.DISK:
            _fill_disk(path)
        case FaultKind.LOG:
            _no_room_for_output()


def _eat_memory() -> None:
    """To the limit of a control group of our own; where none can be made, to RLIMIT_AS (MemoryError)."""
    size, resident, *_ = (int(pages) * resource.getpagesize() for pages in _STATM.read_text().split())
    if not _enter_limited_group(resident + _ROOM_BYTES):
        resource.setrlimit(resource.RLIMIT_AS, (size + _ROOM_BYTES, size + _ROOM_BYTES))
    eaten = []
    while True:
        eaten.append(b"x" * _CHUNK_BYTES)


def _enter_limited_group(limit_bytes: int) -> bool:
    for parent, limit in MEMORY_GROUPS:
        group = parent / f"{GROUP_PREFIX}{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(limit_bytes))
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        return True
    return False


def _tear(path: str) -> None:
    if path and Path(path).is_file():
        os.truncate(path, Path(path).stat().st_size // 2)
    os.kill(os.getpid(), signal.SIGKILL)


def _fill_disk(path: str) -> None:
    folder = Path(path or ".").absolute()
    while not folder.is_dir():
        folder = folder.parent
    if shutil.disk_usage(folder).total > _SMALL_BYTES:
        raise InjectedError(
            f"{folder} is on a file system of more than {_SMALL_BYTES >> 20} MiB, which is not filled;"
            " mount -t tmpfs -o size=16m none DIR makes a small one"
        )
    with contextlib.suppress(OSError), (folder / f"{GROUP_PREFIX}ballast").open("ab", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass


def _no_room_for_output() -> None:
    """``/dev/full`` answers every write with ENOSPC, as a full disk does."""
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, 1)
    os.dup2(full, 2)
    os.close(full)
