"""Forked helpers: small processes of our own that may block where the supervisor must not."""

import contextlib
import os
import select
import signal
from collections.abc import Callable

_FD_LIMIT = 65536


class Forked:
    """A helper that runs ``work`` and ends; what it raises ends the helper and nobody else.

    Held by a pidfd from its first moment: should somebody else reap it and
    its number be given away, ``end`` still means no other process. Start it
    before any thread.
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
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if not poll.poll(patience_s * 1000):
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
