"""Copies workers' logs to the console as they grow, from a process of its own.

A console that blocks (a paused terminal, a full pipe) must neither stall the
supervisor nor a worker: workers write files, this process reads them. What a
console cannot take in time is left out there, and said; the files have all.
"""

import contextlib
import os
import select
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultrun.files import Inotify
from faultrun.model.printable import last_written
from faultrun.terminal import BottomRow
from faultrun.workers.forked_helper import Forked, Orders
from faultrun.workers.logs.console import MOST_CHUNKS, Console, Picks

_IN_MODIFY = 0x2
_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 16
"""A longer one goes on in a line of its own: the end of a printed tensor is not waited for, nor kept."""
_LOOK_S = 0.2
_PACE_S = 0.05
"""Between two looks at a file that was read to its end: who writes all the time is read in larger pieces."""
_TALKS_S = 0.3
_UNFINISHED_S = 5.0
"""A line without an end, such as a bar, is shown so often as it stands, where no last row shows it."""
_LAST_WORDS_S, _FULL_REST_S = 2.0, 1.0


class Follower:
    """The supervisor's end. Start it before any thread; nothing here blocks.

    ``row`` is the last row of the terminal that it may meet there.
    """

    def __init__(self, row: BottomRow | None = None) -> None:
        self._orders = orders = Orders()
        self._copier = Forked(lambda: _Copier(orders, row).run(), keep=(0, 1, 2, *orders.kept))
        orders.leave_to_helper()

    def follow(self, path: Path, prefix: str, to_fd: int) -> None:
        """Show what is appended to ``path`` from now on, each line after ``prefix``, on ``to_fd``."""
        path.touch()
        self._orders.send({"path": str(path), "prefix": prefix, "fd": to_fd})

    def pick(self, path: Path, prefix: str, needles: tuple[str, ...], into: Path) -> None:
        """Add the lines of ``path`` that have one of ``needles`` to the file ``into``: all of them."""
        path.touch()
        self._orders.send({"path": str(path), "prefix": prefix, "needles": needles, "into": str(into)})

    def close(self) -> None:
        """Let it copy the last words, then end it; bounded, whatever the console does."""
        self._orders.close()
        self._copier.end(_LAST_WORDS_S)


@dataclass(slots=True, eq=False)
class _Followed:
    """One file and where its lines go. ``rests_until_s``: it is not looked at before.

    ``watch`` is the kernel's, negative while there is none: to be told of each write costs the writer half
    a microsecond of it, so a file that grows is looked at from time to time until it is silent.
    ``part`` is the rank and the stream: a file of its next life takes the place of this one.
    """

    path: Path
    fd: int
    prefix: bytes
    to: "Console | Picks"
    part: tuple[str, str]
    watch: int = -1
    talks_until_s: float = 0.0
    grown: bool = True
    rests_until_s: float = 0.0
    unfinished_since_s: float = 0.0
    rest: bytes = b""

    def copy(self, now_s: float) -> bool:
        """A turn: one that floods does not keep the others waiting; whether it had grown.

        OSError: the console is gone.
        """
        begin, size = os.lseek(self.fd, 0, os.SEEK_CUR), os.fstat(self.fd).st_size
        if size < begin:
            begin = os.lseek(self.fd, 0, os.SEEK_SET)  # it was cut (workers/logs/log_rotation.py)
        backlog, chunks = self.to.backlog, MOST_CHUNKS
        self.grown, self.rests_until_s = False, now_s + _PACE_S
        if backlog is not None and size - begin > backlog.most:
            self._leave_out(begin, size - backlog.newest)
            self.rests_until_s, chunks = now_s + backlog.rest_s, backlog.chunks
        for _ in range(chunks):
            if not (chunk := os.read(self.fd, _CHUNK)):
                break
            had_rest = bool(self.rest)
            *lines, self.rest = (self.rest + chunk).split(b"\n")
            if len(self.rest) >= _LONGEST_LINE and backlog is not None:
                self.rest = last_written(self.rest)
            if len(self.rest) >= _LONGEST_LINE:
                lines.append(self.rest)
                self.rest = b""
            if lines or not had_rest:
                self.unfinished_since_s = now_s
            if lines:
                self.to.take(self.prefix, lines)
        else:
            self.grown = True
            self.rests_until_s -= _PACE_S
        return size != begin

    def finish(self) -> None:
        """All that is there, to the last word."""
        self.grown = True
        while self.grown and self.to.has_room():
            self.copy(time.monotonic())
        self.show_unfinished()

    def show_unfinished(self) -> None:
        """The line that has no end yet, as it stands."""
        if self.rest:
            rest, self.rest = self.rest, b""
            self.to.take(self.prefix, [rest])

    def _leave_out(self, begin: int, end: int) -> None:
        """Go on with the first whole line after ``end``."""
        os.lseek(self.fd, end, os.SEEK_SET)
        part = os.read(self.fd, _CHUNK)
        end += part.find(b"\n") + 1
        os.lseek(self.fd, end, os.SEEK_SET)
        gone, self.rest = end - begin + len(self.rest), b""
        said = f"... {gone:,} bytes are not shown here: {self.path.name} has all"
        self.to.take(self.prefix, [said.encode()])


class _Copier:
    """In the child: waits for orders and for files to grow; it polls where inotify is used up."""

    def __init__(self, orders: Orders, row: BottomRow | None) -> None:
        self._orders, self._row = orders, row
        self._inotify = Inotify()
        self._poll = select.poll()
        for fd in (orders.bell, self._inotify.fd):
            if fd >= 0:
                self._poll.register(fd, select.POLLIN)
        self._pause = select.poll()
        self._pause.register(orders.bell, select.POLLIN)
        self._consoles: dict[int, Console] = {}
        self._files: list[_Followed] = []

    def run(self) -> None:
        open_ = True
        while open_:
            self._wait()
            orders, open_ = self._orders.received()
            for order in orders:
                self._begin(order)
            grown = {watch for watch, _ in self._inotify.events()}
            now_s = time.monotonic()
            for one in list(self._files):
                one.grown = one.grown or one.watch in grown or one.watch < 0
                self._look(one, now_s)
        for one in self._files:
            with contextlib.suppress(OSError):
                one.finish()

    def _wait(self) -> None:
        """Until an order comes, a file has grown, or a file has rested and may be read again."""
        now_s = time.monotonic()
        moments = [one.rests_until_s for one in self._files if one.grown]
        if moments:
            # A script that floods the kernel with news of a file would wake us for each of them.
            self._pause.poll(max(0.0, min(moments) - now_s) * 1000)
            return
        moments = [one.unfinished_since_s + _UNFINISHED_S for one in self._files if _waits(one)]
        if any(one.watch < 0 for one in self._files):
            talks = any(now_s < one.talks_until_s for one in self._files)
            moments.append(now_s + (_PACE_S if talks else _LOOK_S))
        self._poll.poll(max(0.0, min(moments) - now_s) * 1000 + 1 if moments else None)

    def _look(self, one: _Followed, now_s: float) -> None:
        try:
            if one.grown and one.rests_until_s <= now_s:
                if one.to.has_room():
                    self._watch(one, now_s, grew=one.copy(now_s))
                else:
                    one.rests_until_s = now_s + _FULL_REST_S
            if _waits(one) and now_s - one.unfinished_since_s >= _UNFINISHED_S:
                one.show_unfinished()
        except OSError:  # the console is gone
            self._forget(one)

    def _watch(self, one: _Followed, now_s: float, *, grew: bool) -> None:
        """Have the kernel watch a file that is silent, and no other."""
        if grew:
            one.talks_until_s = now_s + _TALKS_S
            self._unwatch(one)
        elif one.watch < 0 and now_s >= one.talks_until_s:
            one.watch = self._inotify.add(one.path, _IN_MODIFY)
            one.grown = one.watch >= 0  # one more look: it may have grown before it was watched

    def _unwatch(self, one: _Followed) -> None:
        watch, one.watch = one.watch, -1
        if watch >= 0 and watch not in {other.watch for other in self._files}:
            self._inotify.remove(watch)

    def _begin(self, order: dict[str, Any]) -> None:
        """Nothing where the file has gone again."""
        path, prefix = Path(str(order["path"])), str(order["prefix"]).encode()
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY)
            part = (str(order["prefix"]), str(order.get("into", order.get("fd"))).rpartition("/")[2])
            followed = _Followed(path, fd, prefix, self._target(order), part)
            self._leave(followed)
            self._files.append(followed)

    def _target(self, order: dict[str, Any]) -> "Console | Picks":
        if "into" in order:
            return Picks(order["needles"], str(order["into"]))
        if (to_fd := int(order["fd"])) not in self._consoles:
            self._consoles[to_fd] = Console(to_fd, self._row)
        return self._consoles[to_fd]

    def _leave(self, fresh: _Followed) -> None:
        """The file of this rank's life before says nothing any more."""
        for old in [one for one in self._files if one.part == fresh.part]:
            with contextlib.suppress(OSError):
                old.finish()
            self._forget(old)

    def _forget(self, one: _Followed) -> None:
        self._files.remove(one)
        self._unwatch(one)
        os.close(one.fd)
        if isinstance(one.to, Picks):
            one.to.close()


def _waits(one: _Followed) -> bool:
    """Whether a line without an end waits to be shown as it stands."""
    return bool(one.rest) and not one.to.shows_unfinished
