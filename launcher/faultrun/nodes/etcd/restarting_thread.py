"""A thread that outlives whatever goes wrong in it.

A renewal that ended with the first odd answer would let the lease of a healthy node run out.
"""

import contextlib
import threading
from collections.abc import Callable

_AGAIN_S = 0.2

Troubled = Callable[[Exception], object]
"""Told of what went wrong, a bug too, in the thread where it did; must not block. What it raises is lost."""


class RestartingThread:
    """Does ``turn`` again and again; a turn answers how long to wait until the next one, in seconds."""

    def __init__(
        self,
        name: str,
        turn: Callable[[], float],
        troubled: Troubled,
        interrupt: Callable[[], object] = lambda: None,
    ) -> None:
        """``interrupt`` ends what keeps a turn waiting; called when the thread shall end."""
        self._turn, self._interrupt, self._troubled = turn, interrupt, troubled
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin with the first turn at once."""
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether it was told to end."""
        return self._closed.is_set()

    def close(self, patience_s: float = 1.0) -> None:
        """End after this turn."""
        self._closed.set()
        self._interrupt()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(patience_s)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                pause_s = self._turn()
            except Exception as error:  # noqa: BLE001  a bug must not end the thread: it is told, and tried again
                pause_s = _AGAIN_S
                with contextlib.suppress(Exception):
                    self._troubled(error)
            self._closed.wait(pause_s)
