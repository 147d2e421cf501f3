"""The log_dir: claimed by one run at a time, continued if that was cut off, moved aside if it had ended."""

import fcntl
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultrun.errors import LogDirError
from faultrun.journal.append import FILE_NAME
from faultrun.journal.durable import replace_durably
from faultrun.journal.read import Past, replay
from faultrun.model.run import RunState

RECORD = "run.json"
_LOCK = ".lock"
_RUNS = "runs"
_PROBE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A log_dir that is ours. ``past`` is None for a new run; ``note`` says what a person should know.

    ``before`` is where an ended run was moved to, None when there was none.
    """

    path: Path
    past: Past | None
    run_id: str
    note: str = ""
    before: Path | None = None

    @property
    def journal(self) -> Path:
        """Path of the journal."""
        return self.path / FILE_NAME


def claim(path: Path, start: RunState, run_id: str) -> Claimed:
    """Lock ``path`` for this process and see what lies in it.

    ``start`` is the state that a new run would begin with. Raises
    LogDirError when the folder cannot be written or belongs to a living run.
    """
    make(path)
    _lock(path)
    journal = path / FILE_NAME
    if not journal.exists():
        return Claimed(path=path, past=None, run_id=run_id)
    past = replay(journal, start)
    old_id = past.run_id or str(read_record(path).get("run_id") or run_id)
    if past.state.done and past.state.stop is None:
        where = _move_aside(path, old_id)
        note = f"the run before had ended; it is now in {where}"
        return Claimed(path=path, past=None, run_id=run_id, note=note, before=where)
    if past.state.plan is None and not past.boots:
        return Claimed(path=path, past=None, run_id=run_id)
    note = f"going on with run {old_id} after incarnation {past.state.incarnation}"
    return Claimed(path=path, past=past, run_id=old_id, note=f"{note} ({past.torn})" if past.torn else note)


def make(path: Path) -> None:
    """Make the folder and prove that it can be written. LogDirError with the reason when it cannot."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".writable.{os.getpid()}"
        try:
            probe.write_bytes(bytes(_PROBE_BYTES))  # an empty file fits onto a full disk
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise LogDirError(
            f"cannot write to the log_dir {path}",
            because=str(error.strerror or error),
            hint="--log_dir=DIR with a folder that this user may write",
        ) from error


def read_record(path: Path) -> dict[str, Any]:
    """``run.json`` of a log_dir; empty when there is none that can be read."""
    try:
        record = json.loads((path / RECORD).read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Replace ``run.json`` in one step, also for a machine that loses its power."""
    replace_durably(path / RECORD, (json.dumps(record, indent=2) + "\n").encode())


_held: list[int] = []


def _lock(path: Path) -> None:
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        record = read_record(path)
        raise LogDirError(
            f"the log_dir {path} is in use by another run",
            because=f"run {record.get('run_id', '?')} (pid {record.get('pid', '?')}) holds its lock",
            hint=f"--log_dir=OTHER, or end that run: faultrun stop --log_dir {path}",
        ) from error
    _held.append(descriptor)  # the kernel lets go of it when this process ends, however it ends


def _move_aside(path: Path, run_id: str) -> Path:
    """Move everything but the lock and older runs to ``runs/<run_id>``; nothing is overwritten."""
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in run_id).lstrip(".") or "run"
    target = path / _RUNS / name
    number = 2
    while target.exists():
        target = path / _RUNS / f"{name}_{number}"
        number += 1
    target.mkdir(parents=True)
    for entry in sorted(path.iterdir()):
        if entry.name in (_LOCK, _RUNS):
            continue
        with suppress(OSError):
            shutil.move(entry, target / entry.name)
    return target
