"""Signals as readable bytes: blocked from the first instruction, never lost, handled in the loop."""

import os
import signal
from collections.abc import Iterator

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_HANDLED = (*STOP_SIGNALS, signal.SIGCHLD)


def block() -> None:
    """Hold signals back until ``SignalPipe`` is there; call this before anything slow is imported."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)


def unblock() -> None:
    """Give signals their usual meaning back, for verbs that do not supervise."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)


class SignalPipe:
    """``fd`` becomes readable when a signal came; ``drain`` yields the numbers in order."""

    def __init__(self) -> None:
        self.fd, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for signum in _HANDLED:
            # nohup and background shells start us with the signal ignored; that is the user's wish.
            if signum is signal.SIGHUP and signal.getsignal(signum) is signal.SIG_IGN:
                continue
            signal.signal(signum, _only_wake)
        unblock()

    def drain(self) -> Iterator[int]:
        """Yield the signals that came since the last call."""
        while True:
            try:
                data = os.read(self.fd, 4096)
            except BlockingIOError:
                return
            yield from data

    def close(self) -> None:
        """Ignore further stop signals and let go of the pipe; the end of the run is already decided."""
        for signum in _HANDLED:
            signal.signal(signum, signal.SIG_DFL if signum is signal.SIGCHLD else signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        os.close(self.fd)
        os.close(self._write_end)


def _only_wake(signum: int, frame: object) -> None:
    """Python writes the number into the wakeup pipe before it calls this."""
