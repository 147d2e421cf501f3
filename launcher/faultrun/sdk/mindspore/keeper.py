"""The helper thread's view of a MindSpore training: which state to save now, and the writing of it.

Best first: the live parameters between two steps; the live parameters while
the main thread sits in a collective, if the optimizer marks the beginning of
its updates (``optimizer.py``) and shows that none has begun; the last copy.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from faultrun.sdk.files import Saved, Shelf, Stamp
from faultrun.sdk.gate import Gate, Patience
from faultrun.sdk.keeper import After, NotSaved, Order
from faultrun.sdk.mindspore.memory import HostMemory, HostState, Place
from faultrun.sdk.script import is_due

_SETTLE_S = 0.25
_TRIES = 3


class Writing(Protocol):
    """How a state becomes a file."""

    def __call__(self, shelf: Shelf, state: HostState, stamp: Stamp) -> Saved:
        """Write ``state``; as ``Shelf.save_by_path``."""
        ...


@dataclass(slots=True)
class Training:
    """What the callback, in the main thread, lets the keeper know, in the helper thread.

    ``begun`` counts the updates that have begun, once it is seen that they are
    counted; ``mark`` is its number at the newest boundary, changed under ``memory.lock``.
    """

    gate: Gate
    memory: HostMemory | None = None
    place: Place | None = None
    begun: Callable[[], int] | None = None
    mark: tuple[Place, int] | None = None
    live: bool = False
    step_s: float = 0.0
    running: bool = False


class MindSporeKeeper:
    """A ``Keeper`` over a ``Training``. All but ``stop`` and ``unfinished``: helper thread only."""

    def __init__(self, training: Training, shelf: Shelf, write: Writing) -> None:
        self._training = training
        self._shelf = shelf
        self._write = write
        self._last: Saved | None = None

    def newest(self) -> int | None:
        """The step that was last completed."""
        place = self._training.place
        return place.step if place is not None else None

    def save(self, order: Order) -> Saved:
        """As ``Keeper.save``."""
        gate = self._training.gate
        try:
            gate.hold(self._patience(order), lambda: False, lambda: is_due(order, self.newest()))
        except NotSaved:
            if order.step is not None and order.step != self._copied_step():
                raise
            return self._saved(self._state_in_a_step())
        try:
            if order.after is After.LEAVE:
                return self._saved(self._state_between_steps())
            state = _detached(self._state_between_steps())
        finally:
            if order.after is After.GO_ON:
                gate.release()
        return self._saved(state)

    def prune(self, newest: Saved) -> None:
        """As ``Keeper.prune``."""
        self._shelf.prune(newest)

    def stop(self) -> None:
        """As ``Keeper.stop``."""
        self._training.gate.stop()

    def unfinished(self) -> bool:
        """Whether ``Model.train`` has not come to its end."""
        return self._training.running

    def _patience(self, order: Order) -> Patience:
        """How long to wait for the end of the running step. A main thread whose peer is dead waits for ever.

        A fresh copy makes waiting pointless; an old one, or none, makes it
        worth a few steps' time.
        """
        if order.step is not None:
            return Patience(until_s=order.until_s, settle_s=0.0)
        training, now_s = self._training, time.monotonic()
        fresh = training.begun is not None or (
            self.newest() is not None and self.newest() == self._copied_step()
        )
        wait_s = 3 * training.step_s
        wait_s = min(max(wait_s, 0.05), _SETTLE_S) if fresh else max(wait_s, 2 * _SETTLE_S)
        wait_s = min(wait_s, (order.until_s - now_s) / 3)
        return Patience(until_s=now_s + wait_s, settle_s=min(_SETTLE_S, wait_s))

    def _copied_step(self) -> int | None:
        memory = self._training.memory
        copied = memory.newest if memory is not None else None
        return copied.place.step if copied is not None else None

    def _state_between_steps(self) -> HostState:
        """The main thread stands before the next step: the live parameters, or the copy it has just made."""
        training = self._training
        if training.memory is None or training.place is None:
            raise NotSaved("training has not begun: there is nothing to save")
        if training.live and training.memory.views is not None:
            return HostState(place=training.place, arrays=training.memory.views)
        return self._copy()

    def _state_in_a_step(self) -> HostState:
        """The main thread is inside a step that does not end."""
        live = self._live_before_updates()
        return live if live is not None else self._copy()

    def _live_before_updates(self) -> HostState | None:
        """The live parameters, if it is certain that no update touched them while they were read."""
        training = self._training
        memory, begun = training.memory, training.begun
        if memory is None or memory.views is None or begun is None or not training.live:
            return None
        for _ in range(_TRIES):
            with memory.lock:
                mark = training.mark
                early = {name: np.copy(one) for name, one in memory.early.items()}
            if mark is None or begun() != mark[1]:
                return None
            arrays = {name: np.copy(view) for name, view in memory.views.items() if name not in early}
            if begun() == mark[1] and training.mark is mark:
                return HostState(place=mark[0], arrays={**arrays, **early})
        return None

    def _copy(self) -> HostState:
        memory = self._training.memory
        if memory is None or memory.newest is None:
            raise NotSaved("no step is finished: there is nothing to save")
        with memory.lock:
            return memory.newest

    def _saved(self, state: HostState) -> Saved:
        place = state.place
        if self._last is not None and self._last.step == place.step and Path(self._last.path).exists():
            return self._last
        point = self._shelf.session.point
        if point is not None and point.step == place.step and Path(point.path).is_file():
            there = Path(point.path)
            return self._shelf.saved(there, place.step, there.stat().st_size)
        if place.step == 0:
            raise NotSaved("no step is finished: there is nothing to save")
        stamp = Stamp(step=place.step, epoch=place.epoch, step_in_epoch=place.batch)
        self._last = self._write(self._shelf, state, stamp)
        return self._last


def _detached(state: HostState) -> HostState:
    """A copy that the main thread cannot change any more."""
    return HostState(place=state.place, arrays={name: np.copy(one) for name, one in state.arrays.items()})
