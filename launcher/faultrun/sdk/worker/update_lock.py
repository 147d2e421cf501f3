"""When may another thread read the training state? Between a step's end and the next update's beginning.

The main thread says what it does (``begin``, ``end``, ``boundary``) for less than a microsecond each; the
helper thread asks for a consistent moment and holds the main thread off further changes while it reads.

``boundary``  a step is complete: parameters, schedulers and position belong together
``begin``     an update of the state starts (an optimizer's step)
``end``       that update returned; more may follow before the next boundary

A third thread may copy the state of a boundary meanwhile: it is lent to it (``lend``, ``give_back``).
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class NotSaved(Exception):
    """The state could not be saved; the message says why, for a person."""


class UpdatePhase(Enum):
    """Where the main thread is between two boundaries."""

    STARTING = "before the first step"
    CLEAN = "between updates"
    UPDATING = "inside an update"
    UPDATED = "after an update, before the end of the step"


_CHANGED = frozenset({UpdatePhase.UPDATING, UpdatePhase.UPDATED})


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldLimits:
    """How long to wait for a better moment, in seconds. ``until_s`` is on the monotonic clock.

    ``settle_s``: for the running step to end, although the state is already consistent: a step that is nearly
    done need not be lost. ``stuck_s``: for a main thread that stands after an update, before it is taken for
    stuck. ``first_s``: for the very first boundary, before which there is nothing that could be lost.
    ``again_s``: on the monotonic clock, when it is asked again of a stuck one whether there is a state.
    """

    until_s: float
    settle_s: float = 0.25
    stuck_s: float = 1.0
    first_s: float = float("inf")
    again_s: float = 0.0


class UpdateLock:
    """One main thread, which changes the state, and one helper thread, which sometimes reads it."""

    def __init__(self) -> None:
        self._reading = threading.Lock()
        self._lent = threading.Lock()
        self._news = threading.Event()
        self._looked = threading.Condition()
        self._looked_at = 0
        self._since_s = 0.0
        self.is_wanted = False
        """Whether a reader waits for a consistent moment."""
        self.phase = UpdatePhase.STARTING
        self.boundaries = 0
        self.stopped = False
        self._spoilt = ""

    def begin(self) -> None:
        """The state is about to change. Blocks while it is being read."""
        with self._lent, self._reading:
            self.phase = UpdatePhase.UPDATING

    def end(self) -> None:
        """The change returned."""
        self.phase = UpdatePhase.UPDATED
        if self.is_wanted:
            self._since_s = time.monotonic()
            self._news.set()

    def boundary(self, capture: Callable[[], None]) -> None:
        """A step is complete; ``capture`` runs before any reader can look. Blocks while the state is read."""
        with self._lent, self._reading:
            capture()
            self.boundaries += 1
            self._spoilt = ""
            self.phase = UpdatePhase.CLEAN
        if self.is_wanted:
            self._news.set()

    def yield_to_reader(self) -> None:
        """Stay at this boundary until the thread that wants to read has looked at it."""
        if self.is_wanted:
            here = self.boundaries
            with self._looked:
                self._looked.wait_for(lambda: not self.is_wanted or self._looked_at >= here)

    def lend(self) -> None:
        """Between a boundary and the next change: there is none until ``give_back``. Main thread."""
        self._lent.acquire()

    def give_back(self) -> None:
        """The state was copied. Any thread."""
        self._lent.release()

    def want(self) -> None:
        """A reader is about to ``hold``: from now on no boundary is passed unseen (``let_read``)."""
        self.is_wanted = True

    def let_read(self) -> None:
        """Stay at this boundary until the reading thread has looked, and has read if this is the place."""
        self.yield_to_reader()
        with self._reading:
            pass

    def spoil(self, why: str) -> None:
        """The state is worth nothing until the next boundary, and is neither waited for nor saved."""
        self._spoilt = why
        self._news.set()

    def stop(self) -> None:
        """The main thread will change nothing any more: it is on its way out."""
        self.stopped = True
        self._news.set()

    def hold(
        self, limits: HoldLimits, complete: Callable[[], bool], due: Callable[[], bool] = lambda: True
    ) -> UpdatePhase:
        """Wait for a consistent moment; afterwards the main thread cannot change anything until ``release``.

        Returns CLEAN, or another when the main thread is stuck (or on its way out) in an update or after one
        and ``complete`` says that there is a state all the same. A CLEAN moment counts only if ``due``, which
        may raise NotSaved. Raises NotSaved when the limits are over.
        """
        self.is_wanted = True
        self._since_s = time.monotonic()
        try:
            return self._held(limits, complete, due)
        except NotSaved:
            self._look(self.boundaries)
            self.is_wanted = False
            raise

    def release(self) -> None:
        """Let the main thread change the state again."""
        self.is_wanted = False
        self._reading.release()
        self._look(self.boundaries)

    def _held(self, limits: HoldLimits, complete: Callable[[], bool], due: Callable[[], bool]) -> UpdatePhase:
        first = self.boundaries
        settled_s = self._since_s + limits.settle_s
        while True:
            if self._spoilt:
                raise NotSaved(self._spoilt)
            now_s = time.monotonic()
            if self.boundaries != first or self.stopped or now_s >= settled_s:
                if (phase := self._try_hold(limits, complete, due)) is not None:
                    return phase
                if self.stopped:
                    harm = ": its state is half changed" if self.phase in _CHANGED else ""
                    raise NotSaved(f"the script stopped {self.phase.value}{harm}")
            if not self.boundaries and now_s >= self._since_s + limits.first_s:
                raise NotSaved("no step is finished: there is nothing to save")
            if now_s >= limits.until_s:
                raise NotSaved(f"the main thread stayed {self.phase.value} until the window was over")
            self._news.wait(self._pause_s(now_s, settled_s, limits))
            self._news.clear()

    def _try_hold(
        self, limits: HoldLimits, complete: Callable[[], bool], due: Callable[[], bool]
    ) -> UpdatePhase | None:
        self._reading.acquire()
        here = self.boundaries
        try:
            if self.phase is UpdatePhase.CLEAN and due():
                self._look(here)  # it may compute until it wants to change something
                return UpdatePhase.CLEAN
            stuck = self.stopped or time.monotonic() - self._since_s >= limits.stuck_s
            if (phase := self.phase) in _CHANGED and stuck and complete():
                return phase
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

    def _pause_s(self, now_s: float, settled_s: float, limits: HoldLimits) -> float:
        """Until something can be different without news: the step has settled, or is taken for stuck."""
        waits_s = (limits.stuck_s, limits.first_s)
        coming = (settled_s, *(self._since_s + wait_s for wait_s in waits_s), limits.again_s, limits.until_s)
        return max(0.001, min((at_s for at_s in coming if at_s > now_s), default=0.05) - now_s)
