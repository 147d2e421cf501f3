"""Runs that broke a promise are kept to be seen: a copy, and a word in their rows."""

import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.campaigns.promises import Row


def copied(folder: Path, to: Path, *ignored: str) -> None:
    """What lies in ``folder``, but for names that match one of ``ignored``."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns(*ignored), dirs_exist_ok=True, symlinks=True)


def shown(row: Row, kept: Path, keep_in: Callable[[Path], None]) -> Row:
    """``row``, which tells where in ``kept`` its run is to be seen."""
    place = kept / f"{row['session']}_{row['place']}"
    keep_in(place)
    row["see"] = place.name
    return row


def kept_if_broken(rows: list[Row], kept: Path, keep_in: Callable[[Path], None]) -> list[Row]:
    """With what is to be seen of the run, if a promise was broken."""
    return [shown(row, kept, keep_in) if row["broken"] else row for row in rows]
