"""This worker's slot in the progress page: one store a step, readable by faultrun even after SIGKILL."""

import mmap
import os
import time

from faultrun.model.events import WorkPhase
from faultrun.model.wire import SLOT_BYTES, agreed_stop, propose_stop, store_attached, store_progress

_NUMBER = {phase: number for number, phase in enumerate(WorkPhase)}


class ProgressSlot:
    """The writer of one slot. ``where`` is ``<path>:<slot>``; OSError or ValueError: no such place."""

    __slots__ = ("_at", "_count", "_epoch", "_page", "_step", "_work")

    def __init__(self, where: str) -> None:
        path, _, slot = where.rpartition(":")
        self._at = int(slot) * SLOT_BYTES
        self._page = memoryview(_mapped(path, self._at + SLOT_BYTES))
        self._count = 0
        self._step = 0
        self._epoch = -1
        self._work = _NUMBER[WorkPhase.COMPUTING]
        store_attached(self._page, self._at, time.monotonic())

    def stepped(self, step: int, epoch: int) -> None:
        """``step`` is finished; -1 when the epoch is not known."""
        self._step = step
        self._epoch = epoch
        self._count += 1
        store_progress(self._page, self._at, step, epoch, self._work, time.monotonic(), self._count)

    def works_at(self, phase: WorkPhase) -> None:
        """What the rank does from now on. Told after the first step: an empty slot says "not yet"."""
        self._work = _NUMBER[phase]
        if self._count:
            self.stepped(self._step, self._epoch)

    def propose_stop(self, step: int) -> None:
        """Ask all ranks of this node to stop after ``step``; the first proposal counts."""
        propose_stop(self._page, step)

    def agreed_stop(self) -> int:
        """The step after which the ranks of this node stop; 0 while nobody was asked to."""
        return agreed_stop(self._page)


def _mapped(path: str, size_bytes: int) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size < size_bytes:
            raise ValueError(f"{path} has no slot that ends at byte {size_bytes}")
        return mmap.mmap(fd, size_bytes)
    finally:
        os.close(fd)
