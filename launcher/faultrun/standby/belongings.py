"""What a process owns beside its memory, as it was before the rehearsal, and given back after it."""

import atexit
import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Belongings:
    """One look at this process. Compared with a later look it tells what somebody left."""

    hooks: dict[tuple[Any, str], Any]
    lists: list[tuple[list[Any], list[Any]]]
    environ: dict[str, str]
    folder: str
    handlers: dict[int, Any]
    root_logger: tuple[int, list[logging.Handler]]
    cpus: set[int]
    collector: tuple[bool, tuple[int, int, int]]
    exit_callbacks: int
    threads: frozenset[int]
    fds: frozenset[int]

    @classmethod
    def of_this_process(cls) -> "Belongings":
        """Look now."""
        hooks = ("excepthook", "displayhook", "unraisablehook", "breakpointhook", "stdout", "stderr", "stdin")
        lists: list[list[Any]] = [sys.path, sys.meta_path, sys.path_hooks, sys.argv]
        return cls(
            hooks={
                **{(sys, name): getattr(sys, name) for name in hooks},
                (threading, "excepthook"): threading.excepthook,
                (warnings, "showwarning"): warnings.showwarning,
            },
            lists=[(one, list(one)) for one in lists],
            environ=dict(os.environ),
            folder=os.getcwd(),
            handlers={number: signal.getsignal(number) for number in signal.valid_signals()},
            root_logger=(logging.root.level, list(logging.root.handlers)),
            cpus=os.sched_getaffinity(0),
            collector=(gc.isenabled(), gc.get_threshold()),
            exit_callbacks=_exit_callbacks(),
            threads=_threads(),
            fds=_fds(),
        )

    def restore(self) -> None:
        """Put everything back that can be put back."""
        for (owner, name), hook in self.hooks.items():
            setattr(owner, name, hook)
        for one, content in self.lists:
            one[:] = content
        for name in os.environ.keys() - self.environ.keys():
            del os.environ[name]
        for name, value in self.environ.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        os.chdir(self.folder)
        for number, handler in self.handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        level, handlers = self.root_logger
        logging.root.setLevel(level)
        logging.root.handlers[:] = handlers
        os.sched_setaffinity(0, self.cpus)
        enabled, threshold = self.collector
        (gc.enable if enabled else gc.disable)()
        gc.set_threshold(*threshold)
        if multiprocessing.get_start_method(allow_none=True) is not None:
            multiprocessing.set_start_method(None, force=True)


def leftovers(before: Belongings, threads_allowed: int) -> str:
    """What cannot be given back: descriptors, threads, callbacks at exit. Empty when there is nothing."""
    found = []
    if fds := _fds() - before.fds:
        found.append(f"descriptors {sorted(fds)}")
    if len(threads := _threads() - before.threads) > threads_allowed:
        found.append(f"{len(threads)} threads")
    if _exit_callbacks() != before.exit_callbacks:
        found.append("a callback at exit")
    return " and ".join(found)


def _exit_callbacks() -> int:
    count = getattr(atexit, "_ncallbacks", None)
    return int(count()) if count is not None else 0


def _threads() -> frozenset[int]:
    return frozenset(map(int, os.listdir("/proc/self/task")))


def _fds() -> frozenset[int]:
    """Open descriptors, without the one that reads the folder."""
    listed = map(int, os.listdir("/proc/self/fd"))
    return frozenset(fd for fd in listed if os.path.exists(f"/proc/self/fd/{fd}") or _is_open(fd))


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
