"""The end of a journal, without reading what comes before it: where the run stands now."""

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultrun.journal.read import line_of_bytes

_PLAN = b'"event":"PlanAdopted"'
HEARTBEAT = b'"event":"Heartbeat"'
HEAD_BYTES = 240
"""The fields that come before the event's own: seq, at_utc, run_s, incarnation, event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """``first`` is the journal's first line, ``lines`` those from the last adopted plan on.

    Of the heartbeats only the newest is among them. All are empty for a journal without a whole line.
    """

    first: dict[str, Any]
    lines: tuple[dict[str, Any], ...]

    @property
    def last(self) -> dict[str, Any]:
        """The newest line."""
        return self.lines[-1] if self.lines else {}


def tail(path: Path) -> Tail:
    """Read what the present incarnation left. OSError when there is no journal."""
    with path.open("rb") as file:
        if not file.read(1):
            return Tail(first={}, lines=())
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            first = line_of_bytes(text.readline())
            plan = text.rfind(_PLAN)
            text.seek(text.rfind(b"\n", 0, max(plan, 0)) + 1)
            return Tail(first=first or {}, lines=_lines(text))


def _lines(text: mmap.mmap) -> tuple[dict[str, Any], ...]:
    found: list[dict[str, Any]] = []
    beat = b""
    for raw in iter(text.readline, b""):
        if HEARTBEAT in raw[:HEAD_BYTES]:
            beat = raw
            continue
        if beat:
            found.append(line_of_bytes(beat) or {})
            beat = b""
        found.append(line_of_bytes(raw) or {})
    if beat:
        found.append(line_of_bytes(beat) or {})
    return tuple(line for line in found if line)
