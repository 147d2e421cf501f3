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
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from faultrun.model.checkpoint import Kind
from faultrun.sdk.session import Session

_MANIFEST_SUFFIX = ".manifest.json"
_SCHEMA = 1
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


def folder_of(directory: str | os.PathLike[str] | Folder) -> Folder:
    """A folder as given, or the one for a pure data parallel run in ``directory``."""
    return directory if isinstance(directory, Folder) else Folder(directory=directory)


class Position(NamedTuple):
    """How far a training is: ``step`` is global; ``epoch`` as the script counts; None where it does not.

    ``step_in_epoch``: so many batches of that epoch are consumed.
    """

    step: int = 0
    epoch: int | None = None
    step_in_epoch: int | None = None


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

    def finish(self) -> tuple[int, str]:
        """Bring it to the disk; size and digest of everything that was written."""
        os.fsync(self._file.fileno())
        return self.size_bytes, f"crc32:{self._crc:08x}"

    def close(self) -> None:
        """Close; brings nothing anywhere."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class SaveWriter:
    """Writes the saves of one rank, and drops its old ones."""

    folder: Folder
    session: Session

    @property
    def own_folder(self) -> Path:
        """Where this rank's files go, unless a framework has a place of its own for them."""
        return self.folder.path / f"rank_{self.session.rank}"

    def save(
        self, names: Names, position: Position, fill: Callable[[Sink], object], kind: Kind = Kind.GASP
    ) -> Saved:
        """Have ``fill`` write the content through a digesting sink. Whatever it raises comes out."""

        def write(partial: Path) -> tuple[int, str]:
            with contextlib.closing(Sink(partial)) as sink:
                fill(sink)
                return sink.finish()

        return self._save(names, position, kind, write)

    def save_by_path(
        self, names: Names, position: Position, fill: Callable[[str], object], kind: Kind = Kind.GASP
    ) -> Saved:
        """The same for a writer that wants a file name, with the final suffix: the digest is read back."""

        def write(partial: Path) -> tuple[int, str]:
            fill(str(partial))
            return _digest_of(partial)

        return self._save(names, position, kind, write)

    def _save(
        self, names: Names, position: Position, kind: Kind, write: Callable[[Path], tuple[int, str]]
    ) -> Saved:
        began_s = time.monotonic()
        partial = self._partial(names(0))
        try:
            size_bytes, digest = write(partial)
            path = _publish(partial, names)
            self._write_manifest(
                path, position, {"kind": kind.value, "size_bytes": size_bytes, "digest": digest}
            )
        finally:
            partial.unlink(missing_ok=True)
        return Saved(
            path=str(path),
            step=position.step,
            size_bytes=size_bytes,
            took_s=round(time.monotonic() - began_s, 6),
            digest=digest,
            replica_group=self.folder.replica_group,
        )

    def prune(self, newest: Saved) -> None:
        """Drop this run's older gasps of this rank, and what dead writers of this rank left half written.

        Older is by life and step, whatever the clock says; never ``newest``, nor what this life began from.
        A file that cannot be removed stays: it costs space, not correctness.
        """
        point = self.session.point
        kept = {_identity(newest.path), _identity(point.path if point is not None else "")}
        others = [path for path in self._gasps() if _identity(path) != _identity(newest.path)]
        for path in others[self.folder.keep - 1 :]:
            if _identity(path) not in kept:
                with contextlib.suppress(OSError):  # first: without its manifest it passes for a user's file
                    path.unlink(missing_ok=True)
                    _manifest_of(path).unlink(missing_ok=True)
        for left in self.folder.path.rglob(f".tmp.rank{self.session.rank}_*"):
            with contextlib.suppress(OSError):
                shutil.rmtree(left) if left.is_dir() else left.unlink()

    def _gasps(self) -> list[Path]:
        """The files of this run and rank whose manifests say so; the newest first."""
        ours = (Kind.GASP.value, self.session.run_id, self.session.rank)
        found = []
        for manifest in self.folder.path.rglob(f"*{_MANIFEST_SUFFIX}"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                told = json.loads(manifest.read_bytes())
                if (told["kind"], told["run_id"], told["rank"]) == ours:
                    path = manifest.with_name(manifest.name.removesuffix(_MANIFEST_SUFFIX))
                    found.append((int(told["incarnation"]), int(told["step"]), path))
        return [path for *_, path in sorted(found, reverse=True)]

    def _partial(self, path: Path) -> Path:
        _make_directory(path.parent)
        partial = path.with_name(f".tmp.rank{self.session.rank}_{os.getpid()}.{path.name}")
        partial.unlink(missing_ok=True)
        return partial

    def _write_manifest(self, path: Path, position: Position, content: dict[str, str | int]) -> None:
        session = self.session
        told = {
            "schema": _SCHEMA,
            "path": path.name,
            **position._asdict(),
            "world_size": session.world_size,
            "rank": session.rank,
            "replica_group": list(self.folder.replica_group or range(session.world_size)),
            **content,
            "run_id": session.run_id,
            "incarnation": session.incarnation,
            "node": session.node,
        }
        partial = self._partial(_manifest_of(path))
        with partial.open("w", encoding="utf-8") as file:
            json.dump(told, file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(_manifest_of(path))
        _sync_directory(path.parent)


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


def _manifest_of(path: Path) -> Path:
    return path.with_name(path.name + _MANIFEST_SUFFIX)


def _digest_of(path: Path) -> tuple[int, str]:
    crc = size_bytes = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
            size_bytes += len(block)
        os.fsync(file.fileno())
    return size_bytes, f"crc32:{crc:08x}"


def _make_directory(directory: Path) -> None:
    if not directory.exists():
        _make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    """Make new names in ``directory`` durable; some network file systems refuse, and need no such thing."""
    with contextlib.suppress(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
