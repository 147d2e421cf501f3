"""This worker's slot in the progress page: written every step, read by faultrun and by its peers."""

import contextlib
import ctypes
import fcntl
import os
import time
from collections.abc import Iterator

from faultrun.model.observed.progress import WorkPhase
from faultrun.model.wire import (
    INTERVAL_OFFSET,
    SAVE_OFFSET,
    SLOT_BYTES,
    STOP_OFFSET,
    pack_number,
    pack_word,
    unpack_number,
    widest_interval,
)

_PHASES = tuple(WorkPhase)
_NUMBER = {phase: number for number, phase in enumerate(_PHASES)}
_COMPUTING = _NUMBER[WorkPhase.COMPUTING]
_SAVING = _NUMBER[WorkPhase.SAVING]
_DONE = _NUMBER[WorkPhase.DONE]

_LIBC = ctypes.PyDLL(None)
"""Keeps Python's lock: a thread that computes would give it back only after 5 ms, at each step."""
_LIBC.pwrite.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long)
_LIBC.pwrite.restype = ctypes.c_ssize_t
_MOST_JOINED = 1 << 16
_LOCKED_S = 0.05
_OUT_OF_THE_WAY = 512
"""A script that closes what it does not know, and opens files then, must not get our number for one."""


class ProgressSlot:
    """This worker's slot in the progress page: one write a step, readable by faultrun even after SIGKILL.

    The page is written, not mapped: a mapped file that somebody cuts (``truncate``, logrotate) ends its
    process with SIGBUS. What was cut away comes back with the next step. ``where`` is ``<path>:<slot>``;
    where there is no such place (not ``is_there``) nothing is written, and zeros are read.
    """

    def __init__(self, where: str) -> None:
        self._at, self._fd, self._page_bytes = 0, -1, SLOT_BYTES
        self.is_there = False
        self._step, self._epoch, self._count = 0, -1, 0
        self._work = _COMPUTING
        self._saving = 0
        self.moves_to(where)

    def moves_to(self, where: str) -> None:
        """From now on in this page, where no step has been made yet."""
        before, self._fd = self._fd, -1
        with contextlib.suppress(OSError, ValueError):
            path, _, slot = where.rpartition(":")
            at = int(slot) * SLOT_BYTES
            self._fd, self._page_bytes = _opened(path, at + SLOT_BYTES)
            self._at = at
        if before >= 0:
            os.close(before)
        self.is_there = self._fd >= 0
        self._step, self._epoch, self._count = 0, -1, 0
        self._work = _COMPUTING
        self._tell()

    def stepped(self, step: int, epoch: int) -> None:
        """``step`` is finished; -1 when the epoch is not known."""
        self._step, self._epoch = step, epoch
        self._count += 1
        self._work = _COMPUTING
        self._tell()

    def works_at(self, phase: WorkPhase) -> WorkPhase:
        """What the main thread does from now on; returns what it did before. DONE is final, until a step."""
        if (before := self._work) != _DONE:
            self._work = _NUMBER[phase]
            self._tell()
        return _PHASES[before]

    def saves(self, more: int) -> None:
        """One save of the helper thread more (1) or less (-1), whatever the main thread does meanwhile."""
        self._saving += more
        self._tell()

    def _tell(self) -> None:
        work = _SAVING if self._saving else self._work
        self._write(self._at, pack_word(self._step, self._epoch, work, time.monotonic(), self._count))

    def propose_stop(self, step: int) -> None:
        """Ask all ranks of this node to stop after ``step``, unless one has before.

        Ranks that meet in a collective every step need no lock: the second sees the first one's a step early.
        """
        if self.agreed_stop() == 0:
            self._write(STOP_OFFSET, pack_number(step))

    def agreed_stop(self) -> int:
        """The step after which the ranks of this node stop; 0 while nobody was asked to."""
        return unpack_number(self._read(SLOT_BYTES), STOP_OFFSET)

    def agree_on_save(self, newest: int, ranks: int) -> int:
        """The step that this node's ``ranks`` save: the one after ``newest``, unless a peer has named one.

        For ranks that meet in a collective every step, and go on after a save when all have joined it: the
        newest of a peer is one step from ours at most, and a step that all have joined is an earlier save's.
        """
        with self._alone():
            named, joined = self._named_save()
            if not newest <= named <= newest + 2 or joined >= ranks:
                named, joined = newest + 1, 0
            self._write(SAVE_OFFSET, pack_number((named + 1) * _MOST_JOINED + joined + 1))
        return named

    def joined_save(self) -> int:
        """How many have agreed to the step that was named last."""
        return self._named_save()[1]

    def _named_save(self) -> tuple[int, int]:
        return divmod(unpack_number(self._read(SLOT_BYTES), SAVE_OFFSET) - _MOST_JOINED, _MOST_JOINED)

    def agree_on_interval(self, steps: int) -> int:
        """Copies are made every ``steps`` here; the interval that suits every rank of this node."""
        self._write(self._at + INTERVAL_OFFSET, pack_number(steps))
        return widest_interval(self._read(self._page_bytes))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other ranks of the node out; not where the page cannot be locked, nor for a frozen one."""
        until_s = time.monotonic() + _LOCKED_S
        while not (locked := _locked(self._fd)) and time.monotonic() < until_s:
            time.sleep(0.001)
        yield
        if locked:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 8, SAVE_OFFSET)

    def _write(self, offset: int, data: bytes) -> None:
        """A disk that is full or gone costs the word, not the training."""
        _LIBC.pwrite(self._fd, data, len(data), offset)

    def _read(self, size_bytes: int) -> bytes:
        """From the page's beginning; zeros for what is not there."""
        data = b""
        with contextlib.suppress(OSError):
            data = os.pread(self._fd, size_bytes, 0)
        return data.ljust(size_bytes, b"\0")


def _locked(fd: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 8, SAVE_OFFSET)
        return True
    return False


def _opened(path: str, least_bytes: int) -> tuple[int, int]:
    """A descriptor, and the size of the page."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    if (there_bytes := os.fstat(fd).st_size) < least_bytes:
        os.close(fd)
        raise ValueError(f"{path} has no slot that ends at byte {least_bytes}")
    with contextlib.suppress(OSError):  # few descriptors are allowed here
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
        os.close(fd)
        fd = high
    return fd, there_bytes - there_bytes % SLOT_BYTES
