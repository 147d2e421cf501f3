"""The journal's writing end: one line an event, whole or absent."""

import errno
import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from faultrun.errors import LogDirError
from faultrun.files import bytes_from, sync_folder
from faultrun.journal.codec import TAG, encode
from faultrun.model.events import Event
from faultrun.model.printable import printable
from faultrun.model.run import Step
from faultrun.model.topology import BootId, NodeId

FILE_NAME = "journal.jsonl"
BECAUSE = "because"
_HEAD_BYTES = 512
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_PLACED = (TAG, "at_s", "incarnation", "why")


class JournalWriter:
    """Appends to ``journal.jsonl``; ``seq`` goes on from the lines that are there.

    A disk that is full must not stop training: a line that cannot be written
    is kept and tried again before the next one, and ``trouble`` says so. That the disk did not take what was
    written is said for good: the kernel tells it once, and may have dropped it.

    ``begin_again`` makes the log_dir anew where it was removed or moved, or raises LogDirError where
    another run has it. Then all lines so far are written there, too.
    """

    def __init__(
        self,
        path: Path,
        *,
        next_seq: int,
        node: NodeId,
        boot: BootId,
        soon_s: float = 0.05,
        begin_again: Callable[[], None] = lambda: None,
    ) -> None:
        self._path, self._begin_again = path, begin_again
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with suppress(OSError):  # where a folder cannot be synced, its names are as safe as they get
            sync_folder(path.parent)
        self._seq, self._soon_s = next_seq, soon_s
        self._stamp = {"node": node, "boot": boot}
        self._unwritten = b""
        self._all_synced = True
        self._closing = threading.Event()
        self._later: threading.Thread | None = None
        self._syncs_later = False
        self._unwritten_why = self._unsynced_why = self._lost_why = ""

    def append(self, event: Event, step: Step) -> None:
        """Write the line of ``event`` and of the decision it led to; not yet on the disk."""
        line = {"seq": self._seq, "at_utc": utc_now(), **line_of(event, step, self._stamp)}
        self._seq += 1
        text = printable(json.dumps(line, ensure_ascii=False, separators=(",", ":")))
        # A file name that is no UTF-8 holds lone surrogates; escaped with a backslash they are JSON.
        self._unwritten += text.encode(errors="backslashreplace") + b"\n"
        self._flush()

    @property
    def trouble(self) -> str:
        """Why lines are not written now, or may not have reached the disk once; empty if they have."""
        if self._lost_why and not self._is_removed:
            moved = f"the log_dir was moved to {self.folder}, and cannot be made again: {self._lost_why}"
            return f"{moved}; its journal goes on there"
        return self._unwritten_why or self._unsynced_why

    @property
    def folder(self) -> Path:
        """Where the journal is: not in the log_dir, if that was moved away and another run has its name."""
        return self._own.readlink().parent if self._lost_why else self._path.parent

    def keep_place(self) -> bool:
        """Have the log_dir, made again if need be; False where another run has it by now."""
        try:
            if not self._is_there():
                self._write_again()
            self._lost_why = ""
        except (OSError, LogDirError) as error:
            self._lost_why = error.because if isinstance(error, LogDirError) else str(error.strerror)
        return not self._lost_why

    def _is_there(self) -> bool:
        """Whether our file has its name, or that is unknown; where files change numbers, by its text."""
        try:
            same = os.path.samestat(self._path.stat(), os.fstat(self._fd))
        except OSError as error:
            return error.errno not in _GONE
        return same or bytes_from(self._path, 0, _HEAD_BYTES) == bytes_from(self._own, 0, _HEAD_BYTES)

    @property
    def _own(self) -> Path:
        return Path(f"/proc/self/fd/{self._fd}")

    @property
    def _is_removed(self) -> bool:
        return not os.fstat(self._fd).st_nlink

    def sync(self) -> None:
        """Return once everything written is on the disk."""
        self._flush()
        if not self._all_synced:
            self._all_synced = True
            self._sync()

    def sync_soon(self) -> None:
        """Have the disk take everything written within ``soon_s``, and do not wait for it.

        A recovery writes several such lines between those for which it waits, which take them along: alone,
        each would have the disk write for nothing, and hold up all others that wait for it.
        """
        self._flush()
        if self._syncs_later:  # and has not begun: it takes these lines along
            return
        self._syncs_later, before = True, self._later
        sync = threading.Thread(target=self._sync_later, args=(before,), name="faultrun-journal", daemon=True)
        try:
            sync.start()
        except RuntimeError:  # there are as many processes as there may be: what is waited for is done, too
            self._syncs_later = False
            self.sync()
            return
        self._later = sync

    def _sync_later(self, before: threading.Thread | None) -> None:
        self._closing.wait(self._soon_s)
        if before is not None:
            before.join()
        self._syncs_later = False
        if not self._all_synced:
            self._sync()

    def _sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._unsynced_why = f"journal not synced: {error.strerror}"

    def close(self) -> None:
        """Write what is left and let go of the file."""
        self._closing.set()
        if self._later is not None:
            self._later.join()
        self.sync()
        os.close(self._fd)

    def _flush(self) -> None:
        while self._unwritten:
            if (self._is_removed or not self._lost_why) and not self.keep_place() and self._is_removed:
                self._unwritten_why = f"journal not written: {self._lost_why}"
                return
            try:
                written = os.write(self._fd, self._unwritten)
            except OSError as error:
                self._unwritten_why = f"journal not written: {error.strerror}"
                return
            self._unwritten = self._unwritten[written:]
            self._all_synced = False
        self._unwritten_why = ""

    def _write_again(self) -> None:
        """Write all lines of the file that was removed, which we still have open, under its name again."""
        self._begin_again()
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            lines = memoryview(self._own.read_bytes())
            while lines:
                lines = lines[os.write(fd, lines) :]
            os.dup2(fd, self._fd, inheritable=False)
        except OSError:
            self._path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        self._all_synced = False


def line_of(event: Event, step: Step, stamp: Mapping[str, str]) -> dict[str, Any]:
    """What a line says beside its number and wall-clock time; ``journal.read`` turns it back into the event.

    ``why`` is the decision's reason. An event's own ``why`` is kept as ``because``.
    """
    body = encode(event)
    fields = {name: value for name, value in body.items() if name not in _PLACED}
    if "why" in body:
        fields[BECAUSE] = body["why"]
    return {
        "run_s": event.at_s,
        "incarnation": event.incarnation,
        "event": body[TAG],
        **fields,
        **{name: value for name, value in stamp.items() if name not in body},
        "phase": step.state.phase.value,
        "actions": [encode(action) for action in step.actions],
        "why": step.why,
    }


def utc_now() -> str:
    """Wall-clock time as ISO 8601 with milliseconds, for people; order comes from ``seq``."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
