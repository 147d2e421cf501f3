"""What the user has, before and after: a digest of each file, so that it need not be believed."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

_WHOLE_BYTES, _END_BYTES = 32 << 20, 1 << 20
_MOST_FILES, _MOST_BYTES = 100_000, 2 << 30

_Inode = tuple[int, int]
"""Device and inode."""
Marks = Mapping[str, str]
"""By path, what a file is: any change to it changes this text."""


def marks_of(places: Iterable[str], besides: frozenset[_Inode] = frozenset()) -> Marks:
    """The mark of every file and folder under ``places``; what is not there has none, nor have ``besides``.

    A file of more than 32 MiB, and any after the first 2 GiB, is told by its stamps, among them the time of
    its last change, which no program can set, and by its first and last MiB.
    """
    absolute = dict.fromkeys(str(Path(place).absolute()) for place in places)
    return {path: mark for path, mark in _marks(absolute) if not besides or _identity(path) not in besides}


def own_streams() -> frozenset[_Inode]:
    """The files that a shell leads our own stdout and stderr to: what they gain is what we say."""
    found: set[_Inode] = set()
    for descriptor in (1, 2):
        with suppress(OSError):
            info = os.fstat(descriptor)
            if stat.S_ISREG(info.st_mode):
                found.add((info.st_dev, info.st_ino))
    return frozenset(found)


def changed(before: Marks, after: Marks) -> tuple[str, ...]:
    """The paths that were changed, made or removed between the two."""
    return tuple(path for path in sorted({*before, *after}) if before.get(path) != after.get(path))


def _marks(places: Iterable[str]) -> Iterator[tuple[str, str]]:
    read_bytes = 0
    for path in islice(chain.from_iterable(map(_below, places)), _MOST_FILES):
        mark, size_bytes = _mark(path, whole=read_bytes < _MOST_BYTES)
        read_bytes += size_bytes
        if mark:
            yield path, mark


def _identity(path: str) -> _Inode | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _below(place: str) -> Iterator[str]:
    yield place
    if not Path(place).is_symlink():
        for folder, folders, files in os.walk(place):
            yield from (f"{folder}/{name}" for name in sorted((*folders, *files)))


def _mark(path: str, *, whole: bool) -> tuple[str, int]:
    """Its mark, and how much of it was read for that; empty where nothing is."""
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            return f"link to {Path(path).readlink()}", 0
        if not stat.S_ISREG(info.st_mode):
            return f"{info.st_mode:o}", 0
        whole = whole and info.st_size <= _WHOLE_BYTES
        digest = _whole(Path(path)) if whole else _ends(Path(path), info)
    except FileNotFoundError:
        return "", 0
    except OSError as error:
        return f"cannot be read: {error.strerror}", 0
    return f"{info.st_mode:o} {info.st_size} {digest}", min(info.st_size, _WHOLE_BYTES)


def _whole(path: Path) -> str:
    with path.open("rb") as file:
        return _digest(iter(lambda: file.read(_END_BYTES), b""))


def _ends(path: Path, info: os.stat_result) -> str:
    with path.open("rb") as file:
        first = file.read(_END_BYTES)
        file.seek(max(0, info.st_size - _END_BYTES))
        stamps = f"{info.st_ino} {info.st_mtime_ns} {info.st_ctime_ns}".encode()
        return _digest([stamps, first, file.read(_END_BYTES)])


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
