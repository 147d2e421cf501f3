"""A thread that copies beside training. Knows neither what is copied nor from where."""

import queue
import threading
from collections.abc import Callable


class Copier(threading.Thread):
    """One piece of work at a time. ``failed`` is told why one was not done, by this thread."""

    def __init__(self, failed: Callable[[str], object]) -> None:
        super().__init__(name="faultrun-copier", daemon=True)
        self._failed = failed
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()

    def begin(self, work: Callable[[], object]) -> None:
        """Have it done; ``wait`` first."""
        self._idle.clear()
        self._work.put(work)

    def wait(self) -> None:
        """Until nothing is under way."""
        self._idle.wait()

    def run(self) -> None:
        """Serve as long as the process lives."""
        while True:
            work = self._work.get()
            try:
                work()
            except Exception as error:  # noqa: BLE001 - the script's own objects are asked for their states
                self._failed(f"{type(error).__name__}: {error}")
            finally:
                self._idle.set()
