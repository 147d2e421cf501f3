"""What wakes the helper thread: its own process, and SIGTERM whatever the main thread is doing."""

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any

from faultrun.errors import FaultrunError
from faultrun.sdk.own_file import OwnFile, out_of_the_way
from faultrun.sdk.worker.stop_signals import outlive

_PIPE_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class WakeupPipe:
    """A pipe with one reader and ``poke`` for all others; rung by SIGTERM too after ``take_sigterm``."""

    def __init__(self) -> None:
        self._reader, self._writer = map(OwnFile, map(out_of_the_way, os.pipe2(_PIPE_FLAGS)))
        self._previous: Any = signal.SIG_DFL
        self._has_sigterm = False
        self._rung_at = -1

    @property
    def fd(self) -> int | None:
        """What to wait on; None where there is nothing."""
        return self._reader.fd if self._reader.is_ours() else None

    def poke(self, byte: bytes = b"\0") -> None:
        """Wake the reader, who looks by itself every second where the pipe is closed."""
        with contextlib.suppress(OSError):  # full: it has enough reasons to wake up
            os.write(self._writer.number(), byte)

    def opens_again(self) -> bool:
        """Make it anew where the script has closed an end of it, at the same numbers if they are free.

        In the reader's thread. True: it had to.
        """
        if self._reader.is_ours() and self._writer.is_ours():
            return False
        ends = self._reader, self._writer
        for end in ends:
            end.close()
        with contextlib.suppress(OSError):  # no descriptor is left: who polls looks every second
            pair = zip(os.pipe2(_PIPE_FLAGS), ends, strict=True)
            self._reader, self._writer = (OwnFile(out_of_the_way(fd, end.fd)) for fd, end in pair)
        return True

    def rings_here(self) -> None:
        """Main thread: signals ring at the number that it has now, unless a loop of the script has them."""
        if self._has_sigterm and self._rung_at != self._writer.fd:
            before, self._rung_at = self._rung_at, self._writer.fd
            with contextlib.suppress(OSError, ValueError):
                other = signal.set_wakeup_fd(self._rung_at, warn_on_full_buffer=False)
                if before >= 0 and other not in (before, -1):
                    signal.set_wakeup_fd(other)

    def read(self) -> bool:
        """Empty the pipe; whether SIGTERM was among what woke us."""
        woken = b""
        with contextlib.suppress(OSError):
            while data := os.read(self._reader.number(), 512):
                woken += data
        return signal.SIGTERM in woken

    def take_sigterm(self) -> None:
        """Have SIGTERM wake the reader instead of ending the process. FaultrunError outside the main thread.

        A handler that the script had set before still runs whenever the
        interpreter comes to it. Child processes that are forked get back what was there before.
        """
        if self._has_sigterm:
            return
        if threading.current_thread() is not threading.main_thread():
            because = "Python gives signals to the main thread only, and this is another one"
            hint = "make the first call of faultrun.sdk in the main thread, before the training loop"
            raise FaultrunError("faultrun.sdk cannot take SIGTERM here", because=because, hint=hint)
        outlive()
        self._previous = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.siginterrupt(signal.SIGTERM, False)  # a slow write of the script goes on
        self._has_sigterm = True
        self.rings_here()

    def release_in_child(self) -> None:
        """In a forked child: its SIGTERM is not ours, and must not ring in the parent."""
        if self._has_sigterm:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, self._previous if self._previous is not None else signal.SIG_DFL)
            self._has_sigterm = False
        self._reader.close()
        self._writer.close()

    def _on_sigterm(self, signum: int, frame: FrameType | None) -> None:
        """Runs in the main thread when the interpreter gets to it, which may be never."""
        # an event loop of the script may have taken the wakeup descriptor
        self.poke(bytes([signum]))
        if callable(self._previous):
            self._previous(signum, frame)
