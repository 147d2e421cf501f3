"""A terminal that several processes of ours write to: its colours, its last row, and no waiting for it."""

import mmap
import os
import struct
import time
from collections.abc import Mapping
from contextlib import suppress

from faultrun.model.line_tone import Tone, painted

CLEAR = b"\r\x1b[K"
"""To the beginning of a terminal's row, and wipe it."""

_HEAD = struct.Struct("<dI")
_ROOM = 4096
_STALE_S = 5.0


def has_colours(environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Whether colours and dim text are wanted (no-color.org, force-color.org)."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal and obeys_escapes(environ)


def obeys_escapes(environ: Mapping[str, str]) -> bool:
    """Whether a terminal, if there is one, can wipe a row."""
    return environ.get("TERM", "dumb") not in ("", "dumb")


def is_terminal(fd: int) -> bool:
    """Whether ``fd`` is one; False where it is closed."""
    with suppress(OSError):
        return os.isatty(fd)
    return False


def never_waits(fd: int) -> int:
    """A descriptor of the same terminal that takes what it has room for and returns; else ``fd`` itself.

    A terminal is opened anew: the flag belongs to what was opened, and the shell and workers that share ours
    must not meet it. With it a write does not wait for a paused terminal (Ctrl-S), nor for another process
    that does.
    """
    if is_terminal(fd):
        with suppress(OSError):  # of another user (su): we may write and not open
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return fd


class BottomRow:
    """What stands in the last row of a terminal, in memory that forked processes share.

    One process sets it. Every writer begins with ``CLEAR`` and ends with ``again``, in one write: a line
    wipes the row and brings it back below itself. ``fd`` is the terminal. Made before any fork.
    """

    def __init__(self, fd: int, tone: Tone = Tone.PLAIN) -> None:
        self.fd, self._tone = fd, tone
        self._shared = mmap.mmap(-1, _ROOM)

    def set(self, text: str) -> None:
        """Change it; nothing is written to the terminal. ``text`` fits into a row of it."""
        data = painted(text, self._tone).encode(errors="replace")
        if len(data) > _ROOM - _HEAD.size:
            data = b""
        self._shared[: _HEAD.size] = _HEAD.pack(time.monotonic(), 0)
        self._shared[_HEAD.size : _HEAD.size + len(data)] = data
        self._shared[: _HEAD.size] = _HEAD.pack(time.monotonic(), len(data))

    def again(self) -> bytes:
        """What to write below a line; nothing where its writer has been silent for some seconds."""
        at_s, size = _HEAD.unpack_from(self._shared)
        if not size or time.monotonic() - at_s > _STALE_S:
            return b""
        return bytes(self._shared[_HEAD.size : _HEAD.size + size])
