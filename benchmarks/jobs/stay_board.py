"""A page of memory between a training and whoever disturbs it: how far ranks are, and who shall die where.

The standard library only. One writer for each number; a number is eight bytes at a multiple of eight, so it
is never seen half written.
"""

import mmap
import os
import signal
import struct
import time
from enum import IntEnum
from pathlib import Path


class Place(IntEnum):
    """Where in its work a rank is."""

    STARTING = 0
    LOADER = 1
    BEGIN = 2
    FORWARD = 3
    BACKWARD = 4
    COLLECTIVE = 5
    UPDATE = 6
    UPDATED = 7
    END = 8
    AFTER = 9
    SAVING = 10
    ENDS = 11
    HEARD = 20
    RAISED = 21
    DROPPED = 22
    JOIN = 23
    FORMED = 24
    RESTORED = 25


OF_A_STEP = tuple(place for place in Place if Place.LOADER <= place <= Place.SAVING)
OF_A_REPAIR = tuple(place for place in Place if place >= Place.HEARD)

_NUMBER, _MOMENT = struct.Struct("q"), struct.Struct("d")
_SLOT_BYTES = 128
_PID, _STEP, _PLACE, _AT = range(0, 32, 8)
_FOR, _WHERE, _FROM, _STRUCK = range(32, 64, 8)
_ARMS = (0, 32)
"""A first death of a rank, and a second: each has its own four numbers."""


class Board:
    """The page in ``path``, made for ``ranks`` by the first who opens it."""

    def __init__(self, path: Path, ranks: int) -> None:
        size_bytes = _SLOT_BYTES * (ranks + 1)
        with path.open("a+b") as file:
            if file.seek(0, os.SEEK_END) < size_bytes:
                file.truncate(size_bytes)
            self._memory = mmap.mmap(file.fileno(), size_bytes)

    @property
    def limit(self) -> int:
        """No step behind this one begins."""
        return self._number(-1, 0)

    @limit.setter
    def limit(self, step: int) -> None:
        self._put(-1, 0, step)

    def seen(self, rank: int) -> tuple[int, int, Place]:
        """Process, step and place of a rank as it said last."""
        return self._number(rank, _PID), self._number(rank, _STEP), Place(self._number(rank, _PLACE))

    def say(self, rank: int, step: int, place: Place) -> None:
        """In this process: where it is."""
        self._put(rank, _PID, os.getpid())
        self._put(rank, _STEP, step)
        self._put(rank, _PLACE, place)
        _MOMENT.pack_into(self._memory, self._at(rank, _AT), time.monotonic())

    def arm(self, rank: int, pid: int, place: Place, *, step: int = 0, second: bool = False) -> None:
        """Have ``pid`` end itself there, from ``step`` on; of a negative one, whoever else has the rank."""
        arm = _ARMS[second]
        _MOMENT.pack_into(self._memory, self._at(rank, _STRUCK + arm), 0.0)
        self._put(rank, _FOR + arm, pid)
        self._put(rank, _FROM + arm, step)
        self._put(rank, _WHERE + arm, place)

    def disarm(self, rank: int) -> None:
        """Nobody is to end itself any more, and nobody has."""
        for arm in _ARMS:
            self._put(rank, _WHERE + arm, 0)
            _MOMENT.pack_into(self._memory, self._at(rank, _STRUCK + arm), 0.0)

    def struck_s(self, rank: int, *, second: bool = False) -> float:
        """When somebody has ended itself (monotonic clock), 0 before."""
        return float(_MOMENT.unpack_from(self._memory, self._at(rank, _STRUCK + _ARMS[second]))[0])

    def strike(self, rank: int, step: int, place: Place) -> None:
        """In this process: SIGKILL, if it is its turn. Once."""
        for arm in _ARMS:
            if self._number(rank, _WHERE + arm) != place or step < self._number(rank, _FROM + arm):
                continue
            whom, pid = self._number(rank, _FOR + arm), os.getpid()
            if whom == pid or (whom < 0 and -whom != pid):
                self._put(rank, _WHERE + arm, 0)
                _MOMENT.pack_into(self._memory, self._at(rank, _STRUCK + arm), time.monotonic())
                os.kill(pid, signal.SIGKILL)

    def _at(self, rank: int, field: int) -> int:
        return _SLOT_BYTES * (rank + 1) + field

    def _number(self, rank: int, field: int) -> int:
        return int(_NUMBER.unpack_from(self._memory, self._at(rank, field))[0])

    def _put(self, rank: int, field: int, number: int) -> None:
        _NUMBER.pack_into(self._memory, self._at(rank, field), number)
