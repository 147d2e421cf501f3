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

from faultrun.testing.fault import Fault, Kind

SMALL_BYTES = 256 << 20
"""Only a file system as small as this is filled: it was made for it."""

_GROUP_PREFIX = "faultrun_chaos_"
_ROOM_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
_SLOW_S = 5.0
_MEMORY_V1 = Path("/sys/fs/cgroup/memory")
_GROUPS_V2 = Path("/sys/fs/cgroup")


class InjectedError(RuntimeError):
    """The exception of ``raise``."""


def strike(fault: Fault, where: str, path: str = "") -> None:  # noqa: C901  one row a kind
    """Do it; returns only from what can be survived."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    match fault.kind:
        case Kind.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Kind.SEGV:
            ctypes.string_at(0)
        case Kind.STOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        case Kind.SPIN:
            while True:
                pass
        case Kind.SLEEP:
            time.sleep(1e6 if fault.value is None else fault.value)
        case Kind.RAISE:
            raise InjectedError(f"injected {where}")
        case Kind.EXIT:
            os._exit(int(fault.value or 0))
        case Kind.OOM:
            _eat_memory()
        case Kind.TORN:
            _tear(path)
        case Kind.SLOW:
            time.sleep(_SLOW_S if fault.value is None else fault.value)
        case Kind.DISK:
            _fill_disk(path)
        case Kind.LOG:
            _no_room_for_output()


def remove_groups() -> int:
    """Remove the control groups that ``oom`` left behind, whose processes are dead; how many."""
    removed = 0
    for parent in (_MEMORY_V1, _GROUPS_V2):
        for group in parent.glob(f"{_GROUP_PREFIX}*"):
            with contextlib.suppress(OSError):
                group.rmdir()
                removed += 1
    return removed


def _eat_memory() -> None:
    """To the limit of a control group of our own; where none can be made, to RLIMIT_AS (MemoryError)."""
    if not _enter_limited_group():
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM_BYTES, used + _ROOM_BYTES))
    eaten = []
    while True:
        eaten.append(b"x" * _CHUNK_BYTES)


def _enter_limited_group() -> bool:
    used = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    for parent, limit in ((_MEMORY_V1, "memory.limit_in_bytes"), (_GROUPS_V2, "memory.max")):
        group = parent / f"{_GROUP_PREFIX}{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(used + _ROOM_BYTES))
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
    if shutil.disk_usage(folder).total > SMALL_BYTES:
        raise InjectedError(
            f"{folder} is on a file system of more than {SMALL_BYTES >> 20} MiB, which is not filled;"
            " mount -t tmpfs -o size=16m none DIR makes a small one"
        )
    with contextlib.suppress(OSError), (folder / f"{_GROUP_PREFIX}ballast").open("ab", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass


def _no_room_for_output() -> None:
    """``/dev/full`` answers every write with ENOSPC, as a full disk does."""
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, 1)
    os.dup2(full, 2)
    os.close(full)
