"""Attempts that were made, kept line by line: a long measurement that was cut short goes on where it was."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


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
    """Without a path it forgets everything with the process. A line that was cut is an attempt not made."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.entries = [] if path is None else list(_read(path))

    def has(self, case: str, contender: str, number: int) -> bool:
        """Whether that attempt was made before."""
        made = (case, contender, number)
        return any((entry.case, entry.contender, entry.round) == made for entry in self.entries)

    def add(self, entry: Entry) -> None:
        """Keep one more."""
        self.entries.append(entry)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(entry)) + "\n")


def _read(path: Path) -> Iterable[Entry]:
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        measured = {name: tuple(values) for name, values in fields.pop("measured").items()}
        yield Entry(**fields, measured=measured)
