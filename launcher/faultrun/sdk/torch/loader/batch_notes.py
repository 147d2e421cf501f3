"""Which batches a rank has read, by digest, in a mapped file that outlives SIGKILL.

A batch that is read again, because training has gone back to a place before it, must be the one that was read
there at first. Whatever a loader hides from ``loader_state``, a batch that differs shows.
"""

import mmap
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.state.rng import memory_at
from faultrun.sdk.worker.save_files import SaveWriter
from faultrun.sdk.worker.training_stages import told

_NOTE = struct.Struct("<IIqq")
"""Run and world, digest, epoch, number in it."""
_INPUTS = -1
"""Instead of an epoch, where the script draws its batches itself: then the number is the step."""
_KEPT = 4096
_MOST_PARTS, _MOST_BYTES = 256, 4096
"""Looked at of one list, and of one tensor without sampling."""
_AT_ENDS, _BETWEEN = 512, 128


class BatchNotes:
    """The last batches of one rank, in one run among so many ranks; without a file, of this process."""

    file_name = "batches-read"

    def __init__(self, writer: SaveWriter) -> None:
        session = writer.session
        self._of = zlib.crc32(f"{session.run_id} {session.world_size}".encode())
        self._path = writer.own_folder / self.file_name
        self._told = False

    @cached_property
    def _page(self) -> mmap.mmap:
        with suppress(OSError, ValueError):
            return _mapped(self._path, _KEPT * _NOTE.size)
        return mmap.mmap(-1, _KEPT * _NOTE.size)

    def forget(self) -> None:
        """Training starts anew, or with other random numbers than those of before."""
        self._page[:] = bytes(len(self._page))

    def note(self, epoch: int, number: int, batch: Any, *, apart: bool) -> None:
        """The batch that was read there. FaultrunError: another was, at first.

        ``apart``: processes may have drawn numbers for it, which are not kept, and so that is told only.
        """
        if self._differs(epoch, number, batch):
            what = f"batch {number} of epoch {epoch} is another than the one that was read there before"
            if not apart:
                raise FaultrunError(
                    what,
                    because="the loader draws from, or counts in, something that guard.batches cannot find",
                    hint="make orders and samples of epoch and index, or from generators that are attributes"
                    " of the sampler or dataset; for data that never come twice: guard.steps; to go on with"
                    f" other data than before: remove {self._path}",
                )
            if not self._told:
                told(f"{what}: the loader's processes drew other numbers, or its order is another")
            self._told = True

    def note_inputs(self, step: int, inputs: Any) -> None:
        """What the model is given first in ``step``, which the script may have had since the step before."""
        if self._differs(_INPUTS, step, inputs) and not self._told:
            self._told = True
            told(
                f"step {step} comes again with other inputs of the model than at first: draw them in the step"
                " itself, from random numbers that are kept; training goes on with these"
            )

    def _differs(self, epoch: int, number: int, batch: Any) -> bool:
        """Whether this place is noted with another batch; note it with this one, unless it differs."""
        at = number % _KEPT * _NOTE.size
        of, digest, *place = _NOTE.unpack_from(self._page, at)
        now = batch_digest(batch)
        differs = (of, *place) == (self._of, epoch, number) and digest != now
        if not differs:
            _NOTE.pack_into(self._page, at, self._of, now, epoch, number)
        return differs


def batch_digest(one: Any, so_far: int = 0) -> int:
    """Digest numbers and words all through ``one``, what is large by samples, and nothing of a device."""
    if isinstance(one, torch.Tensor):
        if one.device.type != "cpu" or one.layout is not torch.strided:
            return zlib.crc32(b"%d" % one.dim(), so_far)
        one = one.detach().contiguous() if not one.is_contiguous() else one
        return _sampled(memory_at(one.data_ptr(), size), so_far) if (size := one.nbytes) else so_far
    if isinstance(one, Mapping):
        one = [*one.items()]
    if isinstance(one, list | tuple):
        for part in one[:: max(1, len(one) // _MOST_PARTS)]:
            so_far = batch_digest(part, so_far)
        return zlib.crc32(b"%d" % len(one), so_far)
    if hasattr(one, "tobytes") and not getattr(getattr(one, "dtype", None), "hasobject", True):
        return _sampled(memoryview(one.tobytes()), so_far)
    words = repr(one) if isinstance(one, bool | int | float | str | bytes | None) else type(one).__name__
    return zlib.crc32(words.encode(), so_far)


def _sampled(content: memoryview, so_far: int) -> int:
    """Take of what is large its ends, and bytes of all places of a number between, for the stride is odd."""
    size = content.nbytes
    if size > _MOST_BYTES:
        ends = content[:_AT_ENDS], content[-_AT_ENDS:], content[:: size // _BETWEEN | 1]
        content = memoryview(b"".join(one.tobytes() for one in ends))
    return zlib.crc32(content, size ^ so_far)


def _mapped(path: Path, size_bytes: int) -> mmap.mmap:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.truncate(size_bytes)
        return mmap.mmap(file.fileno(), size_bytes)
