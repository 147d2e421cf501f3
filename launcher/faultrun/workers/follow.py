"""Copies workers' logs to the console as they grow, from a process of its own.

A console that blocks (a paused terminal, a full pipe) must neither stall the
supervisor nor a worker: workers write files, this process reads them.
"""

import contextlib
import ctypes
import json
import os
import select
import struct
from dataclasses import dataclass
from pathlib import Path

from faultrun.workers.forked import Forked

_LIBC = ctypes.CDLL(None, use_errno=True)
_IN_MODIFY = 0x2
_EVENT = struct.Struct("iIII")
_CHUNK = 1 << 16
_LAST_WORDS_S = 2.0


class Follower:
    """The supervisor's end. Start it before any thread; nothing here blocks."""

    def __init__(self, line_start: bytes = b"") -> None:
        """``line_start`` is written before each line that goes to a terminal."""
        commands, self._pipe = os.pipe2(os.O_CLOEXEC)
        self._copier = Forked(lambda: _Copier(commands, line_start).run(), keep=(0, 1, 2, commands))
        os.close(commands)
        os.set_blocking(self._pipe, False)

    def follow(self, path: Path, prefix: str, *, to_fd: int) -> None:
        """Copy what is appended to ``path`` from now on to ``to_fd``, each line after ``prefix``."""
        path.touch()
        line = json.dumps({"path": str(path), "prefix": prefix, "fd": to_fd}) + "\n"
        with contextlib.suppress(OSError):
            os.write(self._pipe, line.encode())

    def close(self) -> None:
        """Let it copy the last words, then end it; bounded, whatever the console does."""
        os.close(self._pipe)
        self._copier.end(_LAST_WORDS_S)


@dataclass(slots=True)
class _Followed:
    fd: int
    prefix: bytes
    to_fd: int
    rest: bytes = b""


class _Copier:
    """In the child: waits for commands and for files to grow."""

    def __init__(self, commands: int, line_start: bytes) -> None:
        self._commands = commands
        self._line_start = line_start
        self._unread = b""
        self._inotify = _LIBC.inotify_init1(os.O_CLOEXEC)
        self._files: dict[int, _Followed] = {}

    def run(self) -> None:
        open_ = True
        while open_:
            ready, _, _ = select.select([self._commands, self._inotify], [], [])
            if self._inotify in ready:
                self._copy_grown()
            if self._commands in ready:
                open_ = self._read_commands()
        for followed in self._files.values():
            self._copy(followed)
            if followed.rest:
                _write(followed.to_fd, followed.prefix + followed.rest + b"\n")

    def _read_commands(self) -> bool:
        data = os.read(self._commands, _CHUNK)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            path = os.fsencode(order["path"])
            watch = _LIBC.inotify_add_watch(self._inotify, path, _IN_MODIFY)
            prefix = (self._line_start if os.isatty(order["fd"]) else b"") + order["prefix"].encode()
            followed = _Followed(os.open(path, os.O_RDONLY), prefix, order["fd"])
            self._files[watch] = followed
            self._copy(followed)
        return bool(data)

    def _copy_grown(self) -> None:
        data = os.read(self._inotify, _CHUNK)
        grown: set[int] = set()
        at = 0
        while at < len(data):
            watch, _, _, name_bytes = _EVENT.unpack_from(data, at)
            grown.add(watch)
            at += _EVENT.size + name_bytes
        for watch in grown & self._files.keys():
            self._copy(self._files[watch])

    def _copy(self, followed: _Followed) -> None:
        if os.fstat(followed.fd).st_size < os.lseek(followed.fd, 0, os.SEEK_CUR):
            os.lseek(followed.fd, 0, os.SEEK_SET)  # it was cut (workers/rotate.py)
        while chunk := os.read(followed.fd, _CHUNK):
            *lines, followed.rest = (followed.rest + chunk).split(b"\n")
            text = b"".join(followed.prefix + line + b"\n" for line in lines)
            _write(followed.to_fd, text)


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
