"""What programs do with the files below some folders, as inotify(7) tells it without privileges.

A load is IN_CLOSE_NOWRITE, a save IN_CLOSE_WRITE or IN_MOVED_TO; a link shows under its target's name. The
kernel names no process. What another machine writes to a network file system is not told.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from faultrun.files import Inotify

_IN_CLOSE_WRITE, _IN_CLOSE_NOWRITE = 0x8, 0x10
_IN_MOVED_FROM, _IN_MOVED_TO = 0x40, 0x80
_IN_CREATE, _IN_DELETE = 0x100, 0x200
_IN_Q_OVERFLOW, _IN_IGNORED = 0x4000, 0x8000
_IN_ONLYDIR, _IN_ISDIR = 0x01000000, 0x40000000
_WRITES = _IN_CLOSE_WRITE | _IN_MOVED_TO | _IN_MOVED_FROM | _IN_CREATE | _IN_DELETE | _IN_ONLYDIR
MOST_WATCHES = 512


class FileUse(Enum):
    """What was done with a file."""

    READ = "read"
    WRITTEN = "written"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class FileSeen:
    """One file of a watched folder, and what was done with it."""

    path: str
    use: FileUse


class FolderWatch:
    """Watches ``roots`` and all folders below them, those that do not exist yet as they appear.

    ``fd`` is to be polled; it is -1 without inotify. ``whole`` is False once something may have been missed:
    there is no inotify, a folder could not be watched, or the kernel's queue ran over. Hidden folders are not
    entered.
    """

    def __init__(self, roots: Iterable[str], *, most: int = MOST_WATCHES) -> None:
        self.roots = tuple(roots)
        self._real = {os.path.realpath(root): root for root in self.roots}
        self._most = most
        self._inotify = Inotify()
        self.fd = self._inotify.fd
        self.whole = self.fd >= 0
        self._folders: dict[int, str] = {}
        self._reads = False

    def begin(self) -> None:
        """Watch all folders that are there now."""
        for root in self._real:
            self._enter(root)

    def tell_reads(self, reads: bool) -> None:
        """Whether loads are told, too, from now on."""
        if reads is not self._reads:
            self._reads = reads
            for folder in tuple(self._folders.values()):
                self._watch(folder)

    def seen(self) -> Iterator[FileSeen]:
        """What was done since the last call, in its order. Never blocks."""
        for watch, mask, name in self._inotify.changes():
            if mask & _IN_Q_OVERFLOW:
                self.whole = False
            folder = self._folders.get(watch)
            if folder is None or mask & _IN_Q_OVERFLOW:
                continue
            if mask & _IN_IGNORED:
                self._folders.pop(watch, None)
                continue
            path = f"{folder}/{os.fsdecode(name)}"
            if mask & _IN_ISDIR:
                if mask & (_IN_CREATE | _IN_MOVED_TO):
                    yield from self._appeared(path)
                continue
            path = self._as_given(path)
            if mask & (_IN_CLOSE_WRITE | _IN_MOVED_TO):
                yield FileSeen(path, FileUse.WRITTEN)
            elif mask & (_IN_DELETE | _IN_MOVED_FROM):
                yield FileSeen(path, FileUse.GONE)
            elif mask & _IN_CLOSE_NOWRITE:
                yield FileSeen(path, FileUse.READ)

    def close(self) -> None:
        """Let go of the kernel's object."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = self._inotify.fd = -1

    def _appeared(self, folder: str) -> Iterator[FileSeen]:
        """What lies in a new folder was written before anybody watched it."""
        if self._wanted(folder):
            for path in self._enter(folder):
                yield FileSeen(self._as_given(path), FileUse.WRITTEN)

    def _as_given(self, path: str) -> str:
        """``path`` below a root as that was given, whatever links lead there."""
        real = next((one for one in self._real if path.startswith(f"{one}/")), None)
        return path if real is None else self._real[real] + path[len(real) :]

    def _wanted(self, folder: str) -> bool:
        """Whether it lies below a root, or leads to one that does not exist yet."""
        below = any(folder == root or folder.startswith(f"{root}/") for root in self._real)
        above = any(root.startswith(f"{folder}/") for root in self._real)
        return (below and not os.path.basename(folder).startswith(".")) or above  # noqa: PTH119

    def _enter(self, folder: str) -> list[str]:
        """Watch ``folder`` and all below, or the nearest above one that is not there; the files in them."""
        pending, files = [folder], list[str]()
        while pending and self.fd >= 0:
            path = pending.pop()
            while not os.path.isdir(path) and any(root.startswith(path) for root in self._real):  # noqa: PTH112
                path = os.path.dirname(path)  # noqa: PTH120
            if not self._watch(path):
                continue
            with suppress(OSError), os.scandir(path) as found:
                for one in found:
                    if one.is_dir(follow_symlinks=False):
                        pending += [one.path] if self._wanted(one.path) else []
                    elif one.is_file(follow_symlinks=False):
                        files.append(one.path)
        return files

    def _watch(self, folder: str) -> bool:
        known = folder in self._folders.values()
        if not known and len(self._folders) >= self._most:
            self.whole = False
            return False
        watch = self._inotify.add(folder, _WRITES | (_IN_CLOSE_NOWRITE if self._reads else 0))
        if watch < 0:
            self.whole = self.whole and not os.path.isdir(folder)  # noqa: PTH112
            return False
        self._folders[watch] = folder
        return True
