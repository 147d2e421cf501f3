"""``<log_dir>/original/``: every file that was rewritten, as it was before, and the way back.

``index.json`` maps each file's real path to its kept copy, owner, permission bits
and the digests of what we wrote there since. It is on the disk before the file is touched.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from faultrun.configs.files import Attributes, Disk, Snapshot, explained, replace_file, snapshot
from faultrun.configs.lock import locked
from faultrun.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One original.

    ``written`` are digests of the version of ours that stands and of the one
    about to replace it: a crash may leave either. ``foreign``: somebody else
    changed the file after our first rewrite of it.
    """

    name: str
    sha256: str
    mode: int
    uid: int
    gid: int
    written: tuple[str, ...] = ()
    foreign: bool = False
    restored: bool = False


class Originals:
    """The folder of originals of one log_dir. The caller holds its lock."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        self._index = folder / "index.json"

    def keep(self, file: Path, seen: Snapshot, becomes: bytes) -> None:
        """Keep ``file`` as ``seen`` unless it is kept already, and note what it is about to become."""
        index = dict(self.read())
        now, next_digest = digest(seen.data), digest(becomes)
        kept = index.get(str(file))
        if kept is None or (kept.restored and now != kept.sha256):
            kept = self._copy(file, seen, index)
        index[str(file)] = replace(
            kept,
            written=(now, next_digest) if now in kept.written else (next_digest,),
            foreign=kept.foreign or now not in {kept.sha256, *kept.written},
            restored=False,
        )
        self._write(index)

    def read(self) -> Mapping[str, Kept]:
        """Every original by real path. ConfigError if the index cannot be understood."""
        try:
            text = self._index.read_text()
        except FileNotFoundError:
            return {}
        try:
            files = json.loads(text)["files"]
            return {
                path: Kept(**{**entry, "written": tuple(entry["written"])}) for path, entry in files.items()
            }
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(
                f"{self._index} cannot be read",
                because=f"it is not an index of originals ({error})",
                hint=f"copy what you need from {self._folder} by hand",
            ) from error

    def content(self, kept: Kept) -> bytes:
        """The original's bytes. ConfigError if they are gone or not what was kept."""
        path = self._folder / kept.name
        seen = snapshot(path)
        if digest(seen.data) != kept.sha256:
            raise ConfigError(
                f"{path} is not what was kept",
                because="it was changed since",
                hint=f"look at it: less {path}",
            )
        return seen.data

    def mark_restored(self, file: str) -> None:
        """Note that ``file`` has its first bytes again."""
        index = dict(self.read())
        index[file] = replace(index[file], written=(), foreign=False, restored=True)
        self._write(index)

    def path_of(self, kept: Kept) -> Path:
        """Where the original lies."""
        return self._folder / kept.name

    def _copy(self, file: Path, seen: Snapshot, index: Mapping[str, Kept]) -> Kept:
        number = 1 + max((int(kept.name.partition("-")[0]) for kept in index.values()), default=0)
        name = f"{number:03d}-{file.name}"
        mode, owner = seen.attributes.mode, seen.attributes.owner or (os.geteuid(), os.getegid())
        self._disk.make_directory(self._folder)
        replace_file(self._disk, self._folder / name, seen.data, seen.attributes.of_a_copy())
        return Kept(name=name, sha256=digest(seen.data), mode=mode, uid=owner[0], gid=owner[1])

    def _write(self, index: Mapping[str, Kept]) -> None:
        body = {"version": 1, "files": {path: asdict(kept) for path, kept in index.items()}}
        text = json.dumps(body, indent=2) + "\n"
        replace_file(self._disk, self._index, text.encode(), Attributes(mode=0o600))


@contextmanager
def holding(originals: Path) -> Iterator[None]:
    """Hold the folder of originals, made if missing, against other writers."""
    with explained(originals):
        originals.mkdir(parents=True, exist_ok=True)
        with locked(originals / "index.json"):
            yield


def digest(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()
