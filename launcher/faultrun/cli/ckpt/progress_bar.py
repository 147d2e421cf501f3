"""A progress bar for verification that takes longer than a second; nothing before that."""

import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from faultrun.checkpoints.find import VerifyProgress
from faultrun.model.checkpoint import Entry

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_PATIENCE_S = 1.0


class Bar(VerifyProgress):
    """``checkpoints.find.VerifyProgress`` on stderr; to be closed, which ends the bar's line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin_s = time.monotonic()
        self._expected_bytes = self._finished_bytes = 0
        self._reading: dict[int, int] = {}
        self._bar: ProgressBar[int] | None = None

    def close(self) -> None:
        """End the line, if there is one."""
        if self._bar is not None:
            self._bar.render_finish()

    def begins(self, entries: Sequence[Entry]) -> None:
        """Add ``entries``, which are about to be verified, to the bytes that the bar expects."""
        with self._lock:
            self._expected_bytes += sum(entry.size_bytes for entry in entries)

    def reads(self, size_bytes: int) -> None:
        """Count ``size_bytes`` as read; each file is read by one thread, which tells the files apart."""
        thread = threading.get_ident()
        with self._lock:
            self._reading[thread] = self._reading.get(thread, 0) + size_bytes
            self._show()

    def done(self, entry: Entry) -> None:
        """Count ``entry`` as done, the bytes too that did not have to be read."""
        with self._lock:
            self._reading.pop(threading.get_ident(), None)
            self._finished_bytes += entry.size_bytes
            self._show()

    def _show(self) -> None:
        if time.monotonic() - self._begin_s < _PATIENCE_S:
            return
        if self._bar is None:
            self._bar = click.progressbar(length=self._expected_bytes, label="verifying", file=sys.stderr)
        self._bar.length = self._expected_bytes
        seen = min(self._finished_bytes + sum(self._reading.values()), self._expected_bytes)
        self._bar.update(max(0, seen - self._bar.pos))
