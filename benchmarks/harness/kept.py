"""The rows of a campaign that goes on where it was cut off: a line of JSON each, with its seed and commit."""

import json
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.harness.journal import parsed
from benchmarks.harness.launched import ROOT


def read(path: Path | None, seed: int | None = None) -> list[dict[str, Any]]:
    """The rows that there are of this seed (None: of any); a line that was cut off is none."""
    if path is None or not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [row for line in lines if (row := parsed(line)) is not None]
    return [row for row in rows if seed is None or row["seed"] == seed]


def add(path: Path | None, seed: int | None, *rows: Mapping[str, Any]) -> None:
    """Write them behind the others, all at once."""
    if path is None:
        return
    about = {"commit": commit()} if seed is None else {"commit": commit(), "seed": seed}
    path.parent.mkdir(parents=True, exist_ok=True)
    cut = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * cut + "".join(json.dumps({**about, **row}) + "\n" for row in rows))


@cache
def commit(checkout: Path = ROOT) -> str:
    """The commit that is checked out, with a plus if anything differs from it; empty: nobody knows."""
    described = ("git", "describe", "--always", "--abbrev=8", "--exclude=*", "--dirty=+")
    told = subprocess.run(described, cwd=checkout, capture_output=True, text=True, check=False)
    return told.stdout.strip()
