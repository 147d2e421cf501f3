"""Which saves belong to a run that has ended well: a list beside their folder, so that no save is changed.

A save is named in it by its manifest's bytes and time: one that is written anew is not on it.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.reading import opened

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


def add_marks(root: str, marks: Iterable[str]) -> None:
    """Put these on the list of ``root``, in one step. OSError when that cannot be."""
    folder = beside(root)
    folder.mkdir(exist_ok=True)
    fresh = folder / f"{_FILE_NAME}.tmp"
    with fresh.open("w", encoding="ascii") as file:
        file.writelines(f"{one}\n" for one in sorted(marks_of(root).union(marks)))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / _FILE_NAME)
