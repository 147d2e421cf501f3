"""What a person reads: one line for one thing, on stderr. Nobody waits for the person to read it."""

import atexit
import os
import select
import sys
from contextlib import suppress

import click

_CHUNK = 512
_KEPT = 1 << 16
_LAST_WORDS_MS = 1000

_unsaid = bytearray()


def say(line: str) -> None:
    """One thing that matters, on stderr.

    A console that went away is no reason to stop, and one that does not read
    (Ctrl-S, a pager) none to wait: what it does not take now it is offered
    with the next line. Of what piles up the newest 64 KiB are kept.
    """
    fd = _descriptor()
    if fd is None:
        with suppress(OSError, ValueError):
            click.echo(f"faultrun: {line}", err=True)
        return
    _unsaid.extend(f"faultrun: {line}\n".encode(errors="backslashreplace"))
    if len(_unsaid) > _KEPT:
        del _unsaid[: _unsaid.index(b"\n", len(_unsaid) - _KEPT) + 1]
    _offer(fd, 0)


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
