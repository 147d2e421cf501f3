"""A scene in a process of its own, which sees a private view and ends with all that it started."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil

from faultrun.files import readable
from faultrun.rehearse.isolation.private_view import NoPrivateView
from faultrun.rehearse.scene_messages import SceneFailed, Told, told_of, written_line
from faultrun.workers import signals
from faultrun.workers.process import die_with

_GRACE_S, _TICK_S, _REAP_S = 20.0, 0.25, 10.0

Play = Callable[[Callable[[Told], None]], None]
"""What is done inside; it is given a way to tell what comes of it."""


def play(enter: Callable[[], None], inside: Play, until_s: float, tick: Callable[[], None]) -> Iterator[Told]:
    """Yield what ``inside`` tells, until it has ended or ``until_s`` (monotonic) is well over.

    ``enter`` brings its process where nothing of the user's can be written to. ``tick`` is called several
    times a second. Nothing that was started outlives this.
    """
    read_end, write_end = os.pipe()
    ours = os.getpid()
    if os.fork() == 0:
        die_with(ours)
        os.close(read_end)
        _child(enter, inside, write_end)
    os.close(write_end)
    try:
        yield from _heard(read_end, until_s + _GRACE_S, tick)
    finally:
        os.close(read_end)
        end_descendants()


def end_descendants() -> None:
    """Kill and reap every process that comes from us, orphans too: we are the one they are given to."""
    until_s = time.monotonic() + _REAP_S
    while True:
        left = psutil.Process().children(recursive=True)
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not left or time.monotonic() >= until_s:
            return
        time.sleep(0.01)


def _child(enter: Callable[[], None], inside: Play, write_end: int) -> None:
    code = 1
    try:
        os.setsid()
        signals.unblock()
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_DFL)
        _quiet()

        def tell(told: Told) -> None:
            os.write(write_end, written_line(told))

        try:
            enter()
        except NoPrivateView as error:
            tell(SceneFailed(why=str(error)))
        else:
            inside(tell)
            code = 0
    except BaseException:  # noqa: BLE001  a bug of ours: the process ends here, and its traceback is told
        with suppress(OSError):
            os.write(write_end, written_line(SceneFailed(why=traceback.format_exc())))
    finally:
        os._exit(code)


def _quiet() -> None:
    """The waiting thread shows the progress; no other writes there."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(null, stream.fileno())


def _heard(fd: int, until_s: float, tick: Callable[[], None]) -> Iterator[Told]:
    unread = b""
    while time.monotonic() < until_s:
        tick()
        if not readable(_TICK_S, fd):
            continue
        if not (data := os.read(fd, 1 << 16)):
            return
        *lines, unread = (unread + data).split(b"\n")
        yield from map(told_of, lines)
