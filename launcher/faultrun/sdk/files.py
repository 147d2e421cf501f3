"""Files that are there whole or not at all: tmp, fsync, a name of their own; the manifest last.

``<file>.manifest.json`` (described in ``checkpoints/gasp_manifest.py``) says
whose state the file holds, its step and its digest. A file that is already
there is never written over. Knows no framework.
"""

import contextlib
import json
import os
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
    """Where a worker's own saves go.

    ``keep`` is how many dying-gasp files each rank keeps; ``replica_group``
    are the ranks that hold the same state as this one, by default all
    (pure data parallel).
    """

    directory: Path
    keep: int = 2
    replica_group: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ValueError("keep must be at least 1: the newest gasp is the one that is needed")


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

    def prune(self) -> None:
        """Drop this run's older gasps of this rank, and what dead writers of this rank left half written.

        A file that cannot be removed stays: it costs space, not correctness.
        """
        gasps = [path for path in self.folder.directory.rglob(f"*{MANIFEST_SUFFIX}") if self._is_ours(path)]
        gasps.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        resumed_from = self.session.point.path if self.session.point is not None else ""
        for manifest in gasps[self.folder.keep :]:
            path = manifest.with_name(manifest.name.removesuffix(MANIFEST_SUFFIX))
            if str(path) != resumed_from:
                with contextlib.suppress(OSError):
                    path.unlink(
                        missing_ok=True
                    )  # first: without its manifest it would pass for a user's file
                    manifest.unlink(missing_ok=True)
        for left in self.folder.directory.rglob(f".tmp.rank{self.session.rank}_*"):
            with contextlib.suppress(OSError):
                left.unlink()

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

    def _is_ours(self, manifest: Path) -> bool:
        try:
            fields: Any = json.loads(manifest.read_bytes())
        except (OSError, ValueError):
            return False
        return isinstance(fields, dict) and (
            fields.get("kind") == Kind.GASP.value
            and fields.get("run_id") == self.session.run_id
            and fields.get("rank") == self.session.rank
        )


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
