"""What a process owns beside its memory, as it was before the rehearsal, and given back after it.

And the modules that a fresh worker would have imported in place of others: Python looks into the program's
folder first. A ``token.py`` there means that a fresh worker's ``import token``, and that of the framework,
finds it; a standby has imported the standard library's long before.
"""

import atexit
import contextlib
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

_NO_FILE = ("-m", "-c", "-", "")


@dataclass(frozen=True)
class ProcessState:
    """Compared with a later one it tells what was left behind."""

    hooks: dict[tuple[Any, str], Any]
    lists: list[tuple[list[Any], list[Any]]]
    environ: dict[str, str]
    folder: str
    handlers: dict[int, Any]
    mask: frozenset[int]
    root_logger: tuple[int, list[logging.Handler]]
    cpus: set[int]
    collector: tuple[bool, tuple[int, int, int]]
    exit_callbacks: int
    threads: frozenset[int]
    fds: frozenset[int]

    @classmethod
    def now(cls) -> "ProcessState":
        """The state of this process."""
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
            mask=frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            root_logger=(logging.root.level, list(logging.root.handlers)),
            cpus=os.sched_getaffinity(0),
            collector=(gc.isenabled(), gc.get_threshold()),
            exit_callbacks=_exit_callbacks(),
            threads=_threads(),
            fds=fds(),
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
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        level, handlers = self.root_logger
        logging.root.setLevel(level)
        logging.root.handlers[:] = handlers
        os.sched_setaffinity(0, self.cpus)
        enabled, threshold = self.collector
        (gc.enable if enabled else gc.disable)()
        gc.set_threshold(*threshold)
        if multiprocessing.get_start_method(allow_none=True) is not None:
            multiprocessing.set_start_method(None, force=True)


def leftovers(before: ProcessState, threads_allowed: int) -> str:
    """What cannot be given back: descriptors, threads, callbacks at exit. Empty when there is nothing."""
    found = []
    if opened := fds() - before.fds:
        found.append(f"descriptors {sorted(opened)}")
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


def fds() -> frozenset[int]:
    """Open descriptors, without the one that reads the folder."""
    found = set()
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            os.fstat(fd)
            found.add(fd)
    return frozenset(found)


def shadowed(before: frozenset[str]) -> list[str]:
    """Names that are in the program's folder and were imported from elsewhere since ``before``."""
    imported = {name.partition(".")[0] for name in sys.modules.keys() - before}
    folder = _folder()
    return sorted(name for name in imported & _modules_in(folder) if not _is_from(name, folder))


def _folder() -> str:
    program = sys.argv[0] if sys.argv else ""
    if program in _NO_FILE:
        return os.getcwd()  # what Python itself uses for -m
    return os.path.dirname(os.path.realpath(program)) or os.getcwd()


def _modules_in(folder: str) -> set[str]:
    names = set()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            stem, dot, ending = entry.name.partition(".")
            is_file = ending in ("py", "pyc") or ending.endswith("so")
            if is_file or (not dot and os.path.exists(f"{entry.path}/__init__.py")):
                names.add(stem)
    return names


def _is_from(name: str, folder: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    # A virtual environment may lie in the program's folder.
    return os.path.realpath(file).startswith((f"{folder}{os.sep}{name}.", f"{folder}{os.sep}{name}{os.sep}"))
