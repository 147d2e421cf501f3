"""What workers tell while they run: one line each through a named pipe, with the worker's own clock.

A pipe wakes whoever waits for it, keeps what a killed worker wrote last, and
holds a thousand notes before a worker would have to wait. Times are
CLOCK_MONOTONIC seconds, comparable between processes of one machine.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """``life`` counts the lives of the worker group from 0; ``value`` depends on ``what``."""

    at_s: float
    rank: int
    life: int
    pid: int
    what: str
    value: str = ""

    @property
    def number(self) -> float:
        """``value`` as a number; ValueError when it is none."""
        return float(self.value)


def parse(line: str) -> Note:
    """The note in one line; ValueError when it is none. Written by ``benchmarks.jobs.tell``."""
    at_s, rank, life, pid, what, value = line.split(" ", 5)
    return Note(at_s=float(at_s), rank=int(rank), life=int(life), pid=int(pid), what=what, value=value)


def select(
    notes: Iterable[Note], what: str, *, life: int | None = None, rank: int | None = None
) -> list[Note]:
    """Those notes that say ``what``, in that life, from that rank."""
    of = (note for note in notes if note.what == what)
    return [note for note in of if life in (None, note.life) and rank in (None, note.rank)]


class NotePipe:
    """The reading end. It is kept open for writing too, so that it never ends between two lives."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""

    def read(self) -> list[Note]:
        """All notes that are there."""
        with suppress(BlockingIOError):
            while True:
                self._rest += os.read(self.fd, _BLOCK)
        *lines, self._rest = self._rest.split(b"\n")
        return [parse(line.decode()) for line in lines]

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self.fd)
