"""When may another thread read the training state? Between a step's end and the next update's beginning.

The main thread says what it does (``begin``, ``end``, ``boundary``) for less
than a microsecond each; the helper thread asks for a consistent moment and
holds the main thread off further changes while it reads.

``boundary``  a step is complete: parameters, schedulers and position belong together
``begin``     an update of the state starts (an optimizer's step)
``end``       that update returned; more may follow before the next boundary
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from faultrun.sdk.keeper import NotSaved, Order

_FIRST_S = 5.0


class Window(Enum):
    """Where the main thread is between two boundaries."""

    STARTING = "before the first step"
    CLEAN = "between updates"
    UPDATING = "inside an update"
    UPDATED = "after an update, before the end of the step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for a better moment, in seconds. ``until_s`` is on the monotonic clock.

    ``settle_s``: for the running step to end, although the state is already
    consistent: a step that is nearly done need not be lost.
    ``stuck_s``: for a main thread that stands after an update, before it is
    taken for stuck. ``first_s``: for the very first boundary, before which
    there is nothing that could be lost.
    """

    until_s: float
    settle_s: float = 0.25
    stuck_s: float = 1.0
    first_s: float = float("inf")


def patience(order: Order) -> Patience:
    """What an order deserves. A rank that has lost a peer will hardly finish its first step."""
    return Patience(
        until_s=order.until_s,
        settle_s=0.25 if order.step is None else 0.0,
        first_s=_FIRST_S if order.peers_lost else float("inf"),
    )


class Gate:
    """One main thread, which changes the state, and one helper thread, which sometimes reads it."""

    def __init__(self) -> None:
        self._reading = threading.Lock()
        self._news = threading.Event()
        self._looked = threading.Condition()
        self._looked_at = 0
        self._wanted = False
        self._since_s = 0.0
        self.window = Window.STARTING
        self.boundaries = 0
        self.stopped = False

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a consistent moment."""
        return self._wanted

    @property
    def _harm(self) -> str:
        changed = self.window in (Window.UPDATING, Window.UPDATED)
        return ": its state is half changed" if changed else ""

    def begin(self) -> None:
        """The state is about to change. Blocks while it is being read."""
        with self._reading:
            self.window = Window.UPDATING

    def end(self) -> None:
        """The change returned."""
        self.window = Window.UPDATED
        if self._wanted:
            self._since_s = time.monotonic()
            self._news.set()

    def boundary(self, capture: Callable[[], None]) -> None:
        """A step is complete; ``capture`` runs before anybody can look. Blocks while the state is read."""
        with self._reading:
            capture()
            self.boundaries += 1
            self.window = Window.CLEAN
        if self._wanted:
            self._news.set()

    def yield_to_reader(self) -> None:
        """Stay at this boundary until whoever wants to read has looked at it."""
        if self._wanted:
            here = self.boundaries
            with self._looked:
                self._looked.wait_for(lambda: not self._wanted or self._looked_at >= here)

    def stop(self) -> None:
        """The main thread will change nothing any more: it is on its way out."""
        self.stopped = True
        self._news.set()

    def hold(
        self, patience: Patience, complete: Callable[[], bool], due: Callable[[], bool] = lambda: True
    ) -> Window:
        """Wait for a consistent moment; afterwards the main thread cannot change anything until ``release``.

        Returns CLEAN, or UPDATED when the main thread is stuck (or on its way
        out) after an update and ``complete`` says that nothing of the step is
        missing. A CLEAN moment counts only if ``due``, which may raise
        NotSaved. Raises NotSaved when the patience is over.
        """
        self._wanted = True
        self._since_s = time.monotonic()
        try:
            return self._held(patience, complete, due)
        except NotSaved:
            self._look(self.boundaries)
            self._wanted = False
            raise

    def _held(self, patience: Patience, complete: Callable[[], bool], due: Callable[[], bool]) -> Window:
        first = self.boundaries
        settled_s = self._since_s + patience.settle_s
        while True:
            now_s = time.monotonic()
            if self.boundaries != first or self.stopped or now_s >= settled_s:
                window = self._try_hold(patience, complete, due)
                if window is not None:
                    return window
                if self.stopped:
                    raise NotSaved(f"the script stopped {self.window.value}{self._harm}")
            if not self.boundaries and now_s >= self._since_s + patience.first_s:
                raise NotSaved("no step is finished: there is nothing to save")
            if now_s >= patience.until_s:
                raise NotSaved(f"the main thread stayed {self.window.value} until the window was over")
            self._news.wait(self._pause_s(now_s, settled_s, patience))
            self._news.clear()

    def release(self) -> None:
        """Let the main thread change the state again."""
        self._wanted = False
        self._reading.release()
        self._look(self.boundaries)

    def _try_hold(
        self, patience: Patience, complete: Callable[[], bool], due: Callable[[], bool]
    ) -> Window | None:
        self._reading.acquire()
        here = self.boundaries
        try:
            if self.window is Window.CLEAN and due():
                self._look(here)  # it may compute until it wants to change something
                return Window.CLEAN
            stuck = self.stopped or time.monotonic() - self._since_s >= patience.stuck_s
            if self.window is Window.UPDATED and stuck and complete():
                return Window.UPDATED
        except BaseException:
            self._reading.release()
            raise
        self._reading.release()
        self._look(here)
        return None

    def _look(self, boundary: int) -> None:
        with self._looked:
            self._looked_at = boundary
            self._looked.notify_all()

    def _pause_s(self, now_s: float, settled_s: float, patience: Patience) -> float:
        """Until something can be different without news: the step has settled, or is taken for stuck."""
        waits_s = (patience.stuck_s, patience.first_s)
        coming = (settled_s, *(self._since_s + wait_s for wait_s in waits_s), patience.until_s)
        return max(0.001, min((at_s for at_s in coming if at_s > now_s), default=0.05) - now_s)
