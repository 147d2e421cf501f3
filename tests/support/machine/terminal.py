"""A terminal in a test: a pseudo-terminal whose other side the test holds, and a program on it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 120.0


class Terminal:
    """``said`` is what came out of it so far; read by ``read_until`` and ``read_to_end`` alone."""

    def __init__(self, columns: int = 100) -> None:
        self._ours, theirs = pty.openpty()
        self.theirs = theirs
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.said = b""

    def start(
        self, words: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Run ``words`` as the terminal's own session, as a shell's job in the foreground."""
        plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        process = subprocess.Popen(
            words,
            cwd=folder,
            env={**plain, "TERM": "xterm", **(environ or {})},
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  no threads here
        )
        os.close(self.theirs)
        return process

    def read_until(self, there: Callable[[bytes], bool], within_s: float = PATIENCE_S) -> bytes:
        """Read until ``there`` is so of all that was said."""
        until_s = time.monotonic() + within_s
        while not there(self.said):
            ready, _, _ = select.select([self._ours], [], [], max(0.0, until_s - time.monotonic()))
            assert ready, f"not within {within_s} s; it says:\n{self.said[-3000:].decode(errors='replace')}"
            self.said += os.read(self._ours, 65536)
        return self.said

    def read_to_end(self) -> bytes:
        """Read until nobody has it open any more."""
        with suppress(OSError):  # how a terminal says so
            while chunk := os.read(self._ours, 65536):
                self.said += chunk
        return self.said

    def type(self, keys: bytes) -> None:
        """What a person types."""
        os.write(self._ours, keys)

    def hang_up(self) -> None:
        """As when the connection to it is lost."""
        os.close(self._ours)
        self._ours = -1

    def close(self) -> None:
        """Let go of it."""
        if self._ours >= 0:
            os.close(self._ours)


def rows(said: bytes) -> list[str]:
    """What a person finds on a terminal of endless length: each row as it was left."""
    found = []
    for line in said.split(b"\n"):
        row = line.rstrip(b"\r").rpartition(b"\r")[2].rpartition(b"\x1b[K")[2]
        found.append(row.decode(errors="replace"))
    return found
