"""The journal's reading end: lines back to events, a torn tail cut off, state by replay."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from faultrun.core.phases.decide import decide
from faultrun.journal.append import BECAUSE
from faultrun.journal.codec import TAG, CodecError, decode, wire_name
from faultrun.model.events import Event, RunFinished, RunStarted
from faultrun.model.run import RunState

_BLOCK = 65536
_EVENT_TYPES = {wire_name(event_type): event_type for event_type in get_args(Event)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a journal says: where the run stands and where its clock and numbering go on.

    ``last_utc`` is the wall-clock time of the last line. ``run_id`` is empty where no line tells it,
    ``ended`` where no line says why the run ended. ``torn`` says what was wrong with the tail.
    """

    state: RunState
    next_seq: int
    last_s: float
    boots: tuple[str, ...]
    last_utc: str = ""
    run_id: str = ""
    ended: str = ""
    torn: str = ""

    def run_s_at(self, utc: datetime) -> float:
        """Run-seconds at a later moment: they pass while no supervisor is there, and never go back.

        A wall clock that was set back since the last line counts as no time.
        """
        try:
            last = datetime.fromisoformat(self.last_utc.replace("Z", "+00:00"))
            return self.last_s + max(0.0, (utc - last).total_seconds())
        except (ValueError, TypeError):
            return self.last_s


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield each whole line as an object. What is not one (a bad block, a torn tail) is passed over."""
    with path.open("rb") as file:
        for raw in file:
            if (line := line_of_bytes(raw)) is not None:
                yield line


def line_of_bytes(raw: bytes) -> dict[str, Any] | None:
    """One line with its end as an object; None for half a line and for what is no object."""
    try:
        line = json.loads(raw) if raw.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def event_of(line: Mapping[str, Any]) -> Event | None:
    """The event of one line; None for a kind that is not known here. CodecError if it does not fit."""
    if (event_type := _EVENT_TYPES.get(str(line.get("event")))) is None:
        return None
    data = {**line, TAG: wire_name(event_type), "at_s": line.get("run_s"), "why": line.get(BECAUSE)}
    event: Event = decode(data, event_type)
    return event


def replay(path: Path, start: RunState) -> Past:
    """Reduce the journal to a state. There is no other way to learn where a run stands."""
    state, next_seq, last_s, last_utc = start, 0, 0.0, ""
    boots: list[str] = []
    run_id = ended = ""
    torn = cut_torn_tail(path)
    for line in lines(path):
        seq = line.get("seq")
        next_seq = seq + 1 if isinstance(seq, int) else next_seq
        last_utc = str(line.get("at_utc") or last_utc)
        try:
            event = event_of(line)
        except CodecError as error:
            torn = torn or f"line {next_seq} is not understood ({error})"
            continue
        if event is None:
            continue
        last_s = max(last_s, event.at_s)
        if isinstance(event, RunStarted):
            boots.append(event.boot)
            run_id = run_id or event.run_id
        if isinstance(event, RunFinished):
            ended = event.why
        state = decide(state, event).state
    return Past(
        state=state,
        next_seq=next_seq,
        last_s=last_s,
        last_utc=last_utc,
        boots=tuple(boots),
        run_id=run_id,
        ended=ended,
        torn=torn,
    )


def cut_torn_tail(path: Path) -> str:
    """Cut the file after its last line end; say what was cut, or nothing.

    A supervisor that was killed inside a write leaves half a line. Appending would make two unreadable.
    """
    with path.open("rb+") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            if (newline := file.read(end - start).rfind(b"\n")) >= 0:
                end = start + newline + 1
                break
            end = start
        if end == size:
            return ""
        file.truncate(end)
    return f"{size - end} bytes after the last whole line were cut"
