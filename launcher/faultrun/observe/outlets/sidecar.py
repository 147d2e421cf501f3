"""Processes of our own that tell others of the run: they read the journal, and nothing waits for them.

Whatever a console, a web server or a user's command does, it does it to a sidecar: the supervisor only
holds the end of a pipe. When that closes, on purpose or because the supervisor was killed, the sidecar reads
what is left of the journal, does its last work and ends.
"""

import contextlib
import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from faultrun.files import readable
from faultrun.journal.lines import JournalFollower, JournalLine
from faultrun.workers.forked_helper import Forked


class Work(ABC):
    """What a sidecar does, made and run in the child; what it raises ends the child alone."""

    interval_s: float

    @abstractmethod
    def take(self, line: JournalLine) -> None:
        """One new line of the journal."""

    @abstractmethod
    def tick(self) -> None:
        """Called after new lines, and at least every ``interval_s``."""

    @abstractmethod
    def end(self) -> None:
        """The supervisor is gone or wants us gone; the whole journal has been taken."""


class Sidecar:
    """The supervisor's end. To be made before any thread is; nothing here blocks but ``close``, bounded.

    ``make`` is called in the child, so that no library is imported by the supervisor for it; its argument is
    a descriptor that becomes readable when the end is near. The descriptors ``keep`` stay open.
    """

    def __init__(
        self, make: Callable[[int], Work], journal: Path, *, keep: tuple[int, ...] = (), patience_s: float
    ) -> None:
        self._patience_s = patience_s
        lifeline, self._held = os.pipe2(os.O_CLOEXEC)
        kept = (lifeline, *keep)

        def live() -> None:
            try:
                _silence(kept)
                _run(make(lifeline), JournalFollower(journal), lifeline)
            except Exception:  # noqa: BLE001  its stderr is not seen; the run goes on without it
                _complain(journal.parent)

        self._process = Forked(live, keep=kept)
        os.close(lifeline)

    def close(self) -> None:
        """Let it finish, at most ``patience_s`` seconds, then end it."""
        os.close(self._held)
        self._process.end(self._patience_s)


def _complain(log_dir: Path) -> None:
    with contextlib.suppress(OSError), (log_dir / "sidecar_traceback.txt").open("a") as file:
        file.write(f"{traceback.format_exc()}\n")


def _silence(kept: tuple[int, ...]) -> None:
    """What a library writes to its standard streams must not reach a file that came to have their number."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        if fd not in kept:
            os.dup2(null, fd)
    if null > 2:
        os.close(null)


def _run(work: Work, journal: JournalFollower, lifeline: int) -> None:
    gone = False
    while not gone:
        gone = bool(readable(work.interval_s, lifeline))
        for line in journal.new_lines():
            work.take(line)
        work.tick()
    work.end()
