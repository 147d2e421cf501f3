"""What a person reads: one line for one thing, on stderr. Nobody waits for the person to read it."""

import atexit
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress

import click

from faultrun.model.printable import printable

_CHUNK = 512
_KEPT = 1 << 16
_LAST_WORDS_MS = 1000

_unsaid = bytearray()


def _plain(line: str) -> str:
    return f"faultrun: {line}"


_shape: list[Callable[[str], str]] = [_plain]
_line_start: list[bytes] = [b""]


def speak(shape: Callable[[str], str]) -> None:
    """Give what ``say`` is told this shape from now on."""
    _shape[0] = shape


def begin_lines_with(start: bytes) -> None:
    """Write ``start`` before each line from now on."""
    _line_start[0] = start


def say(line: str) -> None:
    """One thing that matters, on stderr.

    A console that went away is no reason to stop, and one that does not read
    (Ctrl-S, a pager) none to wait: what it does not take now it is offered
    with the next line. Of what piles up the newest 64 KiB are kept.
    """
    write(_shape[0](line))


def write(text: str) -> None:
    """As ``say``, for what has its final shape."""
    text = printable(text)
    fd = _descriptor()
    if fd is None:
        with suppress(OSError, ValueError):
            click.echo(text, err=True)
        return
    _unsaid.extend(_line_start[0] + f"{text}\n".encode(errors="backslashreplace"))
    if len(_unsaid) > _KEPT:
        del _unsaid[: _unsaid.index(b"\n", len(_unsaid) - _KEPT) + 1]
    _offer(fd, 0)


def answer(text: str) -> None:
    """What a verb was asked for, on stdout; a line end follows. All of it, however long a reader takes."""
    click.echo(printable(text).encode(errors="backslashreplace").decode())


def settle() -> None:
    """Offer what was not taken a last time, bounded; called when the process ends."""
    fd = _descriptor()
    if fd is not None:
        _offer(fd, _LAST_WORDS_MS)


def _offer(fd: int, patience_ms: int) -> None:
    room = select.poll()
    room.register(fd, select.POLLOUT)
    try:
        # A pipe that is ready takes a page, and a terminal more than a chunk, without blocking us.
        while _unsaid and room.poll(patience_ms):
            del _unsaid[: os.write(fd, _unsaid[:_CHUNK])]
    except OSError:
        _unsaid.clear()


def _descriptor() -> int | None:
    """The file descriptor of stderr; None where it is closed or only an object, as in tests."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return None


atexit.register(settle)
