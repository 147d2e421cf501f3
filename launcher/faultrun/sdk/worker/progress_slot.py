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
from faultrun.sdk.own_file import OwnFile, out_of_the_way

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


class ProgressSlot:
    """This worker's slot in the progress page: one write a step, readable by faultrun even after SIGKILL.

    The page is written, not mapped: a mapped file that is cut (``truncate``, logrotate) ends its
    process with SIGBUS. What was cut away comes back with the next step. ``where`` is ``<path>:<slot>``;
    where there is no such place (not ``is_there``) nothing is written, and zeros are read.
    """

    def __init__(self, where: str) -> None:
        self._path, self._at, self._page_bytes = "", 0, SLOT_BYTES
        self._file: OwnFile | None = None
        self.was_closed = False
        self._step, self._epoch, self._count = 0, -1, 0
        self._work = _COMPUTING
        self._saving = 0
        self.moves_to(where)

    def moves_to(self, where: str) -> None:
        """From now on in this page, where no step has been made yet."""
        before, self._file = self._file, None
        with contextlib.suppress(OSError, ValueError):
            self._path, _, slot = where.rpartition(":")
            at = int(slot) * SLOT_BYTES
            self._file, self._page_bytes = _opened(self._path, at + SLOT_BYTES)
            self._at = at
        if before is not None:
            before.close()
        self._step, self._epoch, self._count = 0, -1, 0
        self._work = _COMPUTING
        self._tell()

    @property
    def is_there(self) -> bool:
        """Whether there is a page to write to."""
        return self._file is not None

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
        """The step after which the ranks of this node stop; 0 while none was asked to."""
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
        while not (locked := self._locked()) and time.monotonic() < until_s:
            time.sleep(0.001)
        yield
        if locked:
            with contextlib.suppress(OSError):
                fcntl.lockf(self._fd(), fcntl.LOCK_UN, 8, SAVE_OFFSET)

    def _locked(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            fcntl.lockf(self._fd(), fcntl.LOCK_EX | fcntl.LOCK_NB, 8, SAVE_OFFSET)
            return True
        return False

    def _fd(self) -> int:
        """For one use now; -1 for no page. Opened again where the script has closed it."""
        if (file := self._file) is None:
            return -1
        if not file.is_ours():
            again = None
            with contextlib.suppress(OSError):
                again, _ = _opened(self._path, 0, file.fd)
                if again.inode != file.inode:  # another incarnation's
                    again.close()
                    again = None
            self.was_closed = True
            if self._file is file:
                self._file = again
        return self._file.fd if self._file is not None else -1

    def _write(self, offset: int, data: bytes) -> None:
        """A disk that is full or gone costs the word, not the training."""
        _LIBC.pwrite(self._fd(), data, len(data), offset)

    def _read(self, size_bytes: int) -> bytes:
        """From the page's beginning; zeros for what is not there."""
        data = b""
        with contextlib.suppress(OSError):
            data = os.pread(self._fd(), size_bytes, 0)
        return data.ljust(size_bytes, b"\0")


def _opened(path: str, least_bytes: int, *least_fd: int) -> tuple[OwnFile, int]:
    """The page, and its size."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    if (there_bytes := os.fstat(fd).st_size) < least_bytes:
        os.close(fd)
        raise ValueError(f"{path} has no slot that ends at byte {least_bytes}")
    return OwnFile(out_of_the_way(fd, *least_fd)), there_bytes - there_bytes % SLOT_BYTES
