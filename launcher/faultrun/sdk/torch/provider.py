"""The helper thread's view of a torch training: which step to save now, and the writing of it."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.state.boundary import Boundary, passes
from faultrun.sdk.torch.state.state_dict import emptied, is_ours, read_state
from faultrun.sdk.torch.state.trees import copied, same
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Position, Saved, SaveWriter, Sink, numbered
from faultrun.sdk.worker.state_provider import SaveOrder, StateProvider, limits_of, preflight
from faultrun.sdk.worker.training_stages import told
from faultrun.sdk.worker.update_lock import NotSaved, UpdatePhase
from faultrun.sdk.worker.worker import Worker

GASP_SUFFIX = ".pt"
"""The suffix of a gasp of a plain torch training."""

_DEVICE_BEHIND_S = 2.0
_DECIDES_S = 0.1
"""A script decides behind a step whether it leaves its loop; one that evaluates there is not waited for."""
_PEERS_LATE_S = 10.0
"""On a machine with no processor to spare; what is saved before a peer has joined is worth nothing."""


class GaspForm(Protocol):
    """What the gasps of a framework hold, and how they are written. Helper thread, if nothing is said."""

    def rehearse(self, directory: Path) -> None:
        """Save into ``directory`` all that a gasp would hold now but its tensors. Main thread.

        Whatever the script's objects raise comes out; ValueError: it could not be read again.
        """

    def state(self, boundary: Boundary) -> Any:
        """The state at ``boundary``, on the host. No update is under way."""

    def write(self, writer: SaveWriter, state: Any, boundary: Boundary, check: Callable[[], None]) -> Saved:
        """Write ``state``, and ``check`` last, which may raise NotSaved."""


class GaspFile:
    """One file. ``state`` tells what it holds at a boundary, ``now`` at this moment, in the main thread.

    By default what ``Training.load`` takes; then it must be read again with nothing executed.
    ``save_fn(state, path)`` replaces ``torch.save``, and is not tried: it may write gigabytes.
    """

    def __init__(
        self,
        training: Training,
        now: Callable[[], Any] | None = None,
        state: Callable[[Boundary], Any] | None = None,
        suffix: str = GASP_SUFFIX,
        save_fn: Callable[[Any, str], object] | None = None,
    ) -> None:
        self._writer = training.writer
        self._now = now or training.state_now
        self.state = state or training.host_state_at
        self._suffix, self._save_fn = suffix, save_fn
        self._is_ours = now is None and save_fn is None
        training.parts.objects.are_plain = training.parts.updated.are_plain = self._is_ours

    def rehearse(self, directory: Path) -> None:
        """Save all but the tensors into ``directory`` and read it again. ValueError: it cannot be read."""
        state = emptied(self._now())
        content = state if self._save_fn is None else {}
        place = numbered(directory / f"state{self._suffix}")
        saved = self._writer.save(place, Position(), lambda sink: torch.save(content, sink))
        if self._is_ours and not is_ours(read_state(saved.path)):
            raise ValueError("torch.load(weights_only=True) refuses to read it again; are all states plain?")

    def write(self, writer: SaveWriter, state: Any, boundary: Boundary, check: Callable[[], None]) -> Saved:
        """``gasp-step_<step>`` in the writer's own folder."""
        names = numbered(writer.own_folder / f"gasp-step_{boundary.position.step}{self._suffix}")
        if (save := self._save_fn) is not None:
            return writer.save_by_path(names, boundary.position, lambda path: save(state, path))

        def fill(sink: Sink) -> None:
            torch.save(state, sink)
            check()

        return writer.save(names, boundary.position, fill)


def keep(training: Training, worker: Worker, form: GaspForm) -> None:
    """Answer requests from now on, and try what a save will need. FaultrunError: it can never succeed."""
    worker.keep(TorchProvider(training, form))
    preflight(training.writer, f"rank_{training.writer.session.rank}", form.rehearse)


class TorchProvider(StateProvider):
    """Over a ``Training``; its saves have this ``form``.

    ``unended(step)`` finds what can be saved while the main thread stands after an update, of that step if
    any, where the end of a step is not the script's to tell.
    """

    def __init__(
        self,
        training: Training,
        form: GaspForm,
        unended: Callable[[int | None], Boundary | None] | None = None,
    ) -> None:
        super().__init__(training.writer, training.lock)
        self._training, self._form = training, form
        self._unended = unended or self._whole_after_update
        self._chosen: Boundary | None = None
        self._slow_s = 0.0
        """Until when a main thread that waits for no peer may come to the end of its step."""

    def gives_way(self) -> None:
        """Another training takes the place of this one. FaultrunError: this one has not even begun."""
        if not self._training.may_be_followed:
            because = "another protect() came before, whose training has made no update yet, and one is saved"
            hint = (
                "give one guard all: protect(torch.nn.ModuleList([generator, critic]), *both_optimizers);"
                " or call guard.close() on the first, where it is to be replaced"
            )
            raise FaultrunError("two trainings cannot be protected at once", because=because, hint=hint)
        self._training.ends_stage()

    def newest(self) -> int | None:
        """The step of the last boundary."""
        history = self._training.history
        return history[-1].position.step if history else None

    def save(self, order: SaveOrder) -> Saved:
        """Save the state of a step; ranks with shards agree on one while all of them make steps."""
        if not self._training.is_shard or order.peers_lost or order.step is not None:
            return self._save(order)
        self.lock.want()
        if (newest := self.newest()) is not None:
            step, half_s = self._agreed_on(newest), (time.monotonic() + order.until_s) / 2
            with contextlib.suppress(NotSaved):  # a peer is gone, or stopped elsewhere after all
                return self._save(replace(order, step=step, until_s=half_s), agreed=True)
        return self._save(order)

    def _save(self, order: SaveOrder, *, agreed: bool = False) -> Saved:
        complete = partial(self._updated_and_whole, order)
        self._slow_s = (time.monotonic() + order.until_s) / 2
        limits = replace(limits_of(order), again_s=self._slow_s)
        phase = self.lock.hold(limits, complete, lambda: self._is_due(order))
        held = True
        try:
            if phase is UpdatePhase.CLEAN:
                self._chosen = self._settled_by(min(order.until_s, time.monotonic() + _DEVICE_BEHIND_S))
                if self._chosen is self._training.history[-1] and self._training.is_touched:
                    self._chosen = self._copied(order)
                    if self._chosen is None:
                        raise NotSaved("parameters were changed since the last step, and by no update")
                if not self._training.is_shard:
                    self._training.wait_decided(_DECIDES_S)
            if (boundary := self._chosen) is None:
                raise NotSaved("the device stands in the middle of an update")
            if (there := self._there_already(boundary.position.step)) is not None:
                return there
            state = self._state_of(boundary)
            ahead = boundary.position.step > self._training.history[-1].position.step
            if not order.leaves:
                state = copied(state)
                if agreed:  # a peer that is asked later must not find us a step further
                    until_s = min(order.until_s, time.monotonic() + _PEERS_LATE_S)
                    passes(self._all_have_joined, until_s - time.monotonic())
                self.lock.release()
                held = False
            writer, check = self.writer, partial(self._check_still, boundary)
            if ahead:  # a step that is not over is made in the group of now, which the last one need not be
                writer = replace(writer, session=replace(writer.session, trained_in=None))
            self._last = self._form.write(writer, state, boundary, check if ahead else lambda: None)
            return self._last
        finally:
            if held and not order.leaves:
                self.lock.release()

    def _state_of(self, boundary: Boundary) -> Any:
        kept = self._training.kept
        if kept is None or kept[0] is not boundary:
            return self._form.state(boundary)
        state = kept[1]
        if "left" in state:  # its loop may have been left since
            state = {**state, "left": self._training.reading.left_at(boundary.position)}
        return state

    def unfinished(self) -> bool:
        """Whether ``Guard.batches`` has not come to its end."""
        return self._training.in_loop

    def _agreed_on(self, newest: int) -> int:
        """The step that all ranks of this node save. Helper thread only."""
        worker = self._training.worker
        return newest if worker is None else worker.agree_on_save(newest)

    def _all_have_joined(self) -> bool:
        """Whether every rank of this node has agreed to the step that was named last."""
        worker = self._training.worker
        return worker is None or worker.joined_save() >= self.writer.session.local_world_size

    def _updated_and_whole(self, order: SaveOrder) -> bool:
        """Asked when the main thread stands in an update or after one: find what can be saved, as ordered."""
        is_inside = self.lock.phase is UpdatePhase.UPDATING
        self._chosen = None if is_inside else self._unended(order.step)
        if self._chosen is None and (order.peers_lost or self.lock.stopped) and not self._may_end_it():
            self._chosen = self._copied(order)
        return self._chosen is not None

    def _may_end_it(self) -> bool:
        """Whether the main thread is behind an update, waits for no peer, and has time to end its step."""
        computes = self.lock.phase is UpdatePhase.UPDATED and not self.lock.stopped
        in_time = computes and time.monotonic() < self._slow_s
        return in_time and not self._training.under_way.waits and is_reached(self._training)

    def _copied(self, order: SaveOrder) -> Boundary | None:
        """The boundary of which a copy is kept, if it may be saved as ordered."""
        kept = self._training.kept
        return None if kept is None or order.step not in (None, kept[0].position.step) else kept[0]

    def _whole_after_update(self, step: int | None) -> Boundary | None:
        training = self._training
        last = training.history[-1] if training.history else None
        if last is None or step not in (None, last.position.step + 1):
            return None
        now = None if self._may_end_it() else training.whole_now()
        if now is not None and is_reached(training):
            if not training.under_way.waits:
                why = "has failed" if self.lock.stopped else "took too long"
                told(
                    f"step {last.position.step + 1} is saved before the script has ended it: what it does"
                    f" behind its last update {why}, and is lost"
                )
            return now._replace(position=now.position._replace(step=now.position.step + 1))
        return settled(training)

    def _settled_by(self, until_s: float) -> Boundary | None:
        """The newest boundary once the device has come to it; an older one if it never does."""
        if not self._training.history:
            raise NotSaved("training has not begun: there is nothing to save")
        newest = self._training.history[-1]
        if newest.passage is None:
            return newest
        passes(newest.passage.done, until_s - time.monotonic())
        return settled(self._training)

    def _check_still(self, boundary: Boundary) -> None:
        """A main thread that was taken for stuck may have moved after all, past no lock."""
        if not same(boundary.objects, self._training.parts.objects.now()):
            raise NotSaved("the step went on while it was being saved")


def is_reached(training: Training) -> bool:
    """Whether the device is where the program is, or comes there at once."""
    mark = training.parts.device.mark
    return mark is None or passes(mark(), 0.05)


def settled(training: Training) -> Boundary | None:
    """The newest boundary that the device has reached and not yet left by an update."""
    for boundary in reversed(training.history):
        if (passage := boundary.passage) is not None and passage.done():
            return None if passage.left is not None and passage.left() else boundary
    return None
