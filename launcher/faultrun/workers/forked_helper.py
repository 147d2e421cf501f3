"""Forked helpers: small processes of our own that may block where the supervisor must not.

One of them is the deadman (``deadman.py``), which outlives us by a moment to kill what the kernel does not.
"""

import contextlib
import json
import os
import signal
from collections.abc import Callable
from typing import Any

from faultrun.files import readable

_FD_LIMIT = 65536


class Forked:
    """A helper that runs ``work`` and ends; what it raises ends the helper alone.

    Held by a pidfd from its first moment: should another thread reap it and its number be given away, ``end``
    still means no other process. Start it before any thread.
    """

    def __init__(self, work: Callable[[], object], *, keep: tuple[int, ...]) -> None:
        """``keep``: the file descriptors that it needs; all others are closed in it."""
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
                keep_only(*keep)
                work()
            finally:
                os._exit(0)
        self._pidfd = os.pidfd_open(self.pid)

    def end(self, patience_s: float) -> None:
        """Give it, once it was told to end, its time, then SIGKILL; reap it."""
        if not readable(patience_s, self._pidfd):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        os.close(self._pidfd)


def keep_only(*fds: int) -> None:
    """In a forked helper: close everything inherited but ``fds``.

    A lock, a pipe's write end or a socket that lives on in a helper would
    tell others that the supervisor is still there.
    """
    low = 0
    for fd in (*sorted(fds), _FD_LIMIT):
        if low < fd:  # closerange(0, 0) closes everything (CPython hands close_range() a last of -1)
            os.closerange(low, fd)
        low = fd + 1


_CHUNK = 1 << 16


class Orders:
    """Orders to a helper, of any length and number: the one who gives them never waits, and loses none.

    Made before the fork. One side ``send``s, the other reads when ``bell`` is readable. A pipe takes 64 KiB
    and then cuts: the log files of some hundred ranks are more. The orders are in a file without a name
    that both share; the pipe only rings.
    """

    def __init__(self) -> None:
        self._text = os.memfd_create("orders")
        self.bell, self._rope = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._read_bytes = 0

    @property
    def kept(self) -> tuple[int, int]:
        """The descriptors that the helper needs."""
        return self._text, self.bell

    def send(self, order: Any) -> None:
        """Give one order, anything that is JSON. OSError: no memory is left."""
        os.write(self._text, f"{json.dumps(order)}\n".encode())
        with contextlib.suppress(OSError):  # full: it will look anyway; broken: none looks any more
            os.write(self._rope, b".")

    def received(self) -> tuple[list[Any], bool]:
        """In the helper: the orders since the last call, and whether more may come."""
        open_ = True
        with contextlib.suppress(BlockingIOError):
            open_ = bool(os.read(self.bell, _CHUNK))
        lines = b""
        while part := os.pread(self._text, _CHUNK, self._read_bytes + len(lines)):
            lines += part
        # A line over the edge of a page is seen half while it is being written: its bell is still to come.
        lines = lines[: lines.rfind(b"\n") + 1]
        self._read_bytes += len(lines)
        return [json.loads(line) for line in lines.splitlines()], open_

    def leave_to_helper(self) -> None:
        """After the fork: the reading end is the helper's alone."""
        os.close(self.bell)

    def close(self) -> None:
        """No more orders."""
        os.close(self._rope)
        os.close(self._text)
