"""The helper thread's view of a torch training: which step to save now, and the writing of it."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.state.boundary import Boundary, nothing_is_missing, passes
from faultrun.sdk.torch.state.state_dict import emptied, is_ours, read_state
from faultrun.sdk.torch.state.trees import copied, same
from faultrun.sdk.worker.save_files import Position, Saved, Sink, numbered
from faultrun.sdk.worker.state_provider import SaveOrder, StateProvider, limits_of
from faultrun.sdk.worker.update_lock import NotSaved, UpdatePhase

_DEVICE_BEHIND_S = 2.0
_PEERS_LATE_S = 10.0
"""On a machine with no processor to spare; what is saved before a peer has joined is worth nothing."""


class TorchProvider(StateProvider):
    """Over a ``Guard``. ``state_fn()`` replaces our dict, ``save_fn(state, path)`` replaces ``torch.save``.

    Both run in the helper thread at a moment when no update is under way.
    """

    suffix = ".pt"
    """Of the files that are written."""

    def __init__(
        self,
        guard: Guard,
        state_fn: Callable[[], Any] | None = None,
        save_fn: Callable[[Any, str], object] | None = None,
    ) -> None:
        super().__init__(guard.writer, guard.lock)
        self._guard = guard
        self._state_fn = state_fn
        self._save_fn = save_fn
        self._chosen: Boundary | None = None

    def save_no_tensors(self, directory: Path) -> None:
        """Save into ``directory`` all that a gasp would hold now but its tensors. Main thread.

        ``save_fn`` is not tried: it may write gigabytes. Whatever the script's objects raise comes out;
        ValueError: it could not be read again.
        """
        content, plain = self._no_tensors()
        place = numbered(directory / f"state{self.suffix}")
        saved = self.writer.save(place, Position(), lambda sink: torch.save(content, sink))
        if plain and not is_ours(read_state(saved.path)):
            raise ValueError("torch.load(weights_only=True) refuses to read it again; are all states plain?")

    def _no_tensors(self) -> tuple[Any, bool]:
        """What a gasp would hold now but its tensors; whether it must be readable with nothing executed."""
        guard = self._guard
        if self._state_fn is not None:
            state = emptied(self._state_fn())
        else:
            state = emptied(guard.state_at(guard.boundary_now(guard.recorder.main_slot)))
        return (state if self._save_fn is None else {}), self._state_fn is None and self._save_fn is None

    def newest(self) -> int | None:
        """The step of the last boundary."""
        history = self._guard.history
        return history[-1].position.step if history else None

    def save(self, order: SaveOrder) -> Saved:
        """As ``StateProvider.save``. Shards of one step: all ranks save the same while all make steps."""
        if not self._guard.is_shard or order.peers_lost or order.step is not None:
            return self._save(order)
        self.lock.want()
        newest = self.newest()
        if newest is not None:
            step, half_s = self._agreed_on(newest), (time.monotonic() + order.until_s) / 2
            with contextlib.suppress(NotSaved):  # a peer is gone, or stopped elsewhere after all
                return self._save(replace(order, step=step, until_s=half_s), agreed=True)
        return self._save(order)

    def _save(self, order: SaveOrder, *, agreed: bool = False) -> Saved:
        complete = partial(self._updated_and_whole, order.step)
        phase = self.lock.hold(limits_of(order), complete, lambda: self._is_due(order))
        held = True
        try:
            if phase is UpdatePhase.CLEAN:
                self._chosen = self._settled_by(min(order.until_s, time.monotonic() + _DEVICE_BEHIND_S))
            boundary = self._chosen
            if boundary is None:
                raise NotSaved("the device stands in the middle of an update")
            there = self._there_already(boundary.position.step)
            if there is not None:
                return there
            state = self._state(boundary)
            ahead = boundary.position.step > self._guard.history[-1].position.step
            if not order.leaves:
                state = copied(state)
                if agreed:  # a peer that is asked later must not find us a step further
                    until_s = min(order.until_s, time.monotonic() + _PEERS_LATE_S)
                    passes(self._all_have_joined, until_s - time.monotonic())
                self.lock.release()
                held = False
            self._last = self._written(state, boundary, ahead)
            return self._last
        finally:
            if held and not order.leaves:
                self.lock.release()

    def unfinished(self) -> bool:
        """Whether ``Guard.batches`` has not come to its end."""
        return self._guard.in_loop

    def _agreed_on(self, newest: int) -> int:
        """The step that all ranks of this node save. Helper thread only."""
        worker = self._guard.worker
        return newest if worker is None else worker.agree_on_save(newest)

    def _all_have_joined(self) -> bool:
        """Whether every rank of this node has agreed to the step that was named last."""
        worker = self._guard.worker
        return worker is None or worker.joined_save() >= self.writer.session.local_world_size

    def _updated_and_whole(self, step: int | None) -> bool:
        """Asked when the main thread stands after an update: find what can be saved, of this step if any."""
        guard = self._guard
        last = guard.history[-1] if guard.history else None
        if last is None or step not in (None, last.position.step + 1):
            return False
        before = guard.history[-2] if len(guard.history) > 1 else None
        now = guard.boundary_now(guard.recorder.helper_slot)
        mark = guard.parts.device.mark
        whole = nothing_is_missing(before, last, now, guard.parts.objects.uncounted)
        if whole and (mark is None or passes(mark(), 0.05)):
            position = now.position._replace(step=now.position.step + 1)
            self._chosen = now._replace(position=position)
        else:
            self._chosen = self._settled() if last.passage is not None else None
        return self._chosen is not None

    def _settled_by(self, until_s: float) -> Boundary | None:
        """The newest boundary once the device has come to it; an older one if it never does."""
        if not self._guard.history:
            raise NotSaved("training has not begun: there is nothing to save")
        newest = self._guard.history[-1]
        if newest.passage is None:
            return newest
        passes(newest.passage.done, until_s - time.monotonic())
        return self._settled()

    def _settled(self) -> Boundary | None:
        """The newest boundary that the device has reached and not yet left by an update."""
        for boundary in reversed(self._guard.history):
            passage = boundary.passage
            if passage is not None and passage.done():
                return None if passage.left is not None and passage.left() else boundary
        return None

    def _state(self, boundary: Boundary) -> Any:
        if self._state_fn is not None:
            return self._state_fn()
        return self._guard.parts.device.to_host(self._guard.state_at(boundary))

    def _written(self, state: Any, boundary: Boundary, ahead: bool) -> Saved:
        names = numbered(self.writer.own_folder / f"gasp-step_{boundary.position.step}{self.suffix}")

        def fill(sink: Sink) -> None:
            torch.save(state, sink)
            if ahead:
                self._check_still(boundary)

        writer, write = self.writer, self._save_fn
        if ahead:  # a step that is not over is made in the group of now, which the last one need not be
            writer = replace(writer, session=replace(writer.session, trained_in=None))
        if write is None:
            return writer.save(names, boundary.position, fill)
        return writer.save_by_path(names, boundary.position, lambda path: write(state, path))

    def _check_still(self, boundary: Boundary) -> None:
        """A main thread that was taken for stuck may have moved after all, past no lock."""
        objects = self._guard.parts.objects
        if not same(boundary.objects, objects.capture()) or boundary.versions != objects.versions():
            raise NotSaved("the step went on while it was being saved")
