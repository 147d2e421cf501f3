"""How much room a folder has, and how fast it takes a small file; a hung file server does not hang us."""

import fcntl
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Space for this user. ``free_inodes`` is None where the file system does not count them."""

    total_bytes: int
    free_bytes: int
    free_inodes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A file that was written, synced, and taken away again.

    ``skew_s`` is how much the file's time is ahead of our clock; ``locks`` is
    whether it could be locked as faultrun locks its log_dir.
    """

    size_bytes: int
    seconds: float
    skew_s: float
    locks: bool

    @property
    def bytes_per_s(self) -> float:
        """Speed of writing, the sync included."""
        return self.size_bytes / max(self.seconds, 1e-6)


def room(folder: Path) -> Room:
    """Ask the file system. OSError if the folder is not there."""
    found = os.statvfs(folder)
    free_inodes = found.f_favail if found.f_files else None
    free_bytes = found.f_bavail * found.f_frsize
    return Room(total_bytes=found.f_blocks * found.f_frsize, free_bytes=free_bytes, free_inodes=free_inodes)


def nearest(path: Path) -> Path:
    """The path itself, or the first folder above it that is there."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def write_sample(folder: Path, *, most_bytes: int, for_s: float, within_s: float) -> Sample:
    """Write up to ``most_bytes`` for about ``for_s`` and sync them. OSError if that fails.

    TimeoutError when the file system has not answered after ``within_s``; its
    call then goes on in the background, and the file may stay behind.
    """
    answers: list[Sample | OSError] = []
    thread = threading.Thread(target=lambda: answers.append(_try(folder, most_bytes, for_s)), daemon=True)
    thread.start()
    thread.join(within_s)
    if not answers:
        raise TimeoutError(f"no answer in {within_s:g} s")
    if isinstance((answer := answers[0]), OSError):
        raise answer
    return answer


def _try(folder: Path, most_bytes: int, for_s: float) -> Sample | OSError:
    path = folder / f".faultrun-doctor-{os.getpid()}"
    try:
        return _write(path, most_bytes, for_s)
    except OSError as error:
        return error
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _write(path: Path, most_bytes: int, for_s: float) -> Sample:
    chunk = os.urandom(_CHUNK_BYTES)  # what compresses well would flatter the file system
    written = 0
    with path.open("xb", buffering=0) as file:
        began = time.monotonic()
        while written < most_bytes and time.monotonic() - began < for_s:
            written += file.write(chunk)
        os.fsync(file.fileno())
        took_s = time.monotonic() - began
        skew_s = os.fstat(file.fileno()).st_mtime - time.time()
        return Sample(size_bytes=written, seconds=took_s, skew_s=skew_s, locks=_locks(file.fileno()))


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
