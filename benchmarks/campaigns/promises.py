"""What a run promised and did not keep: one value, and rows, for every campaign that judges runs."""

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


def kept_if_broken(rows: list[Row], kept: Path, keep_in: Callable[[Path], None]) -> list[Row]:
    """Rows that broke a promise tell where in ``kept`` there is to be seen what their run left."""
    for row in rows:
        if row["broken"]:
            row["see"] = f"{row['session']}_{row['place']}"
            keep_in(kept / row["see"])
    return rows
