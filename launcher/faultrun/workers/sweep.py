"""Find what escaped from its session: every process that carries our tag in its environment."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

TAG_VARIABLE = "FAULTRUN_BOOT_ID"
"""Random for each supervisor process, so that a tag can never mean somebody else's process."""

_EMPTY_LOOKS = 2
_PROC = Path("/proc")


def tagged(boots: frozenset[str]) -> Iterator[int]:
    """The pids of living processes that a supervisor of ``boots`` brought into the world.

    Reads ``/proc/<pid>/environ``: the environment at exec, which a process
    inherits through any number of forks and sessions. Processes of other
    users are not readable and not ours.
    """
    me = os.getpid()
    pids = (int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit())
    return (pid for pid in pids if pid != me and carries_tag(pid, boots))


def carries_tag(pid: int, boots: frozenset[str]) -> bool:
    """Whether ``pid`` lives and was brought into the world by a supervisor of ``boots``."""
    try:
        environ = b"\0" + (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return any(f"\0{TAG_VARIABLE}={boot}\0".encode() in environ for boot in boots if boot)


def sweep(
    boots: frozenset[str], *, patience_s: float, spare: frozenset[int] = frozenset()
) -> tuple[int, tuple[int, ...]]:
    """SIGKILL every tagged process that is not to ``spare``; how many were found, which outlived the wait.

    Repeats until two looks in a row find none: a process may fork while the
    others are being killed, and for an instant in its exec it shows no
    environment at all.
    """
    found: set[int] = set()
    deadline = time.monotonic() + patience_s
    empty_looks = 0
    while True:
        alive = set(tagged(boots)) - spare
        empty_looks = 0 if alive else empty_looks + 1
        if empty_looks == _EMPTY_LOOKS:
            return len(found), ()
        found |= alive
        for pid in alive:
            kill_tagged(pid, boots)
        if alive and time.monotonic() >= deadline:
            return len(found), tuple(sorted(alive))
        time.sleep(0.003)  # in the helper thread: the kernel tears processes down at its own pace


def kill_tagged(pid: int, boots: frozenset[str]) -> None:
    """SIGKILL ``pid`` if it still carries the tag; its number may belong to a stranger by now."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if carries_tag(pid, boots):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return
    finally:
        os.close(pidfd)
