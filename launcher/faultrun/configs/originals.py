"""``<log_dir>/original/``: every file that was rewritten, as it was before, and the way back.

``index.json`` maps each file's real path to its kept copy, owner, permission bits
and the digests of what we wrote there since. It is on the disk before the file is touched.

What a person set by hand has an index and copies of its own (``by_hand.json``, ``hand-001-...``): to a run it
is part of the file, and it outlives the run.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from faultrun.configs.files import (
    LOCAL,
    Attributes,
    Disk,
    FileSnapshot,
    explained,
    locked,
    replace_file,
    snapshot,
)
from faultrun.errors import ConfigError
from faultrun.model.edit import By, Restored


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


_HAND_INDEX = "by_hand.json"
_HAND_COPY = "hand-"


class Originals:
    """The originals of one log_dir, of before a run or a person. The caller holds the folder's lock."""

    def __init__(self, folder: Path, disk: Disk, by: By = By.RUN) -> None:
        self._folder = folder
        self._disk = disk
        self._index = folder / ("index.json" if by is By.RUN else _HAND_INDEX)
        self._prefix = "" if by is By.RUN else _HAND_COPY

    def keep(self, file: Path, seen: FileSnapshot, becomes: bytes) -> None:
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

    def stands_in(self, file: Path) -> bool:
        """Whether ``file`` was rewritten and not given back since."""
        kept = self.read().get(str(file))
        return kept is not None and not kept.restored

    def base(self, file: Path, seen: FileSnapshot) -> bytes | None:
        """The bytes under our values in ``file`` as it was ``seen``; None when none of ours stand there."""
        kept = self.read().get(str(file))
        if kept is None or kept.restored or kept.foreign:
            return None
        return self.content(kept) if digest(seen.data) in (kept.sha256, *kept.written) else None

    def rebase(self, file: Path, base: FileSnapshot, becomes: bytes) -> None:
        """Give ``file`` back as ``base`` from now on; with our values it is about to be ``becomes``."""
        index = dict(self.read())
        before = index[str(file)]
        index[str(file)] = replace(
            self._copy(file, base, index), written=(*before.written, digest(becomes)), mode=before.mode
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

    def _copy(self, file: Path, seen: FileSnapshot, index: Mapping[str, Kept]) -> Kept:
        numbers = (kept.name.removeprefix(self._prefix).partition("-")[0] for kept in index.values())
        name = f"{self._prefix}{1 + max(map(int, numbers), default=0):03d}-{file.name}"
        mode, owner = seen.attributes.mode, seen.attributes.owner or (os.geteuid(), os.getegid())
        self._disk.make_directory(self._folder)
        replace_file(self._disk, self._folder / name, seen.data, seen.attributes.of_a_copy())
        return Kept(name=name, sha256=digest(seen.data), mode=mode, uid=owner[0], gid=owner[1])

    def _write(self, index: Mapping[str, Kept]) -> None:
        body = {"version": 1, "files": {path: asdict(kept) for path, kept in index.items()}}
        text = json.dumps(body, indent=2) + "\n"
        replace_file(self._disk, self._index, text.encode(), Attributes(mode=0o600))


def restore(
    originals: Path, files: Sequence[str] | None = None, *, by: By = By.RUN, disk: Disk = LOCAL
) -> tuple[Restored, ...]:
    """Give back the first bytes, owner and mode of ``files``, or of every file that was rewritten.

    A run gives back what runs rewrote; what is given back ``by`` hand loses a person's values, too.
    ConfigError if one of them was never rewritten, its original is damaged, or
    somebody else changed it since: putting the original back would lose that change.
    Every other file is restored before that is raised.
    """
    stores = [Originals(originals, disk)]
    if by is By.HAND:
        stores.append(Originals(originals, disk, By.HAND))
    known: list[str] = []
    if originals.is_dir():
        with holding(originals):
            known = list(dict.fromkeys(file for store in stores for file in store.read()))
    outcomes = [_attempt(Path(file), originals, stores, disk) for file in _chosen(known, files, originals)]
    for outcome in outcomes:
        if isinstance(outcome, ConfigError):
            raise outcome
    return tuple(outcome for outcome in outcomes if isinstance(outcome, Restored))


def _chosen(known: Sequence[str], files: Sequence[str] | None, originals: Path) -> Sequence[str]:
    if not files:
        return known
    chosen = [str(Path(file).resolve()) for file in files]
    for file, shown in zip(chosen, files, strict=True):
        if file not in known:
            raise ConfigError(
                f"{shown} has no original",
                because=f"it was never rewritten in this log_dir ({originals})",
                hint="faultrun config restore --log_dir D",
            )
    return chosen


def _attempt(file: Path, originals: Path, stores: Sequence[Originals], disk: Disk) -> Restored | ConfigError:
    """By every store in turn whose values stand in the file; a person is told why, where none do."""
    try:
        standing = [store for store in stores if store.stands_in(file)]
        if not standing and len(stores) > 1:
            standing = [store for store in stores if str(file) in store.read()][-1:]
        changed = [_restored(file, originals, store, disk) for store in standing]
    except ConfigError as error:
        return error
    return Restored(file=str(file), changed=any(changed))


def _restored(file: Path, originals: Path, store: Originals, disk: Disk) -> bool:
    """Give back what ``store`` has of ``file``; whether that changed it."""
    with explained(file), locked(file), holding(originals):
        kept = store.read()[str(file)]
        data = store.content(kept)
        seen = snapshot(file) if file.exists() else None
        now = digest(seen.data) if seen else ""
        if seen and now != kept.sha256 and (kept.foreign or now not in kept.written):
            raise ConfigError(
                f"{file} was changed by somebody else",
                because="putting the original back would lose that change",
                hint=f"diff {store.path_of(kept)} {file}",
            )
        if now != kept.sha256:
            replace_file(disk, file, data, Attributes(mode=kept.mode, owner=(kept.uid, kept.gid)))
        store.mark_restored(str(file))
    return now != kept.sha256


def of_a_person(log_dir: Path) -> list[Path]:
    """What of a log_dir belongs to no run: originals and copies of what was set by hand."""
    kept, copies = log_dir / "original", log_dir / "edited"
    return [*kept.glob(_HAND_INDEX), *kept.glob(f"{_HAND_COPY}*"), *copies.glob(f"{_HAND_COPY}*")]


def folder_of_copy(tag: str, by: By) -> str:
    """Name of the folder below ``edited/`` for an edited copy."""
    return tag if by is By.RUN else f"{_HAND_COPY}{tag}"


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
