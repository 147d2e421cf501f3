"""Which saves belong to a run that has ended well, so that a new job of its name does not go on from them.

The list lies beside their folder: no save is changed. A save is named in it by its
manifest's bytes and time: one that is written anew is not on it.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path

from faultrun.checkpoints.format import Listing, Unreadable
from faultrun.checkpoints.gasp_manifest import SUFFIX, read_manifest
from faultrun.checkpoints.listing import walk
from faultrun.checkpoints.reading import opened
from faultrun.model.checkpoint import Refusal

_FILE_NAME = ".finished"
_MAX_BYTES = 1 << 24


def beside(root: str) -> Path:
    """Where we keep what is about the checkpoints in ``root``: hidden beside it, or in it if it is a mount.

    Not inside of an ordinary folder: some trainers refuse one that is not empty.
    """
    path = Path(root)
    with suppress(OSError):
        if path.stat().st_dev != path.parent.stat().st_dev:
            return path / ".faultrun"
    return path.parent / f".{path.name}.faultrun"


def marks_of(root: str) -> frozenset[str]:
    """The marks on the saves in ``root``; none where there is no list that can be read."""
    with suppress(Unreadable), opened(str(beside(root) / _FILE_NAME)) as file:
        text = file.read(0, min(file.size_bytes, _MAX_BYTES)).decode("ascii", "replace")
        return frozenset(text.splitlines())
    return frozenset()


def mark_of(manifest: str) -> str:
    """The mark of the save with this ``manifest``. Unreadable or OSError when it is gone."""
    with opened(manifest) as file:
        data = file.read(0, min(file.size_bytes, _MAX_BYTES))
    return f"{sha256(data).hexdigest()} {os.stat(manifest).st_mtime_ns}"  # noqa: PTH116 - a string is all there is


def mark_finished(roots: Sequence[str], folders: Sequence[str], run_id: str) -> list[str]:
    """Note beside ``roots`` and ``folders`` that the run of the saves of ``run_id`` in them is over.

    In ``folders`` nothing below is looked at. Returns where that could not be noted and why, in words.
    """
    named = {Path(root) for root in roots}
    others = [folder for folder in folders if named.isdisjoint((Path(folder), *Path(folder).parents))]
    found = [_marked(root, walk(root), run_id) for root in roots]
    found += [_marked(folder, islice(walk(folder), 1), run_id) for folder in others]
    return [trouble for trouble in found if trouble]


def _marked(root: str, listings: Iterable[Listing | Refusal], run_id: str) -> str:
    """Mark those under one root; why that was not possible, or ''."""
    try:
        marks = {mark_of(manifest) for manifest in _manifests_of(run_id, listings)}
        if marks:
            _write(beside(root), marks | marks_of(root))
    except (OSError, Unreadable) as error:
        return f"{root}: {error}"
    return ""


def _manifests_of(run_id: str, listings: Iterable[Listing | Refusal]) -> Iterator[str]:
    for listing in listings:
        if isinstance(listing, Refusal):
            continue
        for name in listing.files:
            if name.endswith(SUFFIX):
                with suppress(Unreadable):
                    if read_manifest(listing.join(name.removesuffix(SUFFIX))).run_id == run_id:
                        yield listing.join(name)


def _write(folder: Path, marks: Iterable[str]) -> None:
    """Replace the list in one step."""
    folder.mkdir(exist_ok=True)
    fresh = folder / f"{_FILE_NAME}.tmp"
    with fresh.open("w", encoding="ascii") as file:
        file.writelines(f"{one}\n" for one in sorted(marks))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / _FILE_NAME)
