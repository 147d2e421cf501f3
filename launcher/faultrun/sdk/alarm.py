"""How the helper thread is woken: a pipe that a C-level signal handler, or another thread, writes a byte to.

The main thread may be inside a collective that never returns; then no Python
signal handler runs. CPython's own C handler still writes the signal's number
to the wakeup descriptor, in whatever thread the kernel picked, and needs no
signal mask set up before the framework starts its threads.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_POKE = b"\0"

Handler = Callable[[int, FrameType | None], Any]


class Alarm:
    """A pipe with one reader and ``poke`` for all others; rung by SIGTERM too after ``take_sigterm``."""

    def __init__(self) -> None:
        self.fd, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._previous: Any = signal.SIG_DFL
        self.has_sigterm = False

    def poke(self) -> None:
        """Wake the reader."""
        with contextlib.suppress(BlockingIOError):  # full: it has enough reasons to wake up
            os.write(self._writer, _POKE)

    def read(self) -> bool:
        """Empty the pipe; whether SIGTERM was among what woke us."""
        woken = b""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.fd, 512):
                woken += data
        return signal.SIGTERM in woken

    def take_sigterm(self) -> bool:
        """Have SIGTERM wake the reader instead of ending the process.

        Only the main thread may ask for signals: False from any other. A
        handler that the script had set before still runs whenever the
        interpreter comes to it. Child processes that are forked get back what was there before.
        """
        if self.has_sigterm:
            return True
        if threading.current_thread() is not threading.main_thread():
            return False
        self._previous = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.siginterrupt(signal.SIGTERM, False)  # a slow write of the script goes on
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self.has_sigterm = True
        return True

    def release_in_child(self) -> None:
        """In a forked child: its SIGTERM is not ours, and must not ring in the parent."""
        if self.has_sigterm:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, self._previous if self._previous is not None else signal.SIG_DFL)
            self.has_sigterm = False
        os.close(self.fd)
        os.close(self._writer)

    def _on_sigterm(self, signum: int, frame: FrameType | None) -> None:
        """Runs in the main thread when the interpreter gets to it, which may be never."""
        with contextlib.suppress(
            BlockingIOError
        ):  # the wakeup descriptor may have been taken by an event loop
            os.write(self._writer, bytes([signum]))
        if callable(self._previous):
            self._previous(signum, frame)
