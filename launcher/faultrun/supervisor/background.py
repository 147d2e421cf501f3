"""What takes time and must not hold up the loop: one helper thread at a time, answers as events."""

import threading
from collections.abc import Callable, Iterable

from faultrun.model.events import Event
from faultrun.supervisor.reactor import Reactor


class BackgroundTasks:
    """Runs functions that yield events. A bug in one is kept and re-raised in the loop's thread."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._thread: threading.Thread | None = None
        self._sent = self._dropped = 0
        self.bug: BaseException | None = None

    def send(self, errand: Callable[[], Iterable[Event]], on_bug: Callable[[], Event]) -> None:
        """Start ``errand`` after the one before it has ended; post what it yields."""
        before = self._thread
        self._sent += 1
        number = self._sent

        def run() -> None:
            if before is not None:
                before.join()
            if number <= self._dropped:
                return
            try:
                for event in errand():
                    self._reactor.post(event)
            except BaseException as bug:  # noqa: BLE001  carried to the main thread, which re-raises it
                self.bug = bug
                self._reactor.post(on_bug())

        self._thread = threading.Thread(target=run, name="faultrun-errand", daemon=True)
        self._thread.start()

    def drop(self) -> None:
        """Begin none of those that still wait."""
        self._dropped = self._sent

    def raise_bug(self) -> None:
        """Re-raise what an errand could not have meant to raise."""
        if self.bug is not None:
            raise self.bug

    def idle(self) -> bool:
        """Whether nothing is under way."""
        return self._thread is None or not self._thread.is_alive()

    def settle(self, patience_s: float | None) -> None:
        """Wait for the last errand, for ever if None: a rewrite under way must not be cut by our own exit."""
        if self._thread is not None:
            self._thread.join(patience_s)
