"""The rows of a campaign that goes on where it was cut off: a line of JSON each, with its seed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def read(path: Path | None, seed: int) -> list[dict[str, Any]]:
    """The rows that there are; a line that was cut off is none."""
    if path is None or not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return [row for row in rows if row["seed"] == seed]


def add(path: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write them behind the others, all at once."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
