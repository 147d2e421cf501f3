"""Questions about real processes, and an end for every one that a test began."""

import errno
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 120.0
"""How long a test waits before it calls something a hang; at rest nothing takes a sixtieth of it."""

_LOOK_AGAIN_MS = 4


def lives(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits to be reaped does not."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False
    return after_name.split()[0] not in "ZX"


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def marked(mark: str) -> list[int]:
    """Pids of living processes that have ``mark`` in their environment, ours excepted."""
    wanted, found = mark.encode(), []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if wanted in Path(entry.path, "environ").read_bytes() and lives(int(entry.name)):
                    found.append(int(entry.name))
    return found


def open_files(pid: int) -> dict[str, str]:
    """What each descriptor is of; one that is closed meanwhile is left out, as all are once it ended."""
    found = {}
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found[descriptor.name] = str(descriptor.readlink())
    return found


def environment(pid: int) -> list[bytes]:
    """``NAME=value`` with which the process was started; empty if it ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


@contextmanager
def watched(pid: int) -> Iterator["select.poll"]:
    """A poll object that is ready once the process has ended, be it our child or not."""
    poll = select.poll()
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:  # it has ended already: a closed pipe is ready at once
        fd, other_end = os.pipe()
        os.close(other_end)
    try:
        poll.register(fd, select.POLLIN | select.POLLHUP)
        yield poll
    finally:
        os.close(fd)


def wait_until(
    reached: Callable[[], T | None],
    *,
    while_runs: int | None = None,
    within_s: float = PATIENCE_S,
    what: str = "it",
) -> T:
    """Return what ``reached`` answers once it is neither None nor False. AssertionError if it takes too long.

    Gives up at once when ``while_runs`` ends and the answer has not come.
    """
    deadline = time.monotonic() + within_s
    with watched(os.getpid() if while_runs is None else while_runs) as ended:
        while True:
            over = bool(ended.poll(_LOOK_AGAIN_MS))
            found = reached()
            if found is not None and found is not False:
                return found
            assert not over, f"{what} was never reached: the supervisor ended before"
            assert time.monotonic() < deadline, f"{what} was not reached within {within_s} s"


def stand_still(pid: int) -> None:
    """SIGSTOP; returns once the process does nothing any more."""
    os.kill(pid, signal.SIGSTOP)
    stat = Path(f"/proc/{pid}/stat")
    wait_until(
        lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", what=f"pid {pid} to stand still"
    )


def let_go(pipe: Path) -> None:
    """Give what reads the named pipe its end, now or as soon as it opens it."""

    def opened() -> tuple[int] | None:
        try:
            return (os.open(pipe, os.O_WRONLY | os.O_NONBLOCK),)
        except OSError as why:
            if why.errno != errno.ENXIO:
                raise
            return None

    (end,) = wait_until(opened, what=f"a reader of {pipe.name}")
    os.close(end)


def end_all(mark: str, *, within_s: float) -> list[int]:
    """Wait until nothing with ``mark`` lives; kill and return what is still there after ``within_s``."""
    deadline = time.monotonic() + within_s
    with watched(os.getpid()) as pause:
        while (left := marked(mark)) and time.monotonic() < deadline:
            pause.poll(_LOOK_AGAIN_MS)
    found = left
    while left:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        left = marked(mark)
    return found


@contextmanager
def files_limited_to(size_bytes: int) -> Iterator[None]:
    """A disk that is full, for this process: writes beyond the size fail with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)


@contextmanager
def no_more_threads() -> Iterator[None]:
    """As many processes as there may be, for this one: no memory has room for the stack of one more."""
    usual = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(usual)


def killed_at_change(at: int, act: Callable[[], object]) -> int:
    """Do ``act`` in a fork that is killed before its ``at``-th change of a file system; 0 if it ended."""
    child = os.fork()
    if child == 0:
        changes = count(1)

        def audit(event: str, _: object) -> None:
            if event in _CHANGES and next(changes) == at:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(audit)
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


_CHANGES = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate", "open"})
