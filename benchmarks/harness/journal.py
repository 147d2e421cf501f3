"""faultrun's journal, read as what it is for everybody: lines of JSON. Nothing of faultrun is imported."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.harness.launchers import LOG_DIR


def read(folder: Path) -> list[dict[str, Any]]:
    """The lines of the journal of a run that was started in ``folder``, oldest first."""
    return lines_of(folder / LOG_DIR / "journal.jsonl")


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that are ended, oldest first; none where there is no file."""
    return [json.loads(line) for line in grown(path)[0].splitlines()]


def grown(path: Path, done: int = 0) -> tuple[bytes, int]:
    """What a file has behind ``done`` bytes, up to its last line that is ended; and how far that is."""
    if not path.exists():
        return b"", done
    with path.open("rb") as file:
        file.seek(done)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    return whole, done + len(whole)


def parsed(line: str | bytes) -> dict[str, Any] | None:
    """None for a line that was cut or torn."""
    with suppress(ValueError):
        found: dict[str, Any] = json.loads(line)
        return found
    return None


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
