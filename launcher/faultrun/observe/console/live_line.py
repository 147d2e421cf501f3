"""One calm line at the bottom of a terminal: ranks up, step, rate, time, restarts. Painted by a sidecar.

Behind it stands what a shown worker has not ended with a newline: a bar of progress. Lines of a log wipe the
row away and bring it back below themselves (``terminal.BottomRow``).
"""

import os
import re
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from unicodedata import east_asian_width

from faultrun.checkpoints.find import VerifyProgress
from faultrun.core.humanize import several, span
from faultrun.files import bytes_from
from faultrun.journal.lines import JournalLine
from faultrun.model.checkpoint import Entry
from faultrun.model.printable import last_written, one_line
from faultrun.model.run import Phase
from faultrun.model.spec.output import Logs
from faultrun.observe.outlets.sidecar import Work
from faultrun.observe.run_view import RunView
from faultrun.terminal import CLEAR, BottomRow, never_waits

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
_SGR = re.compile("\x1b\\[[0-9;:]*m")
_METER_EVERY_S = 0.3
_LOGS = Logs()
_BAR_BYTES = 2048
_LEAST_BAR_COLUMNS = 20
_WITH_BARS_S = 0.5


@dataclass(frozen=True, slots=True)
class UnfinishedLine:
    """A worker's log, and what stands before its lines on the console."""

    log: Path
    prefix: str

    def text(self) -> str:
        """What it wrote since its last whole line, the way it stands now; no escapes, no controls."""
        end = bytes_from(self.log, -_BAR_BYTES, _BAR_BYTES).rpartition(b"\n")[2]
        said = _SGR.sub("", last_written(end).decode(errors="replace"))
        return f"{self.prefix}{one_line(said)}" if said.strip() else ""


class LiveLine(Work):
    """Keeps ``row`` up to date for the ``workers`` of this node.

    ``unfinished`` are those whose lines go to the same terminal.
    """

    interval_s = 1.0

    def __init__(
        self,
        row: BottomRow,
        log_dir: Path,
        workers: int,
        logs: Logs = _LOGS,
        unfinished: Sequence[UnfinishedLine] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._row = row
        self._fd = never_waits(row.fd)
        self._log_dir, self._workers, self._logs = log_dir, workers, logs
        self._unfinished = unfinished
        if unfinished:
            self.interval_s = _WITH_BARS_S
        self._now = now
        self._view = RunView()
        self._began_s = self._phase_s = now()
        self._looks: list[tuple[float, int]] = []
        self._looks_at = -1
        self._shown = False

    def take(self, line: JournalLine) -> None:
        """Follow the phase and the incarnation of the run by one more line of the journal."""
        before = self._view.phase
        self._view.take(line)
        if self._view.phase is not before:
            self._phase_s = self._now()
        if self._view.incarnation != self._looks_at:
            self._looks_at = self._view.incarnation
            self._looks.clear()

    def tick(self) -> None:
        """Paint the row anew, if the terminal is ours to paint on now."""
        with suppress(OSError):
            if os.tcgetpgrp(self._fd) != os.getpgrp():
                self._row.set("")
                return
            columns = os.get_terminal_size(self._fd).columns or _USUAL_COLUMNS
            self._row.set(self.fitted(columns - 1))
            os.write(self._fd, CLEAR + self._row.again())
            self._shown = True

    def end(self) -> None:
        """Leave an empty row on the terminal."""
        self._row.set("")
        if self._shown:
            with suppress(OSError):
                os.write(self._fd, CLEAR)

    def fitted(self, columns: int) -> str:
        """What the line says now, in at most ``columns``; a bar has what the other words leave."""
        text = self.text()
        running = self._view.phase is Phase.RUNNING
        bar = next((bar for one in self._unfinished if running and (bar := one.text())), "")
        if bar and columns - len(text) < _LEAST_BAR_COLUMNS:
            text = text.partition("  ")[0]
        return _cut(f"{text}  {bar}" if bar else text, columns)

    def text(self) -> str:
        """What is known of the run."""
        phase, now_s = self._view.phase, self._now()
        words = [f"{len(self._view.up)}/{self._workers} ranks"]
        if phase is Phase.RUNNING:
            words += self._progress(now_s)
        elif phase is not None:
            words += self._verification() if phase is Phase.SURVEYING else []
            since_s = int(now_s - self._phase_s)
            words.append(_PHASES.get(phase, phase.value) + (f" {span(since_s)}" if since_s else ""))
        words.append(span(int(now_s - self._began_s)))
        if restarts := self._view.restarts:
            words.append(several(restarts, "restart"))
        return "  ".join(words)

    def _progress(self, now_s: float) -> list[str]:
        if (up := len(self._view.up)) < self._workers and not self._looks:
            return [f"starting [{_bar(up / max(1, self._workers))}]"]
        # The slowest of the ranks that report: the others wait for it.
        step = min((one.step for one in self._view.last_steps(self._log_dir, self._logs).steps), default=None)
        if step is None:
            return ["running"]
        self._looks.append((now_s, step))
        while len(self._looks) > 2 and now_s - self._looks[0][0] > _PACE_OVER_S:
            self._looks.pop(0)
        (first_s, first), (last_s, last) = self._looks[0], self._looks[-1]
        moves = last > first and last_s > first_s
        rate = f"{(last - first) / (last_s - first_s):.3g} steps/s" if moves else ""
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


def _cut(text: str, columns: int) -> str:
    """What of it fits: a row that overflows into another cannot be wiped away."""
    wide = accumulate(2 if east_asian_width(letter) in "WF" else 1 for letter in text)
    return text[: sum(width <= columns for width in wide)]


def _bar(share: float) -> str:
    done = int(share * _BAR)
    return "#" * done + "." * (_BAR - done)


class VerificationMeter(VerifyProgress):
    """Tells the live line how far a verification is. Called from several threads; cannot fail."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._expected_bytes = self._read_bytes = 0
        self._written_s = 0.0

    def begins(self, entries: Sequence[Entry]) -> None:
        """Add the sizes of ``entries`` to the bytes that are to be read."""
        with self._lock:
            self._expected_bytes += sum(entry.size_bytes for entry in entries)

    def reads(self, size_bytes: int) -> None:
        """Count ``size_bytes`` as read, and tell the live line now and then."""
        with self._lock:
            self._read_bytes += size_bytes
            if time.monotonic() - self._written_s > _METER_EVERY_S:
                self._write()

    def over(self) -> None:
        """Remove the file that the live line reads, and count anew."""
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
