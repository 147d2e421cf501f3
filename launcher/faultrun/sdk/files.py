"""Files that are there whole or not at all: tmp, fsync, a name of their own; the manifest last.

``<file>.manifest.json`` (described in ``checkpoints/gasp_manifest.py``) says
whose state the file holds, its step and its digest. A file that is already
there is never written over. Knows no framework.
"""

import contextlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from faultrun.model.checkpoint import Kind
from faultrun.sdk.session import Session

MANIFEST_SUFFIX = ".manifest.json"
SCHEMA = 1

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Where a worker's own saves go: ``directory`` as it is now, whatever becomes the working directory.

    ``keep`` is how many dying-gasp files each rank keeps; ``replica_group``
    are the ranks that hold the same state as this one, by default all
    (pure data parallel). Checked where saves are prepared (``preflight``).
    """

    directory: str | os.PathLike[str]
    keep: int = 2
    replica_group: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.directory, str | os.PathLike):
            object.__setattr__(self, "directory", Path(self.directory).absolute())

    @property
    def path(self) -> Path:
        """The directory, absolute. TypeError: it is none."""
        return Path(self.directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the manifest says about the state in a file. ``step`` is global."""

    step: int
    epoch: int | None = None
    step_in_epoch: int | None = None
    kind: Kind = Kind.GASP


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A file that is whole on the disk, its manifest too. ``digest`` is ``crc32:<8 hex digits>``.

    ``replica_group`` are the ranks that can resume from it; empty: all.
    """

    path: str
    step: int
    size_bytes: int
    took_s: float
    digest: str
    replica_group: tuple[int, ...] = ()


Names = Callable[[int], Path]
"""The file to write, from 0; higher numbers are asked for while those names are taken."""


def numbered(path: Path) -> Names:
    """``a.pt``, ``a.1.pt``, ``a.2.pt`` ..."""
    return lambda number: path if number == 0 else path.with_name(f"{path.stem}.{number}{path.suffix}")


class Sink:
    """A file open for writing that counts and digests what passes (CRC-32: faster than any disk)."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        self._crc = 0
        self.size_bytes = 0

    def write(self, data: "bytes | bytearray | memoryview") -> int:
        """Write all of ``data``; the number of its bytes. OSError as the file system says."""
        view = memoryview(data).cast("B")
        size_bytes = len(view)
        self._crc = zlib.crc32(view, self._crc)
        self.size_bytes += size_bytes
        while len(view):
            view = view[self._file.write(view) :]
        return size_bytes

    def flush(self) -> None:
        """Nothing is held back."""

    @property
    def digest(self) -> str:
        """Of everything written so far."""
        return f"crc32:{self._crc:08x}"

    def finish(self) -> None:
        """Bring it to the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close; brings nothing anywhere."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class Shelf:
    """Writes the saves of one rank."""

    folder: Folder
    session: Session

    def save(self, names: Names, stamp: Stamp, fill: Callable[[Sink], object]) -> Saved:
        """Have ``fill`` write the content through a digesting sink. Whatever it raises comes out."""
        began_s = time.monotonic()
        partial = self._partial(names(0))
        try:
            with contextlib.closing(Sink(partial)) as sink:
                fill(sink)
                sink.finish()
            path = _publish(partial, names)
            saved = self.saved(path, stamp.step, sink.size_bytes, sink.digest)
            self._write_manifest(path, stamp, saved)
        finally:
            partial.unlink(missing_ok=True)
        return _timed(saved, began_s)

    def save_by_path(self, names: Names, stamp: Stamp, fill: Callable[[str], object]) -> Saved:
        """The same for a writer that wants a file name, with the final suffix: the digest is read back."""
        began_s = time.monotonic()
        partial = self._partial(names(0))
        try:
            fill(str(partial))
            size_bytes, digest = _digest_of(partial)
            path = _publish(partial, names)
            saved = self.saved(path, stamp.step, size_bytes, digest)
            self._write_manifest(path, stamp, saved)
        finally:
            partial.unlink(missing_ok=True)
        return _timed(saved, began_s)

    def saved(self, path: Path, step: int, size_bytes: int, digest: str = "") -> Saved:
        """What is told of a file that is whole; it took no time if it was there."""
        group = self.folder.replica_group
        return Saved(
            path=str(path),
            step=step,
            size_bytes=size_bytes,
            took_s=0.0,
            digest=digest,
            replica_group=group,
        )

    def prune(self, newest: Saved) -> None:
        """Drop this run's older gasps of this rank, and what dead writers of this rank left half written.

        Older is by life and step, whatever the clock says; never ``newest``, nor what this life began from.
        A file that cannot be removed stays: it costs space, not correctness.
        """
        point = self.session.point
        kept = {_identity(newest.path), _identity(point.path if point is not None else "")}
        others = [one for one in self._gasps() if _identity(one.path) != _identity(newest.path)]
        others.sort(key=lambda one: (one.life, one.step), reverse=True)
        for one in others[self.folder.keep - 1 :]:
            if _identity(one.path) not in kept:
                with contextlib.suppress(OSError):  # first: without its manifest it passes for a user's file
                    one.path.unlink(missing_ok=True)
                    _manifest_of(one.path).unlink(missing_ok=True)
        for left in self.folder.path.rglob(f".tmp.rank{self.session.rank}_*"):
            with contextlib.suppress(OSError):
                shutil.rmtree(left) if left.is_dir() else left.unlink()

    def _gasps(self) -> list["_Gasp"]:
        """Those of this run and rank that say whose they are."""
        found = (_told_by(manifest) for manifest in self.folder.path.rglob(f"*{MANIFEST_SUFFIX}"))
        ours = (Kind.GASP.value, self.session.run_id, self.session.rank)
        return [one for one in found if one is not None and (one.kind, one.run_id, one.rank) == ours]

    def _partial(self, path: Path) -> Path:
        _make_directory(path.parent)
        partial = path.with_name(f".tmp.rank{self.session.rank}_{os.getpid()}.{path.name}")
        partial.unlink(missing_ok=True)
        return partial

    def _write_manifest(self, path: Path, stamp: Stamp, saved: Saved) -> None:
        session = self.session
        content = {
            "schema": SCHEMA,
            "path": path.name,
            "kind": stamp.kind.value,
            "step": stamp.step,
            "epoch": stamp.epoch,
            "step_in_epoch": stamp.step_in_epoch,
            "world_size": session.world_size,
            "rank": session.rank,
            "replica_group": list(self.folder.replica_group or range(session.world_size)),
            "size_bytes": saved.size_bytes,
            "digest": saved.digest,
            "run_id": session.run_id,
            "incarnation": session.incarnation,
            "node": session.node,
        }
        partial = self._partial(_manifest_of(path))
        with partial.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(_manifest_of(path))
        _sync_directory(path.parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gasp:
    """A file, as its manifest describes it."""

    path: Path
    kind: str
    run_id: str
    rank: int
    life: int
    step: int


def _told_by(manifest: Path) -> _Gasp | None:
    try:
        fields: Any = json.loads(manifest.read_bytes())
        return _Gasp(
            path=manifest.with_name(manifest.name.removesuffix(MANIFEST_SUFFIX)),
            kind=fields["kind"],
            run_id=fields["run_id"],
            rank=fields["rank"],
            life=int(fields["incarnation"]),
            step=int(fields["step"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _identity(path: str | Path) -> tuple[int, int] | str:
    """Device and inode; the name of what is not there."""
    try:
        info = os.stat(path)  # noqa: PTH116 - "" is the name of nothing
    except OSError:
        return str(path)
    return info.st_dev, info.st_ino


def _publish(partial: Path, names: Names) -> Path:
    """Give the whole file its name: the first that neither a file nor a manifest has."""
    number = 0
    while True:
        path = names(number)
        number += 1
        if path.exists() or _manifest_of(path).exists():
            continue
        try:
            os.link(partial, path)  # unlike rename it cannot hit a file that appeared meanwhile
        except FileExistsError:
            continue
        except OSError:  # a file system without links
            partial.rename(path)
        _sync_directory(path.parent)
        return path


def _timed(saved: Saved, began_s: float) -> Saved:
    return replace(saved, took_s=round(time.monotonic() - began_s, 6))


def _manifest_of(path: Path) -> Path:
    return path.with_name(path.name + MANIFEST_SUFFIX)


def _digest_of(path: Path) -> tuple[int, str]:
    crc = size_bytes = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
            size_bytes += len(block)
        os.fsync(file.fileno())
    return size_bytes, f"crc32:{crc:08x}"


def _make_directory(directory: Path) -> None:
    missing = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for made in reversed(missing):
        made.mkdir(exist_ok=True)
        _sync_directory(made.parent)


def _sync_directory(directory: Path) -> None:
    """Make new names in ``directory`` durable; some network file systems refuse, and need no such thing."""
    with contextlib.suppress(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
