"""Whether files may have changed: inotify where it works, the file's identity where it does not.

A ConfigMap volume is updated by swapping the link ``..data`` to a new folder, a host path is rewritten in
place, and a network file system changes without a word from the kernel. So the folders of the names and of
what they point at are watched, and ``stat`` is asked as well.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from faultrun.files import Inotify

_IN_MODIFY, _IN_CLOSE_WRITE, _IN_MOVED_FROM, _IN_MOVED_TO = 0x2, 0x8, 0x40, 0x80
_IN_CREATE, _IN_DELETE = 0x100, 0x200
_IN_DELETE_SELF, _IN_MOVE_SELF = 0x400, 0x800
_IN_ONLYDIR = 0x01000000
_MASK = (
    _IN_MODIFY | _IN_CLOSE_WRITE | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
    | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
)  # fmt: skip
_SWAPPED = b"..data"

FileIdentity = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime (ns): what an in-place change cannot leave all alike for long."""


class FileWatch:
    """Watches ``files``, which need not exist yet. ``fd`` is to be polled; it is -1 without inotify."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = tuple(files)
        self._inotify = Inotify()
        self.fd = self._inotify.fd
        self._watched: dict[int, str] = {}
        self._names: frozenset[bytes] = frozenset()
        self._seen = self._identities()
        self._arm()

    def touched(self) -> bool:
        """Whether a file may have changed since this was last asked. Never blocks."""
        # Other files in a folder are not our concern; every word of the kernel is to be read.
        told = [name for _, name in self._inotify.events() if name in self._names]
        seen = self._identities()
        if not told and seen == self._seen:
            return False
        self._seen = seen
        self._arm()
        return True

    def close(self) -> None:
        """Let go of the kernel's object."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = self._inotify.fd = -1

    def _identities(self) -> tuple[FileIdentity | None, ...]:
        return tuple(identity_of(file) for file in self._files)

    def _arm(self) -> None:
        """Watch the folders that matter now; a swapped link has made another folder matter."""
        if self.fd < 0:
            return
        targets = [Path(os.path.realpath(file)) for file in self._files]
        self._names = frozenset(os.fsencode(path.name) for path in (*self._files, *targets)) | {_SWAPPED, b""}
        wanted = {str(path.parent) for path in (*self._files, *targets)}
        for watch, folder in list(self._watched.items()):
            if folder not in wanted:
                self._inotify.remove(watch)
                del self._watched[watch]
        for folder in wanted:
            if (watch := self._inotify.add(folder, _MASK)) >= 0:
                self._watched[watch] = folder


def identity_of(file: Path) -> FileIdentity | None:
    """What tells one content of ``file`` from the next without reading it; None while it cannot be seen."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
