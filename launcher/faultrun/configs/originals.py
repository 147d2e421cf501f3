"""``<log_dir>/original/``: every file that was rewritten, as it was before, and the way back.

``index.json`` maps each file's real path to its kept copy, owner, permission bits
and the digests of what we wrote there since. It is on the disk before the file is touched.

What a person set by hand has an index and copies of its own (``by_hand.json``, ``hand-001-...``): to a run it
is part of the file, and it outlives the run.
"""

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
from faultrun.configs.former import forget_former, formers, given_back, under_ours
from faultrun.errors import ConfigError
from faultrun.files import sha256
from faultrun.model.edit import By


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One original.

    ``written`` are digests of the version of ours that stands and of the one about to replace it: a crash may
    leave either. ``foreign``: another writer changed the file after our first rewrite of it. ``pointer``: the
    training code writes it, too, so that no run gives it back. ``made``: there was no such file.
    """

    name: str
    sha256: str
    mode: int
    uid: int
    gid: int
    written: tuple[str, ...] = ()
    foreign: bool = False
    restored: bool = False
    pointer: bool = False
    made: bool = False


_HAND_INDEX = "by_hand.json"
_HAND_COPY = "hand-"


class Originals:
    """The originals of one log_dir, of before a run or a person. The caller holds the folder's lock."""

    def __init__(self, folder: Path, disk: Disk, by: By = By.RUN) -> None:
        self._folder, self._disk, self._by = folder, disk, by
        self._index = folder / ("index.json" if by is By.RUN else _HAND_INDEX)
        self._prefix = "" if by is By.RUN else _HAND_COPY

    def keep(self, file: Path, seen: FileSnapshot, becomes: bytes) -> None:
        """Keep ``file`` as ``seen`` unless it is kept already, and note what it is about to become.

        What runs of ours have set there is no part of an original, nor of what a person sets.
        """
        kept, under = self.read().get(str(file)), under_ours(file, seen)
        if self._by is By.HAND:
            seen, becomes = under, under_ours(file, replace(seen, data=becomes)).data
        now, next_digest = _digest(seen.data), _digest(becomes)
        fresh = kept is None or (kept.restored and now != kept.sha256)
        if kept is None or fresh:
            kept = self._copy(file, under)
        written = (now, next_digest) if now in kept.written else (next_digest,)
        foreign = not fresh and (kept.foreign or now not in {kept.sha256, *kept.written})
        self._note(file, replace(kept, written=written, foreign=foreign, restored=False))

    def keep_pointer(self, file: Path, seen: FileSnapshot, becomes: bytes, *, there: bool) -> None:
        """Keep ``file``, which training code writes too, as it was written last. ``there``: it existed."""
        before = kept = self.read().get(str(file))
        if kept is None or kept.restored or _digest(seen.data) not in kept.written:
            kept = replace(self._copy(file, seen), pointer=True, made=not there)
        self._note(file, replace(kept, written=(*kept.written[-1:], _digest(becomes))))
        if before is not None and before.name != kept.name:
            self._disk.remove(self._folder / before.name)

    def give_back(self, file: Path) -> bool:
        """Give ``file`` its first bytes, owner and mode back; whether that changed it.

        If another writer changed the file since, a run gives back the values that runs have set, and nothing
        else. ConfigError if that cannot be done, or the original is gone or damaged.
        """
        with explained(file), locked(file), holding(self._folder):
            kept = self.read()[str(file)]
            data = self._content(kept)
            seen = snapshot(file) if file.exists() else None
            now = _digest(seen.data) if seen else kept.sha256 if kept.made else ""
            attributes = Attributes(mode=kept.mode, owner=(kept.uid, kept.gid))
            if seen and now != kept.sha256 and (kept.foreign or now not in kept.written):
                known = formers(file) if self._by is By.RUN else {}
                data, left = given_back(file, seen.data, known)
                attributes = seen.attributes
                if left or not known:
                    because = "putting the original back would lose that change"
                    hint = f"diff {self._folder / kept.name} {file}"
                    raise ConfigError(f"{file} was changed by another program", because=because, hint=hint)
            changed = now != kept.sha256 and (seen is None or data != seen.data)
            if changed and kept.made:
                self._disk.remove(file)
            elif changed:
                replace_file(self._disk, file, data, attributes)
            if self._by is By.RUN and not kept.pointer:
                forget_former(self._disk, file)
            self._note(file, replace(kept, written=(), foreign=False, restored=True))
        return changed

    def read(self) -> Mapping[str, Kept]:
        """Every original by real path. ConfigError if the index cannot be understood."""
        try:
            text = self._index.read_text()
        except FileNotFoundError:
            return {}
        try:
            files = json.loads(text)["files"]
            return {path: Kept(**{**one, "written": tuple(one["written"])}) for path, one in files.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            because = f"it is not an index of originals ({error})"
            hint = f"copy what you need from {self._folder} by hand"
            raise ConfigError(f"{self._index} cannot be read", because=because, hint=hint) from error

    def _content(self, kept: Kept) -> bytes:
        path = self._folder / kept.name
        seen = snapshot(path)
        if _digest(seen.data) != kept.sha256:
            hint = f"look at it: less {path}"
            raise ConfigError(f"{path} is not what was kept", because="it was changed since", hint=hint)
        return seen.data

    def _copy(self, file: Path, seen: FileSnapshot) -> Kept:
        names = (kept.name for kept in self.read().values())
        numbers = (int(name.removeprefix(self._prefix).partition("-")[0]) for name in names)
        name = f"{self._prefix}{1 + max(numbers, default=0):03d}-{file.name}"
        mode, owner = seen.attributes.mode, seen.attributes.owner or (os.geteuid(), os.getegid())
        self._disk.make_directory(self._folder)
        replace_file(self._disk, self._folder / name, seen.data, seen.attributes.of_a_copy())
        return Kept(name=name, sha256=_digest(seen.data), mode=mode, uid=owner[0], gid=owner[1])

    def _note(self, file: Path, kept: Kept) -> None:
        files = {path: asdict(one) for path, one in {**self.read(), str(file): kept}.items()}
        text = json.dumps({"version": 1, "files": files}, indent=2) + "\n"
        replace_file(self._disk, self._index, text.encode(), Attributes(mode=0o600))


def restore(
    originals: Path, files: Sequence[str] | None = None, *, by: By = By.RUN, disk: Disk = LOCAL
) -> Mapping[str, bool]:
    """Give back the first bytes, owner and mode of ``files``, or of every file that was rewritten.

    A run gives back what runs rewrote; what is given back ``by`` hand loses a person's values, too.
    A pointer of the training code is given back only where it is named.
    Returns every file's real path, and whether it had other bytes. ConfigError if one of them was
    never rewritten, its original is damaged, or another writer changed it since: putting the
    original back would lose that change. Every other file is restored before that is raised.
    """
    stores = [Originals(originals, disk)]
    if by is By.HAND:
        stores.append(Originals(originals, disk, By.HAND))
    known: list[str] = []
    if originals.is_dir():
        with holding(originals):
            kept = {file: one for store in stores for file, one in store.read().items()}
            known = [file for file, one in kept.items() if files or not one.pointer]
    outcomes = {file: _given_back(file, stores) for file in _chosen(known, files, originals)}
    for outcome in outcomes.values():
        if isinstance(outcome, ConfigError):
            raise outcome
    return {file: outcome is True for file, outcome in outcomes.items()}


def _chosen(known: Sequence[str], files: Sequence[str] | None, originals: Path) -> Sequence[str]:
    chosen = {str(Path(file).resolve()): file for file in files or ()}
    for file, shown in chosen.items():
        if file not in known:
            because = f"it was never rewritten in this log_dir ({originals})"
            hint = "faultrun config restore --log_dir D"
            raise ConfigError(f"{shown} has no original", because=because, hint=hint)
    return list(chosen) or known


def _given_back(file: str, stores: Sequence[Originals]) -> bool | ConfigError:
    """By every store in turn whose values stand in the file; a person is told why, where none do."""
    try:
        has = [(store, store.read().get(file)) for store in stores]
        standing = [store for store, kept in has if kept is not None and not kept.restored]
        if not standing and len(stores) > 1:
            standing = [store for store, kept in has if kept is not None][-1:]
        changed = [store.give_back(Path(file)) for store in standing]
    except ConfigError as error:
        return error
    return any(changed)


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


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
