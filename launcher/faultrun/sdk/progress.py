"""This worker's slot in the progress page: one store a step, readable by faultrun even after SIGKILL."""

import mmap
import os
import time

from faultrun.model.progress import WorkPhase
from faultrun.model.wire import (
    SLOT_BYTES,
    agreed_stop,
    propose_stop,
    store_interval,
    store_progress,
    widest_interval,
)

_PHASES = tuple(WorkPhase)
_NUMBER = {phase: number for number, phase in enumerate(_PHASES)}
_COMPUTING = _NUMBER[WorkPhase.COMPUTING]
_SAVING = _NUMBER[WorkPhase.SAVING]
_DONE = _NUMBER[WorkPhase.DONE]


class ProgressSlot:
    """The writer of one slot. ``where`` is ``<path>:<slot>``; OSError or ValueError: no such place."""

    __slots__ = ("_at", "_count", "_epoch", "_page", "_saving", "_step", "_work")

    def __init__(self, where: str) -> None:
        path, _, slot = where.rpartition(":")
        self._at = int(slot) * SLOT_BYTES
        self._page = memoryview(_mapped(path, self._at + SLOT_BYTES))
        self._count = 0
        self._step = 0
        self._epoch = -1
        self._work = _COMPUTING
        self._saving = 0
        self._tell()

    def stepped(self, step: int, epoch: int) -> None:
        """``step`` is finished; -1 when the epoch is not known."""
        self._step = step
        self._epoch = epoch
        self._count += 1
        self._work = _COMPUTING
        self._tell()

    def works_at(self, phase: WorkPhase) -> WorkPhase:
        """What the main thread does from now on; returns what it did before. DONE is final, until a step."""
        before = self._work
        if before != _DONE:
            self._work = _NUMBER[phase]
            self._tell()
        return _PHASES[before]

    def begin_save(self) -> None:
        """The helper thread saves, whatever the main thread does: it may have to wait. May be nested."""
        self._saving += 1
        self._tell()

    def end_save(self) -> None:
        """That save is over."""
        self._saving -= 1
        self._tell()

    def _tell(self) -> None:
        work = _SAVING if self._saving else self._work
        store_progress(self._page, self._at, self._step, self._epoch, work, time.monotonic(), self._count)

    def propose_stop(self, step: int) -> None:
        """Ask all ranks of this node to stop after ``step``; the first proposal counts."""
        propose_stop(self._page, step)

    def agreed_stop(self) -> int:
        """The step after which the ranks of this node stop; 0 while nobody was asked to."""
        return agreed_stop(self._page)

    def agree_on_interval(self, steps: int) -> int:
        """Copies are made every ``steps`` here; the interval that suits every rank of this node."""
        store_interval(self._page, self._at, steps)
        return widest_interval(self._page)


def _mapped(path: str, size_bytes: int) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        there_bytes = os.fstat(fd).st_size
        if there_bytes < size_bytes:
            raise ValueError(f"{path} has no slot that ends at byte {size_bytes}")
        return mmap.mmap(fd, there_bytes - there_bytes % SLOT_BYTES)
    finally:
        os.close(fd)
