"""What a person reads: one line for one thing, on stderr. The run does not wait for the person to read it."""

import atexit
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime

import click

from faultrun.files import DISK_FULL
from faultrun.model.line_tone import Tone, Toned, coloured, painted
from faultrun.model.printable import printable
from faultrun.terminal import CLEAR, BottomRow, has_colours, is_terminal, never_waits

_STDOUT = 1
_CHUNK = 512
_KEPT = 1 << 16
_LAST_WORDS_MS = 1000
_CLOGGED_MS = 20
"""How long a terminal that another program floods may keep us from saying something."""

_unsaid = bytearray()


class Head:
    """What stands before a line: our name, and in a run the time of day and the machine.

    The date stands there with the first line and whenever it is another one.
    """

    def __init__(self, host: str = "", now: Callable[[], datetime] = datetime.now) -> None:
        self._host, self._now = host, now
        self._day: date | None = None

    def __call__(self) -> str:
        """The head of a line that is said now."""
        if not self._host:
            return "faultrun: "
        now = self._now()
        day, self._day = self._day, now.date()
        stamp = now.strftime("%H:%M:%S" if now.date() == day else "%Y-%m-%d %H:%M:%S")
        return f"{stamp} {self._host} faultrun: "


class _Voice:
    """How we speak: ``head`` before each line, or all of it in another ``shape``; where to; in colours."""

    def __init__(self) -> None:
        self.head = Head()
        self.shape: Callable[[str], str] | None = None
        self.row: BottomRow | None = None
        self.terminal_fd: int | None = None
        self.colours = False


_voice = _Voice()


def speak(shape: Callable[[str], str]) -> None:
    """Give what ``say`` is told this shape from now on."""
    _voice.shape = shape


def stamp_lines(host: str) -> None:
    """Begin each line with the time and this machine's name from now on; with neither where it is empty."""
    _voice.head = Head(host)


def use_colours() -> None:
    """Show the tones of what is said from now on."""
    _voice.colours = True


def share_terminal(row: BottomRow) -> None:
    """From now on stderr is a terminal that has ``row`` at its bottom."""
    _voice.row, _voice.terminal_fd = row, never_waits(row.fd)


def say(line: str) -> None:
    """One thing that matters, on stderr, in colours where it has tones (``model/line_tone.py``).

    A console that went away is no reason to stop, and one that does not read (Ctrl-S, a pager) none to wait:
    what it does not take now it is offered with the next line. Of what piles up the newest 64 KiB are kept.
    """
    if _voice.shape is not None:
        write(_voice.shape(line))
        return
    head, text = _voice.head(), printable(line)
    if _voice.colours:
        head, text = painted(head, Tone.QUIET), coloured(text, line.tones if isinstance(line, Toned) else ())
    _put(head + text)


def write(text: str) -> None:
    """Write ``text`` to stderr as it stands, without the head and the colours of ``say``."""
    _put(printable(text))


def answer(text: str) -> None:
    """What a verb was asked for, on stdout; a line end follows. All of it, however long a reader takes."""
    fit = printable(text).encode(errors="backslashreplace").decode()
    if isinstance(text, Toned) and has_colours(os.environ, is_terminal=is_terminal(_STDOUT)):
        click.echo(coloured(fit, text.tones), color=True)
        return
    click.echo(fit)


def settle() -> None:
    """Offer what was not taken a last time, bounded; called when the process ends."""
    if (fd := _descriptor()) is not None:
        _offer(fd, _LAST_WORDS_MS)


def _put(text: str) -> None:
    if (fd := _descriptor()) is None:
        with suppress(OSError, ValueError):
            click.echo(text, err=True)
        return
    data = f"{text}\n".encode(errors="backslashreplace")
    row = _voice.row
    _unsaid.extend(data if row is None else CLEAR + data + row.again())
    if len(_unsaid) > _KEPT:
        del _unsaid[: _unsaid.index(b"\n", len(_unsaid) - _KEPT) + 1]
    _offer(fd, 0 if row is None else _CLOGGED_MS)


def _offer(fd: int, patience_ms: int) -> None:
    room = select.poll()
    room.register(fd, select.POLLOUT)
    chunk = _CHUNK if _voice.terminal_fd is None else _KEPT
    until_s = time.monotonic() + patience_ms / 1000
    try:
        # A pipe that is ready takes a page, and a terminal more than a chunk, without blocking us.
        while _unsaid and room.poll(max(0.0, until_s - time.monotonic()) * 1000):
            taken = _written(fd, bytes(_unsaid[:chunk]))
            del _unsaid[:taken]
            if not taken and time.monotonic() > until_s:
                return
    except OSError as error:
        if error.errno not in DISK_FULL:  # there may be room again with the next line
            _unsaid.clear()


def _written(fd: int, data: bytes) -> int:
    """How much of it was taken: nothing while another process of ours is just writing."""
    with suppress(BlockingIOError):
        return os.write(fd, data)
    return 0


def _descriptor() -> int | None:
    """The file descriptor of stderr; None where it is closed or only an object, as in tests."""
    if _voice.terminal_fd is not None:
        return _voice.terminal_fd
    with suppress(AttributeError, OSError, ValueError):
        return sys.stderr.fileno()
    return None


atexit.register(settle)
