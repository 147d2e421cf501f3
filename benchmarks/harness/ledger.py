"""Attempts that were made, kept line by line: a long measurement that was cut short goes on where it was."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One attempt. ``why`` is empty when it gave numbers; ``load`` is the load average before it."""

    case: str
    contender: str
    round: int
    load: str
    measured: Mapping[str, tuple[float, ...]]
    why: str = ""


class Ledger:
    """Without a path it forgets everything with the process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.entries = [_entry(row) for row in kept.read(path)]

    def has(self, case: str, contender: str, number: int) -> bool:
        """Whether that attempt was made before."""
        made = (case, contender, number)
        return any((entry.case, entry.contender, entry.round) == made for entry in self.entries)

    def add(self, entry: Entry) -> None:
        """Keep one more."""
        self.entries.append(entry)
        kept.add(self._path, None, asdict(entry))


def _entry(row: Mapping[str, Any]) -> Entry:
    """As ``add`` wrote it; a commit, which earlier ones lack, is left out."""
    measured = {name: tuple(values) for name, values in row["measured"].items()}
    return Entry(**{name: row[name] for name in Entry.__slots__ if name != "measured"}, measured=measured)
