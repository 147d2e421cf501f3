"""Reading a configuration and replacing it so that any crash leaves the old file or the new one.

One writer at a time, over all processes that ask.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from faultrun.configs.target import not_there
from faultrun.errors import ConfigError
from faultrun.files import sync_folder
from faultrun.locks import Busy, held

MAX_BYTES = 10_000_000
"""A configuration is written by people; what is larger is something else."""

TRIES = 5
"""Attempts to edit a file that another program keeps writing."""

WAIT_S = 10.0

_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # NONBLOCK: a pipe swapped in must not hang us
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Disk:
    """Every call by which files change: tests die at each of them in turn."""

    own = staticmethod(os.fchown)
    mode = staticmethod(os.fchmod)
    close = staticmethod(os.close)

    def create(self, path: Path) -> int:
        """Open a new file for writing, readable by its owner only."""
        return os.open(path, _CREATE_FLAGS, 0o600)

    def write(self, descriptor: int, data: bytes) -> int:
        """Write some of ``data``; return how much."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Wait until the file is on the disk."""
        os.fsync(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Rename over ``target``, atomically."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Unlink a file; nothing happens if it is not there."""
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in a directory are on the disk."""
        sync_folder(path)

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it, where missing."""
        path.mkdir(parents=True, exist_ok=True)


LOCAL = Disk()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What a replaced file keeps: permission bits, and (user, group) unless these are to be ours."""

    mode: int
    owner: tuple[int, int] | None = None

    def of_a_copy(self) -> "Attributes":
        """The attributes of a copy of ours: only users that may read the file itself may read it.

        Only root can give it to the file's owner. Where the group is another, it may do what all users may.
        """
        if self.owner is None or os.geteuid() == 0:
            return self
        mode = self.mode | stat.S_IRUSR
        if self.owner[1] != os.getegid():
            mode &= ~(stat.S_IRWXG ^ (mode & stat.S_IRWXO) << 3)
        return Attributes(mode=mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSnapshot:
    """A file's bytes, whose they are, and a mark that differs once it was written."""

    data: bytes
    attributes: Attributes
    mark: tuple[int, ...]


def snapshot(path: Path) -> FileSnapshot:
    """Read a whole configuration file, as it was between two writings.

    ConfigError if it is missing, a directory, not a regular file, unreadable,
    over MAX_BYTES, or written anew all the time.
    """
    for _ in range(TRIES):
        if (seen := _read(path)) is not None:
            return seen
    raise restless(path)


def still(path: Path, seen: FileSnapshot) -> bool:
    """Whether ``path`` is the same unwritten file as when ``seen`` was read."""
    try:
        return _mark(path.stat()) == seen.mark
    except FileNotFoundError:
        return False


def replace_file(disk: Disk, path: Path, data: bytes, attributes: Attributes) -> None:
    """Make ``data`` the content of ``path``: beside it, synced, renamed over it, directory synced.

    The caller holds the file's lock, so an unfinished file beside it is a dead
    writer's and is removed. OSError where the place does not allow it; the old file then stays.
    """
    fresh = path.with_name(f".{path.name}.faultrun.tmp")
    disk.remove(fresh)
    try:
        _write_new(disk, fresh, data, attributes)
        disk.replace(fresh, path)
    except OSError:
        disk.remove(fresh)
        raise
    disk.sync_directory(path.parent)


def restless(file: Path) -> ConfigError:
    """Refuse a file that changed under every attempt to edit it."""
    because = f"it was written by another program during each of {TRIES} attempts to edit it"
    return ConfigError(f"{file} keeps changing", because=because, hint=f"find the writer: fuser -v {file}")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """An OSError while writing becomes a ConfigError; the old file stands."""
    try:
        yield
    except OSError as error:
        because = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        hint = f"check space and permissions: df {path.parent}; ls -ld {path.parent}"
        raise ConfigError(f"{path} could not be written", because=because, hint=hint) from error


@contextmanager
def locked(path: Path, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold ``path`` against other writers that ask. ConfigError when it stays held for ``wait_s``."""
    lock = path.with_name(f".{path.name}.faultrun.lock")
    with ExitStack() as taken:
        try:
            taken.enter_context(held(lock, wait_s=wait_s))
        except Busy as busy:
            raise ConfigError(
                f"{path} is being changed by another program",
                because=f"{busy.holder} has held {lock.name} for {wait_s:g} s",
                hint=f"fuser {lock}",
            ) from None
        yield


def _read(path: Path) -> FileSnapshot | None:
    """Read a whole file; None if it was written meanwhile."""
    try:
        descriptor = os.open(path, _READ_FLAGS)
        try:
            before = os.fstat(descriptor)
            _check_kind(path, before)
            data = _all_of(descriptor)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise not_there(path) from error
    except OSError as error:
        because = error.strerror or str(error)
        raise ConfigError(f"{path} cannot be read", because=because, hint=f"ls -l {path}") from error
    if _mark(before) != _mark(after) or len(data) != after.st_size:
        return None
    attributes = Attributes(mode=stat.S_IMODE(after.st_mode), owner=(after.st_uid, after.st_gid))
    return FileSnapshot(data=data, attributes=attributes, mark=_mark(after))


def _all_of(descriptor: int) -> bytes:
    pieces: list[bytes] = []
    left = MAX_BYTES + 1
    while left and (piece := os.read(descriptor, left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _write_new(disk: Disk, path: Path, data: bytes, attributes: Attributes) -> None:
    descriptor = disk.create(path)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[disk.write(descriptor, bytes(rest)) :]
        status = os.fstat(descriptor)
        if attributes.owner and attributes.owner != (status.st_uid, status.st_gid):
            disk.own(descriptor, *attributes.owner)
        disk.mode(descriptor, attributes.mode)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)


def _check_kind(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        what, because = "is a directory", "a value is set in one file"
        hint = f"name a file in it: {path}/NAME"
    elif not stat.S_ISREG(status.st_mode):
        what, because = "is not a file", "it is a device, pipe or socket"
        hint = "name the configuration file"
    elif status.st_size > MAX_BYTES:
        what = "is too large to be a configuration"
        because = f"it has {status.st_size:,} bytes, the limit is {MAX_BYTES:,}"
        hint = "name the configuration file itself"
    else:
        return
    raise ConfigError(f"{path} {what}", because=because, hint=hint)


def _mark(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
