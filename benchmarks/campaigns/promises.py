"""What a run promised and did not keep: one value, and rows, for every campaign that judges runs."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclass(slots=True)
class Broken:
    """What was promised and not kept, in words, promise by promise."""

    resumes: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    together: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    saves: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    recovery: list[str] = field(default_factory=list)
    journals: list[str] = field(default_factory=list)
    cards: list[str] = field(default_factory=list)

    def by_name(self) -> dict[str, list[str]]:
        """Only what was broken."""
        all_of = {name: getattr(self, name) for name in self.__slots__}
        return {name: words for name, words in all_of.items() if words}


def add(rows: list[Row], wrong: Broken) -> None:
    """To the last of ``rows``."""
    for name, words in wrong.by_name().items():
        rows[-1]["broken"][name] = [*rows[-1]["broken"].get(name, []), *words]


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
