"""Records the random numbers of this rank at every step, in a mapped file that outlives SIGKILL.

In data parallel training one rank's checkpoint serves all, but each rank draws its own dropout. A rank that
was killed could not save its own; it finds it here. The last steps are kept, for the survivors may have saved
the step before; and, from the end of its forward pass and again from its update, the step under way, which
survivors may have finished when this rank was killed in it. What it had drawn since then is guessed.

What a rank has once resumed with is kept apart: the steps after it write over
the records, and a rank that resumes there again must draw the same numbers.
"""

import contextlib
import ctypes
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from faultrun.sdk.torch.state.late_draws import drawn_as_before, names_changed, numbers_of
from faultrun.sdk.torch.state.rng import AREA_BYTES, NumpyRng, PythonRng, Rng, current_rng, restore_rng
from faultrun.sdk.torch.state.trees import same
from faultrun.sdk.worker.save_files import Position, SaveWriter
from faultrun.sdk.worker.training_stages import told

_SLOT_BYTES = 64 * 1024
_EARLIER_SLOT_BYTES = 16 * 1024
_KEPT = 4
"""Steps, and as many epochs, that a rank has resumed at."""
_COPIED = 2
"""Steps of which copies are kept: ranks may differ by one copy."""
_HEADER = struct.Struct("<QqqqIIII")
"""Run, step, epoch, batches; lengths of torch's, CUDA's, the loader's and the objects' states (0: none)."""
_RUN = struct.Struct("<Q")
_PYTHON_AT = 64
_NUMPY_AT = _PYTHON_AT + AREA_BYTES
_TENSORS_AT = _NUMPY_AT + AREA_BYTES
_EARLIER = struct.Struct("<QiB3xI624I4xfB3xdB7x")
"""torch's generator as earlier versions copied it out of memory: seed, words left, seeded, next word, words,
and the second of a normal pair, if one waits, as float and as double."""
_STATE = struct.Struct("<QiiQ624QdddiifB3x")  # as get_state packs the same
_memmove, _torch_state = ctypes.memmove, torch.default_generator.get_state


class RngRecorder:
    """Slots of random numbers: a ring of steps, two of steps under way, two of epochs, one for each asker,
    and what was resumed with.

    A slot is written over while it still has its old name on it: no reader resumes at a step so long ago.
    Without a file (``path`` is None) the same in memory, for saves of the living. ``loader`` is everywhere
    the state of the one that is open. OSError where the file system cannot map files.
    """

    file_name = "random-state"
    """The name of a rank's file, in its own folder."""

    def __init__(
        self,
        path: Path | None,
        run_id: str,
        steps: int,
        device_rng: Callable[[], Any] | None = None,
        noted: Callable[[], bytes] | None = None,
    ) -> None:
        self._run = zlib.crc32(run_id.encode()) + 1
        self._steps = steps
        self.main_slot = steps + 4
        self.helper_slot = steps + 5
        self._turn = self._turn_epoch = 0
        self._kept_steps = range(steps + 6, steps + 6 + _KEPT)
        self._kept_epochs = range(self._kept_steps.stop, self._kept_steps.stop + _KEPT)
        self.redo_slot = self._kept_epochs.stop
        """For the beginning of a step that may have to be made again."""
        self._after_forward, self._after_update = [steps, steps + 1], [self.redo_slot + 1, self.redo_slot + 2]
        """Slots of two steps each, that of the step under way first."""
        self._copied = range(self.redo_slot + 3, self.redo_slot + 3 + _COPIED)
        self._turn_copied = 0
        self._page = _mapped(path, self._copied.stop * _SLOT_BYTES)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        self._device_rng, self._noted = device_rng, noted
        self._python, self._numpy = PythonRng(), NumpyRng()

    def step(self, position: Position, loader: Any) -> int:
        """Record the end of a step; the slot, which is overwritten after as many steps as there are slots."""
        self._turn = (self._turn + 1) % self._steps
        return self.record(self._turn, position, loader)

    def under_way(self, position: Position, loader: Any, *, updated: bool = False) -> None:
        """Record the random numbers as they probably will be at the end of this step."""
        slots = self._after_update if updated else self._after_forward
        if self._key(slots[0]) != position:  # else another forward pass of the same step: the last one counts
            slots.reverse()
        self.record(slots[0], position, loader)

    def was_under_way(self, slot: int, step: int) -> bool:
        """Whether these numbers were noted while ``step`` was under way."""
        noted = self._after_forward[0]
        key = self._key(noted)
        return key is not None and key.step == step and self.are_same(noted, slot)

    def drew_behind_update(self, step: int, loader: Any) -> bool | None:
        """Whether numbers were drawn since the last update of ``step``; None where that was not noted."""
        key = self._key(slot := self._after_update[0])
        return None if key is None or key.step != step else not self.is_still(slot, loader)

    def are_same(self, slot: int, other: int) -> bool:
        """Whether nothing was drawn between these two."""
        return self.content(slot, _PYTHON_AT) == self.content(other, _PYTHON_AT)

    def is_still(self, slot: int, loader: Any) -> bool:
        """Whether nothing was drawn since these numbers were noted."""
        at = slot * _SLOT_BYTES
        areas = ((_PYTHON_AT, self._python.packed()), (_NUMPY_AT, self._numpy.packed()))
        if any(self._page[at + start : at + start + len(now)] != now for start, now in areas):
            return False
        device = None if self._device_rng is None else self._device_rng()
        tensors = (_torch_state(), device, loader)
        lengths = _HEADER.unpack_from(self._page, at)[4:7]
        at += _TENSORS_AT
        for tensor, length in zip(tensors, lengths, strict=True):
            now = b"" if tensor is None else tensor.numpy().tobytes()
            if self._page[at : at + length] != now:
                return False
            at += length
        return True

    def epoch(self, position: Position, loader: Any) -> int:
        """Record the beginning of an epoch; the slot."""
        self._turn_epoch ^= 1
        return self.record(self._steps + 2 + self._turn_epoch, position, loader)

    def record(self, slot: int, position: Position, loader: Any, noted: bytes | None = None) -> int:
        """Record in this slot, which is returned; what is ``noted`` beside, by default as it is now."""
        start = slot * _SLOT_BYTES
        _RUN.pack_into(self._page, start, 0)  # of no run until it is whole
        self._put(start + _PYTHON_AT, self._python.packed())
        self._put(start + _NUMPY_AT, self._numpy.packed())
        state, device, kept, at = _torch_state(), 0, 0, start + _TENSORS_AT
        _memmove(self._address + at, state.data_ptr(), size := state.nbytes)
        at += size
        if loader is not None or self._device_rng is not None:
            device, kept = self._put_others(self._address + at, loader)
            at += device + kept
        if noted is None:
            noted = b"" if self._noted is None else self._noted()
        if at + len(noted) > start + _SLOT_BYTES:
            noted = b""
        self._put(at, noted)
        step, epoch, batches = position
        place = (-1 if epoch is None else epoch, -1 if batches is None else batches)
        _HEADER.pack_into(self._page, start, self._run, step, *place, size, device, kept, len(noted))
        return slot

    def read(self, slot: int) -> Rng:
        """What was recorded in ``slot``."""
        start = slot * _SLOT_BYTES
        tensors, at = [], start + _TENSORS_AT
        *lengths, noted = _HEADER.unpack_from(self._page, start)[4:]
        for length in lengths:
            tensors.append(_tensor(self._page[at : at + length]))
            at += length
        python = PythonRng.unpacked(self._page[start + _PYTHON_AT : start + _NUMPY_AT])
        numpy = NumpyRng.unpacked(self._page[start + _NUMPY_AT : start + _TENSORS_AT])
        own = self._page[at : at + noted]
        return Rng(cpu=tensors[0], python=python, numpy=numpy, cuda=tensors[1], loader=tensors[2], noted=own)

    def keep(self, position: Position, loader: Any, noted: bytes | None = None) -> None:
        """Record what a checkpoint is about to be taken at, instead of the oldest that was kept."""
        self.record(self._kept_slot(self._kept_steps, lambda key: key == position), position, loader, noted)

    def keep_copied(self, slot: int) -> None:
        """The state of the step that is recorded in ``slot`` was copied, and may be saved much later."""
        self._turn_copied = (self._turn_copied + 1) % _COPIED
        self.take(self._copied[self._turn_copied], self.content(slot))

    def at_step(self, position: Position) -> Rng | None:
        """What an earlier process of this rank and run recorded at this very position; kept from now on.

        While it was under way: with as many drawn since as in the step before.
        """
        recorded = (*range(self._steps), *self._copied)
        ended = self._found(recorded, self._kept_steps, lambda key: key == position)
        return ended or self._guessed(position)

    def near_step(self, step: int) -> Rng | None:
        """What it recorded at any moment of ``step``, if not at the very place; kept from now on."""
        slots = (*range(self._steps), *self._after_update, *self._after_forward, *self._kept_steps)
        slot = self._slot(slots, lambda key: key.step == step)
        near = None if slot is None else self._key(slot)
        return None if near is None else self.at_step(near)

    def _guessed(self, position: Position) -> Rng | None:
        for slots in (self._after_update, self._after_forward):
            if (now := self._slot(slots, lambda key: key == position)) is None:
                continue
            then = self._slot(slots, lambda key: key.step == position.step - 1)
            end = None if then is None else self._slot(range(self._steps), self._key(then).__eq__)
            noted, where = self.read(now), f"step {position.step} was under way here"
            if then is None or end is None or self.are_same(then, end):
                told(f"{where}: it is taken that it drew nothing behind its forward pass, as the last step")
                return noted
            before, after = self.read(then), self.read(end)
            if changed := names_changed(before.noted, after.noted):
                told(
                    f"{where}: what it did to objects ({', '.join(changed)}) behind its forward pass is lost"
                )
            if not same(before.loader, after.loader):
                told(f"{where}: what it did to its sampler or loader behind its forward pass is lost")
            if same(numbers_of(before), numbers_of(after)):
                return noted
            found = drawn_as_before(noted, before, after)
            how = "as many as a step before" if found else "it is unknown how many more, and none are taken"
            told(f"step {position.step} drew random numbers that were not noted: {how}")
            if found is not None:
                before = current_rng()
                restore_rng(found)
                self.keep(position, found.loader, found.noted)
                restore_rng(before)
            return found or noted
        return None

    def at_epoch(self, epoch: int | None) -> Rng | None:
        """What it recorded at the beginning of ``epoch``; kept from now on."""
        slots = range(self._steps + 2, self._steps + 4)
        return self._found(slots, self._kept_epochs, lambda key: key.epoch == epoch)

    def take(self, slot: int, data: bytes) -> None:
        """Put another recorder's slot here."""
        self._put(slot * _SLOT_BYTES, data)

    def content(self, slot: int, begin: int = 0) -> bytes:
        """What ``take`` takes; from this byte on."""
        start = slot * _SLOT_BYTES
        used = _TENSORS_AT + sum(_HEADER.unpack_from(self._page, start)[4:])
        return self._page[start + begin : start + used]

    def is_of(self, slot: int, position: Position) -> bool:
        """Whether it was recorded in this run, at this very position."""
        return self._key(slot) == position

    def _found(self, recorded: Sequence[int], kept: range, fits: Callable[[Position], bool]) -> Rng | None:
        if (slot := self._slot((*recorded, *kept), fits)) is None:
            return None
        if slot in recorded:
            self.take(self._kept_slot(kept, fits), self.content(slot))
        return self.read(slot)

    def _slot(self, slots: Iterable[int], fits: Callable[[Position], bool]) -> int | None:
        """The first of these whose position fits."""
        return next((one for one in slots if (key := self._key(one)) is not None and fits(key)), None)

    def _kept_slot(self, kept: range, fits: Callable[[Position], bool]) -> int:
        """Where such a position is kept already, else where the oldest is."""
        same = self._slot(kept, fits)
        oldest = min(kept, key=lambda slot: -1 if (key := self._key(slot)) is None else key.step)
        return oldest if same is None else same

    def _put(self, at: int, data: bytes | memoryview) -> None:
        self._page[at : at + len(data)] = data

    def _put_others(self, at: int, loader: Any) -> tuple[int, int]:
        """The states of the device's and the loader's generator, as far as there are any; their lengths."""
        lengths = [0, 0]
        device = None if self._device_rng is None else self._device_rng()
        for number, tensor in enumerate((device, loader)):
            if tensor is not None:
                lengths[number] = tensor.numel()
                _memmove(at, tensor.data_ptr(), tensor.numel())
                at += tensor.numel()
        return lengths[0], lengths[1]

    def _key(self, slot: int) -> Position | None:
        run, step, epoch, batches, *_ = _HEADER.unpack_from(self._page, slot * _SLOT_BYTES)
        if run != self._run:
            return None
        return Position(step, None if epoch < 0 else epoch, None if batches < 0 else batches)


def recorder_of(
    writer: SaveWriter, steps: int, device_rng: Callable[[], Any] | None, noted: Callable[[], bytes] | None
) -> RngRecorder:
    """In a file where there is a run to come back to, and something ``noted``, if it can be mapped."""
    if noted is not None:
        with contextlib.suppress(OSError, ValueError):
            path = writer.own_folder / RngRecorder.file_name
            return RngRecorder(path, writer.session.run_id, steps, device_rng, noted)
    return RngRecorder(None, writer.session.run_id, steps, device_rng)


def noted_in(path: Path, run_id: str, steps: int, position: Position) -> Rng | None:
    """What the rank that records in the file ``path`` noted at the end of this very step; None: it did not.

    That rank is dead, or waits for us and is at most a step further. ``steps`` as it was made with.
    """
    recorder = RngRecorder(None, run_id, steps)
    try:
        with path.open("rb", buffering=0) as file:
            ended = (*range(steps), *recorder._copied)
            for slot in (*ended, *recorder._after_update, *recorder._after_forward):
                file.seek(slot * _SLOT_BYTES)
                recorder.take(0, file.read(_SLOT_BYTES))
                if recorder.is_of(0, position):
                    return recorder.read(0)
    except (OSError, ValueError, struct.error):
        pass
    return None


def _mapped(path: Path | None, size_bytes: int) -> mmap.mmap:
    if path is None:
        return mmap.mmap(-1, size_bytes)
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        earlier = size_bytes // _SLOT_BYTES - 2 - _COPIED  # of which earlier versions had none
        if os.fstat(fd).st_size == earlier * _EARLIER_SLOT_BYTES:
            _widen(fd, earlier)
        os.ftruncate(fd, size_bytes)
        return mmap.mmap(fd, size_bytes)
    finally:
        os.close(fd)


def _widen(fd: int, slots: int) -> None:
    """What an earlier version recorded, in smaller slots."""
    recorded = os.pread(fd, slots * _EARLIER_SLOT_BYTES, 0)
    for slot in reversed(range(slots)):
        start = slot * _EARLIER_SLOT_BYTES
        os.pwrite(
            fd, recorded[start : start + _EARLIER_SLOT_BYTES].ljust(_SLOT_BYTES, b"\0"), slot * _SLOT_BYTES
        )


def _tensor(data: bytes) -> Any:
    if not data:
        return None
    if len(data) == _EARLIER.size:
        seed, left, seeded, following, *words, single, singly, double, doubly = _EARLIER.unpack(data)
        waiting = (0.0, double if doubly else 0.0, 0.0, doubly, 0, single if singly else 0.0, singly)
        data = _STATE.pack(seed, left, seeded, following, *words, *waiting)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
