"""Copies workers' logs to the console as they grow, from a process of its own.

A console that blocks (a paused terminal, a full pipe) must neither stall the
supervisor nor a worker: workers write files, this process reads them.
"""

import contextlib
import os
import select
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultrun.files import Inotify
from faultrun.model.printable import console_output
from faultrun.model.spec import Logs, Stream
from faultrun.workers.forked import Forked, Orders
from faultrun.workers.logs import LogFiles
from faultrun.workers.rotate import Rotator

_IN_MODIFY = 0x2
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 16
"""A longer one goes on in a line of its own: nobody waits for the end of a printed tensor, or keeps it."""
_TURN_CHUNKS = 16
_LOOK_S = 0.2
_LAST_WORDS_S = 2.0


@dataclass(frozen=True, slots=True)
class Picked:
    """Lines with one of ``needles`` are added to the file ``into``."""

    needles: tuple[str, ...]
    into: Path


class Follower:
    """The supervisor's end. Start it before any thread; nothing here blocks."""

    def __init__(self, line_start: bytes = b"") -> None:
        """``line_start`` is written before each line that goes to a terminal."""
        self._orders = orders = Orders()
        self._copier = Forked(lambda: _Copier(orders, line_start).run(), keep=(0, 1, 2, *orders.kept))
        orders.leave_to_helper()

    def follow(
        self, path: Path, prefix: str, *, to_fd: int, shown: bool = True, picked: Picked | None = None
    ) -> None:
        """Copy what is appended to ``path`` from now on to ``to_fd``, each line after ``prefix``.

        Not ``shown``: only what is ``picked`` is copied.
        """
        path.touch()
        order: dict[str, object] = {"path": str(path), "prefix": prefix, "fd": to_fd, "shown": shown}
        if picked is not None:
            order |= {"needles": picked.needles, "into": str(picked.into)}
        self._orders.send(order)

    def close(self) -> None:
        """Let it copy the last words, then end it; bounded, whatever the console does."""
        self._orders.close()
        self._copier.end(_LAST_WORDS_S)


class Streams:
    """Where workers' two streams go. No ``follower``: nothing is shown; no ``rotator``: nothing is cut."""

    def __init__(
        self, wanted: Logs, log_dir: Path, follower: Follower | None = None, rotator: Rotator | None = None
    ) -> None:
        self._wanted = wanted
        self._log_dir = log_dir
        self._follower = follower
        self._rotator = rotator

    def files(self, incarnation: int) -> LogFiles:
        """The log files of one incarnation."""
        name = self._wanted.worker_log_name
        return LogFiles(log_dir=self._log_dir, worker_name=name, incarnation=incarnation)

    def open(self, files: LogFiles, ranks: tuple[int, ...]) -> None:
        """Begin the logs of ``ranks``, which come in the order of their local ranks. OSError: no room."""
        files.open(ranks)
        if self._rotator is not None:
            errors = [self.errors(files, rank, local_rank) for local_rank, rank in enumerate(ranks)]
            apart = [path for path in errors if path is not None]
            self._rotator.watch([*(files.worker(rank) for rank in ranks), *apart])

    def errors(self, files: LogFiles, rank: int, local_rank: int) -> Path | None:
        """A file of its own for standard error, only where the console shall see one of the two streams."""
        shown = self._wanted.console(rank, local_rank)
        apart = self._wanted.picked_out or self._wanted.picked_err or shown in (Stream.OUT, Stream.ERR)
        return files.worker_errors(rank) if apart else None

    def show(self, files: LogFiles, rank: int, local_rank: int) -> None:
        """Have the console follow what the user wants to see of this worker."""
        if self._follower is None:
            return
        streams = (
            (1, Stream.OUT, files.worker(rank), files.picked_out, self._wanted.picked_out),
            (2, Stream.ERR, self.errors(files, rank, local_rank), files.picked_err, self._wanted.picked_err),
        )
        console, hushed = self._wanted.console(rank, local_rank), not self._wanted.shows(local_rank)
        for to_fd, stream, path, into, needles in streams:
            shown = console in (stream, Stream.ALL)
            picked = Picked(needles, into) if needles and not hushed else None
            if path is not None and (shown or picked is not None):
                self._follower.follow(path, f"[{rank}] ", to_fd=to_fd, shown=shown, picked=picked)


@dataclass(slots=True, eq=False)
class _Followed:
    fd: int
    prefix: bytes
    to_fd: int
    watch: int
    shown: bool = True
    needles: tuple[bytes, ...] = ()
    picked_fd: int = -1
    rest: bytes = b""

    @property
    def watched(self) -> bool:
        """Whether the kernel says when it grows."""
        return self.watch >= 0

    def show(self, lines: Sequence[bytes]) -> None:
        """Write whole lines to the console; it obeys no words of a worker."""
        if lines and self.shown:
            said = console_output(b"\n".join(lines)).split(b"\n")
            _write(self.to_fd, b"".join(self.prefix + line + b"\n" for line in said))
        picked = [line for line in lines if any(needle in line for needle in self.needles)]
        if picked:
            with contextlib.suppress(OSError):  # a full disk: nobody waits for these lines
                os.write(self.picked_fd, b"".join(self.prefix + line + b"\n" for line in picked))

    def close(self) -> None:
        """Let go of its files."""
        os.close(self.fd)
        if self.picked_fd >= 0:
            os.close(self.picked_fd)


class _Copier:
    """In the child: waits for orders and for files to grow; it polls where inotify is used up."""

    def __init__(self, orders: Orders, line_start: bytes) -> None:
        self._orders = orders
        self._line_start = line_start
        self._inotify = Inotify()
        self._poll = select.poll()
        for fd in (orders.bell, self._inotify.fd):
            if fd >= 0:
                self._poll.register(fd, select.POLLIN)
        self._files: list[_Followed] = []
        self._by_watch: dict[int, _Followed] = {}

    def run(self) -> None:
        behind: list[_Followed] = []
        open_ = True
        while open_:
            self._poll.poll(self._patience_ms(behind))
            orders, open_ = self._orders.received()
            due = [one for order in orders for one in self._begun(order)]
            due += [*self._grown(), *behind, *(one for one in self._files if not one.watched)]
            due = [one for one in self._files if one in due]
            behind = [one for one in due if self._copy(one)]
        for followed in self._files:
            self._finish(followed)

    def _patience_ms(self, behind: list[_Followed]) -> float | None:
        if behind:
            return 0
        return None if all(one.watched for one in self._files) else _LOOK_S * 1000

    def _begun(self, order: dict[str, Any]) -> Iterator[_Followed]:
        """Nothing where the file has gone again."""
        path, to_fd = str(order["path"]), int(str(order["fd"]))
        with contextlib.suppress(OSError):
            watch = self._inotify.add(path, _IN_MODIFY)
            prefix = (self._line_start if os.isatty(to_fd) else b"") + str(order["prefix"]).encode()
            followed = _Followed(os.open(path, os.O_RDONLY), prefix, to_fd, watch, shown=bool(order["shown"]))
            if "into" in order:
                followed.needles = tuple(str(needle).encode() for needle in order["needles"])
                followed.picked_fd = os.open(str(order["into"]), _APPEND, 0o666)
            self._leave(prefix, to_fd)
            self._files.append(followed)
            if followed.watched:
                self._by_watch[watch] = followed
            yield followed

    def _leave(self, prefix: bytes, to_fd: int) -> None:
        """The file of this rank's life before says nothing any more."""
        for old in [one for one in self._files if (one.prefix, one.to_fd) == (prefix, to_fd)]:
            self._finish(old)
            self._files.remove(old)
            self._by_watch.pop(old.watch, None)
            self._inotify.remove(old.watch)
            old.close()

    def _finish(self, followed: _Followed) -> None:
        while self._copy(followed):
            pass
        if followed.rest:
            followed.show([followed.rest])
            followed.rest = b""

    def _grown(self) -> list[_Followed]:
        grown = {watch for watch, _ in self._inotify.events()}
        return [self._by_watch[watch] for watch in grown & self._by_watch.keys()]

    def _copy(self, followed: _Followed) -> bool:
        """A turn: one that floods does not keep the others waiting. Whether there is more."""
        if os.fstat(followed.fd).st_size < os.lseek(followed.fd, 0, os.SEEK_CUR):
            os.lseek(followed.fd, 0, os.SEEK_SET)  # it was cut (workers/rotate.py)
        for _ in range(_TURN_CHUNKS):
            chunk = os.read(followed.fd, _CHUNK)
            if not chunk:
                return False
            *lines, followed.rest = (followed.rest + chunk).split(b"\n")
            if len(followed.rest) >= _LONGEST_LINE:
                lines.append(followed.rest)
                followed.rest = b""
            followed.show(lines)
        return True


def _write(fd: int, data: bytes) -> None:
    room = select.poll()
    room.register(fd, select.POLLOUT)
    while data:
        room.poll()  # somebody may have made our console one that does not wait
        with contextlib.suppress(BlockingIOError):
            data = data[os.write(fd, data) :]
