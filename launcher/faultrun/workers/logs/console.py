"""Where copied lines of logs go: one of our streams as people see it, or a file of those that are picked."""

import contextlib
import os
import select
from collections.abc import Sequence
from dataclasses import dataclass

from faultrun.files import DISK_FULL
from faultrun.model.printable import console_output, last_written
from faultrun.terminal import CLEAR, BottomRow, is_terminal, never_waits

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_CHUNK = 1 << 16
MOST_CHUNKS = 16
"""How many of a file are copied before others have their turn."""
_GROUP_BYTES = 4096
_NO_COLOUR = b"\x1b[0m"


@dataclass(frozen=True, slots=True)
class Backlog:
    """How far a console may be behind, in bytes; beyond, only the newest are shown, then none for a while."""

    most: int
    newest: int
    rest_s: float
    chunks: int


_OF_A_TERMINAL = Backlog(most=1 << 20, newest=1 << 14, rest_s=1.0, chunks=1)
"""A megabyte that has scrolled by is not read."""
_OF_A_PIPE = Backlog(most=1 << 62, newest=1 << 20, rest_s=0.0, chunks=MOST_CHUNKS)
"""A file or a collector of logs gets everything that was asked for, however late."""


class Console:
    """One of our two streams as people see it."""

    def __init__(self, fd: int, row: BottomRow | None) -> None:
        self._row = row if row is not None and is_terminal(fd) else None
        self._most_at_once = _GROUP_BYTES if is_terminal(fd) else _CHUNK
        self._room = select.poll()
        self.backlog = _OF_A_TERMINAL if is_terminal(fd) else _OF_A_PIPE
        self._fd = never_waits(fd)
        self._room.register(self._fd, select.POLLOUT)
        self._owed = b""

    @property
    def shows_unfinished(self) -> bool:
        """Whether the last row shows them."""
        return self._row is not None and bool(self._row.again())

    def has_room(self) -> bool:
        """Whether nothing is owed any more: what a full disk did not take is offered again. OSError: gone."""
        self._offer(b"")
        return not self._owed

    def take(self, prefix: bytes, lines: Sequence[bytes]) -> None:
        """Write whole lines as far as a console may obey them. OSError: it is gone."""
        said = console_output(b"\n".join(last_written(line) for line in lines))
        if b"\x1b[" in said:
            said = said.replace(b"\n", _NO_COLOUR + b"\n") + _NO_COLOUR
        group: list[bytes] = []
        size = 0
        for line in said.split(b"\n"):
            group.append(prefix + line)
            size += len(line) + 1
            if size >= self._most_at_once:
                self._write(group)
                group, size = [], 0
        if group:
            self._write(group)

    def _write(self, lines: Sequence[bytes]) -> None:
        data = b"\n".join(lines) + b"\n"
        if self._row is not None:
            data = CLEAR + data + self._row.again()
        self._offer(data)

    def _offer(self, data: bytes) -> None:
        data = self._owed + data
        try:
            while data:
                self._room.poll()  # another process may have made our console one that does not wait
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(self._fd, data) :]
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
        self._owed = data


class Picks:
    """A file for the lines that are picked; nothing is left out of it."""

    backlog: Backlog | None = None
    shows_unfinished = True

    def has_room(self) -> bool:
        """It takes what there is room for."""
        return True

    def __init__(self, needles: Sequence[str], into: str) -> None:
        self._needles = [needle.encode() for needle in needles]
        self._fd = os.open(into, _APPEND, 0o666)

    def take(self, prefix: bytes, lines: Sequence[bytes]) -> None:
        """Add those of the lines, as they are; a full disk keeps none waiting."""
        picked = [prefix + line for line in lines if any(needle in line for needle in self._needles)]
        if picked:
            with contextlib.suppress(OSError):
                os.write(self._fd, b"\n".join(picked) + b"\n")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)
