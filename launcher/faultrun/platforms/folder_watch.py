"""What programs do with the files below some folders, as inotify(7) tells it without privileges.

A load is IN_CLOSE_NOWRITE, a save IN_CLOSE_WRITE, IN_MOVED_TO, or IN_CREATE of a second name for a file; a
symbolic link shows under its target's name. The kernel names no process. What another machine writes to a
network file system is not told.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from faultrun.files import Inotify, is_open_for_writing

_IN_CLOSE_WRITE, _IN_CLOSE_NOWRITE = 0x8, 0x10
_IN_MOVED_FROM, _IN_MOVED_TO = 0x40, 0x80
_IN_CREATE, _IN_DELETE = 0x100, 0x200
_IN_Q_OVERFLOW, _IN_IGNORED = 0x4000, 0x8000
_IN_ONLYDIR, _IN_ISDIR = 0x01000000, 0x40000000
_WRITES = _IN_CLOSE_WRITE | _IN_MOVED_TO | _IN_MOVED_FROM | _IN_CREATE | _IN_DELETE | _IN_ONLYDIR
MOST_WATCHES = 512
_MOST_BESIDE, _MOST_LISTED, _MOST_MOVES = 4096, 1000, 64
"""Changes beside the roots that are listened to, names that are listed of a folder there, halves of moves."""
_MOST_BEGUN = 64


class FileUse(Enum):
    """What was done with a file."""

    READ = "read"
    WRITTEN = "written"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class FileSeen:
    """One file of a watched folder, and what was done with it; where it ``was`` before a move."""

    path: str
    use: FileUse
    was: str = ""


def folders_beside(arguments: Iterable[str]) -> list[str]:
    """Where a script may save, too: the working directory, and the folders that it is given by name."""
    named = (one.rpartition("=")[2] for one in arguments)
    return [os.getcwd(), *filter(os.path.isdir, named)]  # noqa: PTH109


class FolderWatch:
    """Watches ``roots`` and all folders below them, those that do not exist yet as they appear.

    ``fd`` is to be polled; it is -1 without inotify. ``whole`` is False once something may have been missed:
    there is no inotify, a folder could not be watched, or the kernel's queue ran over. Hidden folders are not
    entered. Of ``beside`` only writes are told, as far as a few watches go, until ``leave_beside``.
    """

    def __init__(self, roots: Iterable[str], *, beside: Iterable[str] = (), most: int = MOST_WATCHES) -> None:
        self.roots = tuple(roots)
        self._real = {os.path.realpath(root): root for root in self.roots}
        self._beside = tuple(dict.fromkeys(map(os.path.realpath, beside)))
        self._heard_beside = 0
        self._most = most
        self._inotify = Inotify()
        self.fd = self._inotify.fd
        self.whole = self.fd >= 0
        self._folders: dict[int, str] = {}
        self._reads = False
        self._moves: dict[int, str] = {}
        self._begun: dict[str, None] = {}

    def begin(self, *, since_ns: int = 0) -> list[FileSeen]:
        """Watch all folders that are there now; what was written in them after ``since_ns`` (Unix time)."""
        found = []
        for root in (*self._real, *self._beside):
            for path in self._enter(root):
                with suppress(OSError):
                    if 0 < since_ns <= os.stat(path).st_mtime_ns:  # noqa: PTH116
                        found.append(FileSeen(self._as_given(path), FileUse.WRITTEN))
        return found

    def leave_beside(self) -> None:
        """Watch the roots alone."""
        self._beside = ()
        for watch, folder in tuple(self._folders.items()):
            if not self._wanted(folder):
                del self._folders[watch]
                self._inotify.remove(watch)

    def tell_reads(self, reads: bool) -> None:
        """Whether loads are told, too, from now on."""
        if reads is not self._reads:
            self._reads = reads
            for folder in filter(self._is_below_root, tuple(self._folders.values())):
                self._watch(folder)

    def seen(self) -> Iterator[FileSeen]:
        """What was done since the last call, in its order. Never blocks."""
        yield from self._heard()
        # By link(2) a file gets a name without being closed. That one is closed is queued before it is free.
        named = [*filter(_is_whole, self._begun)] if not self._reads else []
        yield from self._heard() if named else ()
        for path in (one for one in named if one in self._begun):
            del self._begun[path]
            yield FileSeen(path, FileUse.WRITTEN)

    def _heard(self) -> Iterator[FileSeen]:
        for watch, mask, move, name in self._inotify.changes():
            if mask & _IN_Q_OVERFLOW:
                self.whole = False
            if (folder := self._folders.get(watch)) is None or mask & _IN_Q_OVERFLOW:
                continue
            if mask & _IN_IGNORED:
                self._folders.pop(watch, None)
                continue
            if not self._is_below_root(folder):
                self._heard_beside += 1
                if self._heard_beside > _MOST_BESIDE:
                    self.leave_beside()
            path = f"{folder}/{os.fsdecode(name)}"
            was = self._moved(mask, move, path)
            if mask & _IN_ISDIR:
                if mask & (_IN_CREATE | _IN_MOVED_TO):
                    yield from self._appeared(path, was)
                continue
            path = self._as_given(path)
            self._begins(mask, path)
            if mask & (_IN_CLOSE_WRITE | _IN_MOVED_TO):
                yield FileSeen(path, FileUse.WRITTEN, self._as_given(was))
            elif mask & (_IN_DELETE | _IN_MOVED_FROM):
                yield FileSeen(path, FileUse.GONE)
            elif mask & _IN_CLOSE_NOWRITE:
                yield FileSeen(path, FileUse.READ)

    def _begins(self, mask: int, path: str) -> None:
        """Keep the newest names that were made and by which nothing was written yet."""
        if mask & _IN_CREATE:
            self._begun = dict.fromkeys([*self._begun, path][-_MOST_BEGUN:])
        elif not mask & _IN_CLOSE_NOWRITE:
            self._begun.pop(path, None)

    def _moved(self, mask: int, move: int, path: str) -> str:
        """Where ``path`` was, at the second half of a move between folders that are watched."""
        if mask & _IN_MOVED_FROM:
            self._moves = {**self._moves, move: path} if len(self._moves) < _MOST_MOVES else {move: path}
        return self._moves.pop(move, "") if mask & _IN_MOVED_TO else ""

    def close(self) -> None:
        """Let go of the kernel's object."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = self._inotify.fd = -1

    def _appeared(self, folder: str, was: str) -> Iterator[FileSeen]:
        """What lies in a new folder was written before it was watched, or moved with it."""
        if self._wanted(folder):
            for path in self._enter(folder):
                before = self._as_given(was + path[len(folder) :]) if was else ""
                yield FileSeen(self._as_given(path), FileUse.WRITTEN, before)

    def _as_given(self, path: str) -> str:
        """``path`` below a root as that was given, whatever links lead there."""
        real = next((one for one in self._real if path.startswith(f"{one}/")), None)
        return path if real is None else self._real[real] + path[len(real) :]

    def _is_below_root(self, folder: str) -> bool:
        return _is_below(folder, self._real)

    def _wanted(self, folder: str) -> bool:
        """Whether it lies below a root, or beside them, or leads to one that does not exist yet."""
        below = _is_below(folder, (*self._real, *self._beside))
        above = any(root.startswith(f"{folder}/") for root in self._real)
        hidden = os.path.basename(folder).startswith((".", "__"))  # noqa: PTH119
        return folder in self._real or (below and not hidden) or above

    def _enter(self, folder: str) -> list[str]:
        """Watch ``folder`` and all below, or the nearest above one that is not there; the files in them."""
        pending, files = [folder], list[str]()
        while pending and self.fd >= 0:
            path = pending.pop(0)
            while not os.path.isdir(path) and any(root.startswith(path) for root in self._real):  # noqa: PTH112
                path = os.path.dirname(path)  # noqa: PTH120
            if not self._watch(path):
                continue
            most = None if self._is_below_root(path) else _MOST_LISTED
            with suppress(OSError), os.scandir(path) as found:
                for one in islice(found, most):
                    if one.is_dir(follow_symlinks=False):
                        pending += [one.path] if self._wanted(one.path) else []
                    elif one.is_file(follow_symlinks=False):
                        files.append(one.path)
        return files

    def _watch(self, folder: str) -> bool:
        known, ours = folder in self._folders.values(), self._is_below_root(folder)
        if not known and len(self._folders) >= (self._most if ours else self._most // 4):
            self.whole = self.whole and not ours
            return False
        watch = self._inotify.add(folder, _WRITES | (_IN_CLOSE_NOWRITE if self._reads and ours else 0))
        if watch < 0:
            self.whole = self.whole and not (ours and os.path.isdir(folder))  # noqa: PTH112
            return False
        self._folders[watch] = folder
        return True


def _is_whole(path: str) -> bool:
    """Whether a regular file has contents and no writer; False where the file system does not tell."""
    with suppress(OSError):
        status = os.lstat(path)
        return stat.S_ISREG(status.st_mode) and status.st_size > 0 and is_open_for_writing(path) is False
    return False


def _is_below(folder: str, roots: Iterable[str]) -> bool:
    return any(folder == root or folder.startswith(f"{root}/") for root in roots)
