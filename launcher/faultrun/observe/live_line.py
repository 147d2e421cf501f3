"""One calm line at the bottom of a terminal: ranks up, step, rate, time, restarts. Painted by a sidecar.

Every writer to the terminal begins with ``CLEAR``, in one write: whoever comes second wipes the line away
before its own text, so a line of the log and the live line never share a row.
"""

import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from faultrun.checkpoints.find import VerifyProgress
from faultrun.core.span import span
from faultrun.journal.lines import JournalLine
from faultrun.model.checkpoint import Entry
from faultrun.model.run import Phase
from faultrun.observe.sidecar import CLEAR, Work
from faultrun.observe.view import RunView

METER = ".verifying"
"""How far a verification is: two numbers in a file of the log_dir, there only while files are verified."""

_PHASES = {
    Phase.SURVEYING: "looking for a checkpoint",
    Phase.AWAITING_PLAN: "agreeing on a plan",
    Phase.BACKING_OFF: "waiting before the restart",
    Phase.HOLDING: "held back by the platform",
    Phase.PREPARING: "preparing",
    Phase.AWAITING_GO: "preparing",
    Phase.DRAINING: "workers are saving",
    Phase.KILLING: "ending workers",
    Phase.SWEEPING: "cleaning up",
}
_PACE_OVER_S = 15.0
_BAR = 24
_GIB = 1 << 30
_USUAL_COLUMNS = 80  # a terminal that was made without a size has none
_NUMBERS = struct.Struct("<qq")
_METER_EVERY_S = 0.3


class LiveLine(Work):
    """``fd`` is the terminal."""

    interval_s = 1.0

    def __init__(
        self, fd: int, log_dir: Path, world_size: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._fd = fd
        self._log_dir = log_dir
        self._world_size = world_size
        self._now = now
        self._view = RunView()
        self._began_s = self._phase_s = now()
        self._looks: list[tuple[float, int]] = []
        self._looks_at = -1
        self._shown = False

    def take(self, line: JournalLine) -> None:
        """See ``sidecar.Work``."""
        before = self._view.phase
        self._view.take(line)
        if self._view.phase is not before:
            self._phase_s = self._now()
        if self._view.incarnation != self._looks_at:
            self._looks_at = self._view.incarnation
            self._looks.clear()

    def tick(self) -> None:
        """See ``sidecar.Work``: paint, if the terminal is ours to paint on now."""
        with suppress(OSError):
            if os.tcgetpgrp(self._fd) != os.getpgrp():
                return
            columns = os.get_terminal_size(self._fd).columns or _USUAL_COLUMNS
            text = self.text()[: max(0, columns - 1)]
            os.write(self._fd, CLEAR + b"\x1b[2m" + text.encode(errors="replace") + b"\x1b[0m")
            self._shown = True

    def end(self) -> None:
        """See ``sidecar.Work``: leave an empty row."""
        if self._shown:
            with suppress(OSError):
                os.write(self._fd, CLEAR)

    def text(self) -> str:
        """What the line says now."""
        phase, now_s = self._view.phase, self._now()
        words = [f"{len(self._view.up)}/{self._world_size} ranks"]
        if phase is Phase.RUNNING:
            words += self._progress(now_s)
        elif phase is not None:
            words += self._verification() if phase is Phase.SURVEYING else []
            since_s = int(now_s - self._phase_s)
            words.append(_PHASES.get(phase, phase.value) + (f" {span(since_s)}" if since_s else ""))
        words.append(span(int(now_s - self._began_s)))
        restarts = self._view.ledger.total_restarts
        if restarts:
            words.append(f"{restarts} restart{'s' if restarts != 1 else ''}")
        return "  ".join(words)

    def _progress(self, now_s: float) -> list[str]:
        up = len(self._view.up)
        if up < self._world_size and not self._looks:
            return [f"starting [{_bar(up / max(1, self._world_size))}]"]
        # The slowest of the ranks that report: the others wait for it.
        step = min((one.step for one in self._view.progress(self._log_dir) if one is not None), default=None)
        if step is None:
            return ["running"]
        self._looks.append((now_s, step))
        while len(self._looks) > 2 and now_s - self._looks[0][0] > _PACE_OVER_S:
            self._looks.pop(0)
        (first_s, first), (last_s, last) = self._looks[0], self._looks[-1]
        rate = (
            f"{(last - first) / (last_s - first_s):.3g} steps/s" if last > first and last_s > first_s else ""
        )
        silent = "" if self._view.warned is None else f"rank {self._view.warned} may hang"
        return [word for word in (f"step {step:,}", rate, silent) if word]

    def _verification(self) -> list[str]:
        try:
            read, expected = _NUMBERS.unpack((self._log_dir / METER).read_bytes())
        except (OSError, struct.error):
            return []
        if expected <= 0:
            return []
        bar = _bar(min(1.0, read / expected))
        return [f"verifying [{bar}] {read / _GIB:.1f} of {expected / _GIB:.1f} GiB"]


def _bar(share: float) -> str:
    done = int(share * _BAR)
    return "#" * done + "." * (_BAR - done)


class VerificationMeter(VerifyProgress):
    """Tells the live line how far a verification is. Called from several threads; cannot fail."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._expected_bytes = 0
        self._read_bytes = 0
        self._written_s = 0.0

    def begins(self, entries: Sequence[Entry]) -> None:
        """See ``VerifyProgress``."""
        with self._lock:
            self._expected_bytes += sum(entry.size_bytes for entry in entries)

    def reads(self, size_bytes: int) -> None:
        """See ``VerifyProgress``."""
        with self._lock:
            self._read_bytes += size_bytes
            if time.monotonic() - self._written_s > _METER_EVERY_S:
                self._write()

    def over(self) -> None:
        """See ``VerifyProgress``."""
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
