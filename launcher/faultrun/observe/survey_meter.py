"""How far a verification is, for the live line: two numbers in a file, written now and then."""

import os
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from faultrun.model.checkpoint import Entry

METER = ".verifying"
"""Its name in the log_dir; there is one only while files are verified."""

_NUMBERS = struct.Struct("<qq")
_EVERY_S = 0.3


class SurveyMeter:
    """Implements ``checkpoints.survey.Watch``. Called from several threads; cannot fail."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._expected_bytes = 0
        self._read_bytes = 0
        self._written_s = 0.0

    def begins(self, entries: Sequence[Entry]) -> None:
        """See ``Watch``."""
        with self._lock:
            self._expected_bytes += sum(entry.size_bytes for entry in entries)

    def reads(self, size_bytes: int) -> None:
        """See ``Watch``."""
        with self._lock:
            self._read_bytes += size_bytes
            if time.monotonic() - self._written_s > _EVERY_S:
                self._write()

    def done(self, entry: Entry) -> None:
        """See ``Watch``."""

    def over(self) -> None:
        """The survey has ended: the next one counts anew."""
        with self._lock:
            self._expected_bytes = self._read_bytes = 0
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        self._written_s = time.monotonic()
        with suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.pwrite(fd, _NUMBERS.pack(self._read_bytes, self._expected_bytes), 0)
            os.close(fd)


def read_meter(path: Path) -> tuple[int, int] | None:
    """Bytes read and expected; None when nothing is being verified."""
    try:
        read, expected = _NUMBERS.unpack(path.read_bytes())
    except (OSError, struct.error):
        return None
    return read, expected
