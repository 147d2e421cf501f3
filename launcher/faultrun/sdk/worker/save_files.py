"""Files and folders that are there whole or not at all: tmp, fsync, a name of their own; the manifest last.

``<name>.manifest.json`` (described in ``checkpoints/formats/faultrun_manifest.py``) says whose state it is,
its step and its digest. What is already there is never written over. Knows no framework.
"""

import contextlib
import errno
import json
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from faultrun.model.checkpoint import Kind
from faultrun.sdk.session import Session
from faultrun.sdk.worker.durable import (
    digest_of,
    digest_of_list,
    digests_in,
    make_directory,
    remove,
    sync_directory,
)
from faultrun.sdk.worker.programs import RankProgram, this_program

_MANIFEST_SUFFIX = ".manifest.json"
_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Where a worker's own saves go: ``directory`` as it is now, whatever becomes the working directory.

    ``keep`` is how many dying-gasp files each rank keeps; ``replica_group`` are the ranks that hold the same
    state as this one, by default all (pure data parallel). Checked where saves are prepared (``preflight``).
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
    """A file or folder that is whole on the disk, its manifest too. ``digest`` is ``crc32:<8 hex digits>``.

    ``replica_group`` are the ranks that can resume from it; empty: all.
    """

    path: str
    step: int
    size_bytes: int
    took_s: float
    digest: str
    replica_group: tuple[int, ...] = ()


Names = Callable[[int], Path]
"""The file or folder to write, from 0; higher numbers are asked for while those names are taken."""

_Content = dict[str, Any]
"""What a manifest says of what was written: ``size_bytes``, ``digest``, of a folder ``files``."""


def numbered(path: Path) -> Names:
    """``a.pt``, ``a.1.pt``, ``a.2.pt`` ..."""
    return lambda number: path if number == 0 else path.with_name(f"{path.stem}.{number}{path.suffix}")


class Sink:
    """A file open for writing that counts and digests what passes (CRC-32: faster than any disk)."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        self._crc = self.size_bytes = 0

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

        def write(partial: Path) -> _Content:
            with contextlib.closing(Sink(partial)) as sink:
                fill(sink)
                return _file_content(*sink.finish())

        return self._save(names, position, kind, write)

    def save_by_path(
        self, names: Names, position: Position, fill: Callable[[str], object], kind: Kind = Kind.GASP
    ) -> Saved:
        """Have ``fill`` write to a file name, with the final suffix; the digest is read back."""

        def write(partial: Path) -> _Content:
            fill(str(partial))
            return _file_content(*digest_of(partial))

        return self._save(names, position, kind, write)

    def save_folder(
        self, names: Names, position: Position, fill: Callable[[Path], object], kind: Kind = Kind.GASP
    ) -> Saved:
        """Save a checkpoint that is a folder: ``fill`` writes files, and no links, into a new one."""

        def write(partial: Path) -> _Content:
            partial.mkdir()
            fill(partial)
            files = digests_in(partial)
            return {
                "size_bytes": sum(size_bytes for size_bytes, _ in files.values()),
                "digest": digest_of_list(files),
                "files": {name: _file_content(*one) for name, one in files.items()},
            }

        return self._save(names, position, kind, write)

    def _save(self, names: Names, position: Position, kind: Kind, write: Callable[[Path], _Content]) -> Saved:
        began_s, life = time.monotonic(), self.session.life  # training may go on meanwhile
        partial = self._partial(names(0))
        try:
            content = write(partial)
            path = _publish(partial, names)
            self._write_manifest(path, position, {"kind": kind.value, "incarnation": life, **content})
        finally:
            remove(partial)
        return Saved(
            path=str(path),
            step=position.step,
            size_bytes=content["size_bytes"],
            took_s=round(time.monotonic() - began_s, 6),
            digest=content["digest"],
            replica_group=self.folder.replica_group,
        )

    def prune(self, newest: Saved) -> None:
        """Drop this run's older gasps of this rank, and what dead writers of this rank left half written.

        Older is by life and step, whatever the clock says; never ``newest``, nor what this life began from.
        What cannot be removed stays: it costs space, not correctness.
        """
        point = self.session.point
        kept = {_identity(newest.path), _identity(point.path if point is not None else "")}
        others = [path for path in self._gasps() if _identity(path) != _identity(newest.path)]
        for path in others[self.folder.keep - 1 :]:
            if _identity(path) not in kept:
                with contextlib.suppress(OSError):  # first: without its manifest it passes for a user's file
                    self._remove_at_once(path)
                    _manifest_of(path).unlink(missing_ok=True)
        for left in self.folder.path.rglob(f".tmp.rank{self.session.rank}_*"):
            with contextlib.suppress(OSError):
                remove(left)

    def _remove_at_once(self, path: Path) -> None:
        """Half of a folder must not be left under its name."""
        if path.is_dir():
            path = path.rename(self._partial(path))
        remove(path)

    def _gasps(self) -> list[Path]:
        """The files and folders of this run, rank and program whose manifests say so; the newest first."""
        ours, own = (Kind.GASP.value, self.session.run_id, self.session.rank), asdict(this_program())
        found = []
        for manifest in self.folder.path.rglob(f"*{_MANIFEST_SUFFIX}"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                told = json.loads(manifest.read_bytes())
                of_another = told.get("program", own)["name"] != own["name"]
                if (told["kind"], told["run_id"], told["rank"]) == ours and not of_another:
                    path = manifest.with_name(manifest.name.removesuffix(_MANIFEST_SUFFIX))
                    found.append((int(told["incarnation"]), int(told["step"]), path))
        return [path for *_, path in sorted(found, reverse=True)]

    def _partial(self, path: Path) -> Path:
        make_directory(path.parent)
        partial = path.with_name(f".tmp.rank{self.session.rank}_{os.getpid()}.{path.name}")
        remove(partial)
        return partial

    def _write_manifest(self, path: Path, position: Position, content: _Content) -> None:
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
            "node": session.node,
            "program": asdict(this_program(self.folder.path)),
        }
        partial = self._partial(_manifest_of(path))
        with partial.open("w", encoding="utf-8") as file:
            json.dump(told, file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(_manifest_of(path))
        sync_directory(path.parent)


def _file_content(size_bytes: int, digest: str) -> _Content:
    return {"size_bytes": size_bytes, "digest": digest}


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
        except OSError:  # a folder, or a file system without links
            try:
                partial.rename(path)
            except OSError as err:
                if err.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    continue
                raise
        sync_directory(path.parent)
        return path


def maker_of(path: str) -> RankProgram | None:
    """The program that saved this checkpoint; None where its manifest, or the lack of one, does not tell."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return RankProgram(**json.loads(_manifest_of(Path(path)).read_bytes())["program"])
    return None


def _manifest_of(path: Path) -> Path:
    return path.with_name(path.name + _MANIFEST_SUFFIX)
