"""The helper thread's view of a torch training: which step to save now, and the writing of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from faultrun.model.checkpoint import Kind
from faultrun.sdk.files import Saved, Sink, Stamp, numbered
from faultrun.sdk.gate import Window, patience
from faultrun.sdk.keeper import After, NotSaved, Order
from faultrun.sdk.script import is_due
from faultrun.sdk.torch.capture import Boundary, nothing_is_missing, same
from faultrun.sdk.torch.fence import Fence
from faultrun.sdk.torch.guard import Guard, stamp_of
from faultrun.sdk.torch.state import assemble, copied, emptied, is_ours, read_state

_DEVICE_BEHIND_S = 2.0
_LOOK_S = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The script's own format, if it has one.

    ``state()`` replaces our dict; ``write(state, path)`` replaces ``torch.save``. Both run in the helper
    thread at a moment when no update is under way.
    """

    state: Callable[[], Any] | None = None
    write: Callable[[Any, str], object] | None = None


class TorchKeeper:
    """A ``Keeper`` over a ``Guard``. All but ``stop`` and ``unfinished``: helper thread only."""

    def __init__(self, guard: Guard, form: Form) -> None:
        self._guard = guard
        self._form = form
        self._chosen: Boundary | None = None
        self._last: Saved | None = None

    def save_no_tensors(self, directory: Path) -> None:
        """Save into ``directory`` all that a gasp would hold now but its tensors. Main thread.

        ``save_fn`` is not tried: it may write gigabytes. Whatever the script's objects raise comes out;
        ValueError: it could not be read again.
        """
        guard = self._guard
        if self._form.state is not None:
            state = emptied(self._form.state())
        else:
            boundary = guard.boundary_now(guard.recorder.main_slot)
            state = emptied(assemble(guard.parts, boundary, boundary, guard.randomness, guard.seat))
        names, plain = numbered(directory / "state.pt"), self._form.write is not None
        saved = guard.shelf.save(names, Stamp(step=0), lambda sink: torch.save({} if plain else state, sink))
        if self._form == Form() and not is_ours(read_state(saved.path)):
            raise ValueError("torch.load(weights_only=True) refuses to read it again; are all states plain?")

    def newest(self) -> int | None:
        """The step of the last boundary."""
        history = self._guard.history
        return history[-1].position.step if history else None

    def save(self, order: Order) -> Saved:
        """As ``Keeper.save``."""
        gate = self._guard.gate
        window = gate.hold(patience(order), self._updated_and_whole, lambda: is_due(order, self.newest()))
        held = True
        try:
            if window is Window.CLEAN:
                self._chosen = self._settled_by(min(order.until_s, time.monotonic() + _DEVICE_BEHIND_S))
            boundary = self._chosen
            if boundary is None:
                raise NotSaved("the device stands in the middle of an update")
            there = self._there_already(boundary.position.step)
            if there is not None:
                return there
            state = self._state(boundary)
            if order.after is After.GO_ON:
                state = copied(state)
                gate.release()
                held = False
            self._last = self._written(state, boundary, window)
            return self._last
        finally:
            if held and order.after is After.GO_ON:
                gate.release()

    def prune(self, newest: Saved) -> None:
        """As ``Keeper.prune``."""
        self._guard.shelf.prune(newest)

    def stop(self) -> None:
        """As ``Keeper.stop``."""
        self._guard.gate.stop()

    def unfinished(self) -> bool:
        """Whether ``Guard.batches`` has not come to its end."""
        return self._guard.in_loop

    def _updated_and_whole(self) -> bool:
        """Asked when the main thread stands after an update: find what can be saved."""
        guard = self._guard
        if not guard.history:
            return False
        last = guard.history[-1]
        before = guard.history[-2] if len(guard.history) > 1 else None
        now = guard.boundary_now(guard.recorder.helper_slot)
        fence = guard.parts.device.fence
        if nothing_is_missing(before, last, now) and (fence is None or _passes(fence(), 0.05)):
            position = now.position._replace(step=now.position.step + 1)
            self._chosen = now._replace(position=position)
        else:
            self._chosen = self._settled() if guard.passages else None
        return self._chosen is not None

    def _settled_by(self, until_s: float) -> Boundary | None:
        """The newest boundary once the device has come to it; an older one if it never does."""
        guard = self._guard
        if not guard.history:
            raise NotSaved("training has not begun: there is nothing to save")
        if not guard.passages:
            return guard.history[-1]
        _passes(guard.passages[-1].done, until_s - time.monotonic())
        return self._settled()

    def _settled(self) -> Boundary | None:
        """The newest boundary that the device has reached and not yet left by an update."""
        guard = self._guard
        for boundary, passage in zip(reversed(guard.history), reversed(guard.passages), strict=True):
            if passage.done():
                return None if passage.left is not None and passage.left() else boundary
        return None

    def _there_already(self, step: int) -> Saved | None:
        """The file that holds this step already: written before, or the one that training resumed from."""
        if self._last is not None and self._last.step == step and Path(self._last.path).exists():
            return self._last
        point = self._guard.shelf.session.point
        if point is not None and point.step == step and Path(point.path).is_file():
            there = Path(point.path)
            return self._guard.shelf.saved(there, step, there.stat().st_size)
        if step == 0:
            raise NotSaved("no step is finished: there is nothing to save")
        return None

    def _state(self, boundary: Boundary) -> Any:
        guard = self._guard
        if self._form.state is not None:
            return self._form.state()
        newest = guard.history[-1]
        if boundary.position.step > newest.position.step:
            newest = boundary
        state = assemble(guard.parts, boundary, newest, guard.randomness, guard.seat)
        return guard.parts.device.to_host(state)

    def _written(self, state: Any, boundary: Boundary, window: Window) -> Saved:
        guard = self._guard
        stamp = stamp_of(boundary.position, Kind.GASP)
        name = f"gasp-step_{boundary.position.step}.pt"
        names = numbered(guard.shelf.folder.path / f"rank_{guard.seat.rank}" / name)

        def fill(sink: Sink) -> None:
            torch.save(state, sink)
            if window is Window.UPDATED and boundary not in guard.history:
                self._check_still(boundary)

        write = self._form.write
        if write is None:
            return guard.shelf.save(names, stamp, fill)
        return guard.shelf.save_by_path(names, stamp, lambda path: write(state, path))

    def _check_still(self, boundary: Boundary) -> None:
        """A main thread that was taken for stuck may have moved after all, past no gate."""
        objects = self._guard.parts.objects
        if not same(boundary.objects, objects.capture()) or boundary.versions != objects.versions():
            raise NotSaved("the step went on while it was being saved")


def _passes(fence: Fence, timeout_s: float) -> bool:
    """Whether the device comes to ``fence`` in time."""
    until_s = time.monotonic() + timeout_s
    while not fence():
        if time.monotonic() >= until_s:
            return False
        time.sleep(_LOOK_S)
    return True
