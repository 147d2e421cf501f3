"""Files as several packages need them: read without disturbing writers, replaced in one step, waited for.

A file that is replaced is old or new, never half, and by a power cut never empty.
"""

import ctypes
import fcntl
import os
import select
import signal
import struct
from collections.abc import Callable, Iterator
from errno import EDQUOT, ENOSPC
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import hashlib

DISK_FULL = (ENOSPC, EDQUOT)
"""What the system says where nothing more can be written for now."""

_LEAN = next(name for name in ("_sha2", "_sha256", "hashlib") if find_spec(name))
sha256: "Callable[..., hashlib._Hash]" = import_module(_LEAN).sha256
"""That of hashlib without OpenSSL, which costs PID 1 four megabytes: Python's own ``random`` does so, too."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_EVENT = struct.Struct("iIII")
_CHUNK = 1 << 16


def text_of(path: Path) -> str:
    """What a small file holds now; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def bytes_from(path: Path, begin: int, most_bytes: int) -> bytes:
    """What a file holds from ``begin`` on, counted from its end if negative; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(begin if begin >= 0 else max(0, end + begin))
            return file.read(most_bytes)
    except OSError:
        return b""


def on_path(program: str, *beside: Path) -> str:
    """The file that ``program`` starts, by PATH and then in folders ``beside``; empty where there is none.

    By hand: ``shutil`` brings half a megabyte of archives into PID 1.
    """
    folders = [Path()] if "/" in program else [*map(Path, os.get_exec_path()), *beside]
    files = (folder / program for folder in folders)
    return next((str(one) for one in files if one.is_file() and os.access(one, os.X_OK)), "")


def is_open_for_writing(path: str) -> bool | None:
    """Whether a process of this machine has ``path`` open for writing: it gets no lease to read it then.

    See fcntl(2), F_SETLEASE; None where the file system knows no leases, or the file is another user's.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # told to who holds a lease: SIGIO would end it
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def readable(within_s: float | None, *fds: int) -> list[int]:
    """Which of ``fds`` can be read, or have ended, as soon as one does; none by then: empty. None: for ever.

    ``select.select`` knows no descriptor above 1023, which many ranks come to.
    """
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(None if within_s is None else within_s * 1000)]


def replace_durably(path: Path, data: bytes) -> None:
    """Make ``data`` the content of ``path`` in one step; return once synced. OSError if it fails."""
    _replace(path, data, synced=True)
    sync_folder(path.parent)


def replace_whole(path: Path, data: bytes) -> None:
    """Replace ``path`` in one step without waiting for the disk: a reader sees the old content or the new."""
    _replace(path, data, synced=False)


def _replace(path: Path, data: bytes, *, synced: bool) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Return once the names in ``folder`` are on the disk. OSError if that cannot be had."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Inotify:
    """The kernel's word about changes, inotify(7). ``fd`` is to be polled; it is -1 where there is none."""

    def __init__(self) -> None:
        self.fd: int = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def add(self, path: str | Path, mask: int) -> int:
        """Watch a file or folder; the watch's number, -1 if that is impossible."""
        watch: int = _LIBC.inotify_add_watch(self.fd, os.fsencode(path), mask)
        return watch

    def remove(self, watch: int) -> None:
        """Watch it no longer."""
        _LIBC.inotify_rm_watch(self.fd, watch)

    def events(self) -> Iterator[tuple[int, bytes]]:
        """The watch, and the name in its folder, of each change since the last call. Never blocks."""
        return ((watch, name) for watch, _, _, name in self.changes())

    def changes(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Watch, mask of what happened, number of a move, and name of each change since the last call."""
        while self.fd >= 0:
            try:
                data = os.read(self.fd, _CHUNK)
            except OSError:
                return
            at = 0
            while at < len(data):
                watch, mask, move, name_bytes = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                yield watch, mask, move, data[at : at + name_bytes].rstrip(b"\0")
                at += name_bytes
