"""faultrun's journal, read as what it is for everybody: lines of JSON. Nothing of faultrun is imported."""

import json
from pathlib import Path
from typing import Any

from benchmarks.harness.launchers import LOG_DIR


def read(folder: Path) -> list[dict[str, Any]]:
    """The lines of the journal of a run that was started in ``folder``, oldest first."""
    path = folder / LOG_DIR / "journal.jsonl"
    if not path.exists():
        return []
    whole = (line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line[-1] == "\n")
    return [json.loads(line) for line in whole]


def of(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    """The lines of one kind of event."""
    return [line for line in lines if line["event"] == event]


def report_to_signals_s(lines: list[dict[str, Any]]) -> list[float]:
    """For each fault: from the kernel's report of the first death to the last survivor's signal, in seconds.

    A gasp that was requested before anybody died belongs to a stop and is left out.
    """
    first: dict[int, float] = {}
    took: dict[int, float] = {}
    for line in lines:
        life = line["incarnation"]
        if line["event"] == "WorkerExit":
            first.setdefault(life, line["run_s"])
        if line["event"] == "GaspRequested" and life in first:
            took.setdefault(life, line["run_s"] - first[life])
    return list(took.values())
