"""The helper thread's view of a MindSpore training: which state to save now, and the writing of it.

Best first: the live parameters between two steps; the live parameters while the main thread sits in a
collective, if the optimizer marks the beginning of its updates and shows that none has begun; the last copy.
The file is written by MindSpore itself, checksum included.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mindspore
import numpy as np

from faultrun.sdk.mindspore.parameters import HostMemory, HostState
from faultrun.sdk.worker.save_files import Names, Position, Saved, SaveWriter
from faultrun.sdk.worker.state_provider import SaveOrder, StateProvider
from faultrun.sdk.worker.update_lock import HoldLimits, NotSaved, UpdateLock

_SETTLE_S = 0.25
_TRIES = 3


class MindSporeProvider(StateProvider):
    """Told by the callback, in the main thread, what there is; saves it in the helper thread.

    ``begun`` counts the updates that have begun, once it is seen that they are
    counted; ``mark`` is its number at the newest boundary, changed under ``memory.lock``.
    """

    def __init__(self, writer: SaveWriter, write: Callable[[HostState], Saved]) -> None:
        super().__init__(writer, UpdateLock())
        self._write = write
        self.memory: HostMemory | None = None
        self.position: Position | None = None
        self.begun: Callable[[], int] | None = None
        self.mark: tuple[Position, int] | None = None
        self.live = False
        self.step_s = 0.0
        self.running = False

    def newest(self) -> int | None:
        """The step that was last completed."""
        return self.position.step if self.position is not None else None

    def save(self, order: SaveOrder) -> Saved:
        """Save the live parameters or, where they cannot be had, the last copy. NotSaved, OSError."""
        try:
            self.lock.hold(self._limits(order), lambda: False, lambda: self._is_due(order))
        except NotSaved:
            if order.step is not None and order.step != self._copied_step():
                raise
            return self._saved(self._live_before_updates() or self._copy())
        try:
            state = self._state_between_steps()
            if order.leaves:
                return self._saved(state)
            arrays = {name: np.copy(one) for name, one in state.arrays.items()}
            state = HostState(state.position, arrays)  # the main thread cannot change it any more
        finally:
            if not order.leaves:
                self.lock.release()
        return self._saved(state)

    def unfinished(self) -> bool:
        """Whether ``Model.train`` has not come to its end."""
        return self.running

    def _limits(self, order: SaveOrder) -> HoldLimits:
        """How long to wait for the end of the running step. A main thread whose peer is dead waits for ever.

        A fresh copy makes waiting pointless; an old one, or none, makes it worth a few steps' time.
        """
        if order.step is not None:
            return HoldLimits(until_s=order.until_s, settle_s=0.0)
        now_s = time.monotonic()
        fresh = self.begun is not None or (self.position is not None and self.newest() == self._copied_step())
        wait_s = 3 * self.step_s
        wait_s = min(max(wait_s, 0.05), _SETTLE_S) if fresh else max(wait_s, 2 * _SETTLE_S)
        wait_s = min(wait_s, (order.until_s - now_s) / 3)
        return HoldLimits(until_s=now_s + wait_s, settle_s=min(_SETTLE_S, wait_s))

    def _copied_step(self) -> int | None:
        return self.memory.newest.position.step if self.memory and self.memory.newest else None

    def _state_between_steps(self) -> HostState:
        """The main thread stands before the next step: the live parameters, or the copy it has just made."""
        if self.memory is None or self.position is None:
            raise NotSaved("training has not begun: there is nothing to save")
        if self.live and self.memory.views is not None:
            return HostState(self.position, self.memory.views)
        return self._copy()

    def _live_before_updates(self) -> HostState | None:
        """The live parameters, if it is certain that no update touched them while they were read."""
        memory, begun = self.memory, self.begun
        if memory is None or memory.views is None or begun is None or not self.live:
            return None
        for _ in range(_TRIES):
            with memory.lock:
                mark = self.mark
                early = {name: np.copy(one) for name, one in memory.early.items()}
            if mark is None or begun() != mark[1]:
                return None
            arrays = {name: np.copy(view) for name, view in memory.views.items() if name not in early}
            if begun() == mark[1] and self.mark is mark:
                return HostState(mark[0], {**arrays, **early})
        return None

    def _copy(self) -> HostState:
        if self.memory is None or self.memory.newest is None:
            raise NotSaved("no step is finished: there is nothing to save")
        with self.memory.lock:
            return self.memory.newest

    def _saved(self, state: HostState) -> Saved:
        self._last = self._there_already(state.position.step) or self._write(state)
        return self._last


def breakpoint_names(directory: Path, prefix: str, position: Position) -> Names:
    """The names to try; taken ones get MindSpore's own suffix, ``prefix_1-...``."""

    def name(number: int) -> Path:
        stem = prefix if number == 0 else f"{prefix}_{number}"
        return directory / f"{stem}-{position.epoch}_{position.step_in_epoch}_breakpoint.ckpt"

    return name


def appended(state: HostState, base: Mapping[str, Any], step_num: int) -> dict[str, Any]:
    """What follows the parameters in a breakpoint file, in this order.

    ``epoch_num``, from 1; ``step_num``, the global step; ``global_step`` where no optimizer has it;
    ``loss_scale`` where there is one. With ``append_info`` in the config, which is ``base``, the first two
    are counted as ModelCheckpoint counts them: those values plus the epochs and steps (``step_num``) of this
    run.
    """
    position = state.position
    content = {**base}
    content["epoch_num"] = int(base.get("epoch_num", 0)) + (position.epoch or 0)
    content["step_num"] = int(base["step_num"]) + step_num if "step_num" in base else position.step
    if "global_step" not in state.arrays:
        content["global_step"] = position.step
    if (scale := loss_scale(state)) is not None:
        content["loss_scale"] = scale
    return content


def loss_scale(state: HostState) -> float | None:
    """The dynamic loss scale among the parameters (``scale_sense`` of TrainOneStepWithLossScaleCell)."""
    for name, array in state.arrays.items():
        if name == "scale_sense" or name.endswith(".scale_sense"):
            return float(array.reshape(-1)[0])
    return None


def write_checkpoint(
    path: str, state: HostState, dtypes: Mapping[str, Any], content: Mapping[str, Any]
) -> None:
    """Have MindSpore write the file ``path``, which ends in ``.ckpt``. Any thread."""
    # what is appended under a parameter's name replaces it: readers expect it among the last records
    tensors = [
        {"name": name, "data": mindspore.Tensor(array, dtype=dtypes[name])}
        for name, array in state.arrays.items()
        if name not in content
    ]
    mindspore.save_checkpoint(tensors, path, append_dict=dict(content), crc_check=True)
