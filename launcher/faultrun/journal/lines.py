"""A journal's lines as values, for all who only read: a whole journal, its end, and one that grows.

Each line is decoded once. What is no line of a journal (a bad block, half a line) is passed over; a line of
another version, with an event or a phase that is not known here, keeps its name, its time and its reason.
"""

import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from faultrun.journal.append import BECAUSE
from faultrun.journal.codec import CodecError, decode, wire_name
from faultrun.journal.read import event_of, line_of_bytes
from faultrun.model.actions import Publish
from faultrun.model.events import Event, Heartbeat, PlanAdopted, RunFinished
from faultrun.model.incident import Aftermath, Incident
from faultrun.model.observed.agreement import PlanElsewhere
from faultrun.model.plan import Plan
from faultrun.model.run import Phase

_PLAN = f'"event":"{wire_name(PlanAdopted)}"'.encode()
_HEARTBEAT = f'"event":"{wire_name(Heartbeat)}"'.encode()
_HEAD_BYTES = 240  # seq, at_utc, run_s, incarnation and event: they come before the event's own fields
_BEATS_IN_ONE = 32
_PHASES = {phase.value: phase for phase in Phase}
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """One line. ``name`` is the event's word; ``event`` and ``phase`` are None where it cannot be decoded.

    ``because`` is the event's own reason, else that of the decision, ``why``. ``judged`` is the incident as
    the decision tells it to the agreement. ``beats_before``: heartbeats before it that were passed over.
    """

    name: str
    run_s: float
    event: Event | None
    phase: Phase | None
    seq: int = -1
    at_utc: str = ""
    incarnation: int = -1
    why: str = ""
    because: str = ""
    judged: Incident | None = None
    beats_before: int = 0


def journal_line(data: Mapping[str, Any]) -> JournalLine | None:
    """The value of one line's object; None for what has no event or no time."""
    name, run_s = data.get("event"), data.get("run_s")
    if not isinstance(name, str) or not isinstance(run_s, (int, float)):
        return None
    event = None
    with suppress(CodecError):
        event = event_of(data)
    return JournalLine(
        name=name,
        run_s=float(run_s),
        event=event,
        phase=_PHASES.get(str(data.get("phase"))),
        seq=_whole(data.get("seq")),
        at_utc=str(data.get("at_utc") or ""),
        incarnation=_whole(data.get("incarnation")),
        why=str(data.get("why") or ""),
        because=str(data.get(BECAUSE) or data.get("why") or ""),
        judged=_agreed(event) or _judged(data.get("actions")),
    )


def moment(utc: str) -> datetime | None:
    """The time of day of a line (``at_utc``); None where it is none, or of no known zone."""
    try:
        found = datetime.fromisoformat(utc.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def journal_lines(path: Path) -> Iterator[JournalLine]:
    """Every line; of heartbeats in a row the last, and one in many. OSError when there is no journal."""
    with path.open("rb") as file:
        yield from decoded(file)


def decoded(raws: Iterable[bytes], *, beats_in_one: int = _BEATS_IN_ONE) -> Iterator[JournalLine]:
    """The values of ``raws``. Heartbeats are most of a long journal, and say little."""
    held, count = b"", 0
    for raw in raws:
        if _HEARTBEAT in raw[:_HEAD_BYTES]:
            if count == beats_in_one:
                yield from _value(held, count - 1)
                count = 0
            held, count = raw, count + 1
            continue
        if count:
            yield from _value(held, count - 1)
            count = 0
        yield from _value(raw, 0)
    if count:
        yield from _value(held, count - 1)


def _value(raw: bytes, beats_before: int) -> Iterator[JournalLine]:
    if (line := journal_line(line_of_bytes(raw) or {})) is not None:
        yield replace(line, beats_before=beats_before) if beats_before else line


class JournalFollower:
    """Yields each whole line once. The journal need not exist yet; half a line waits for its rest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._rest = b""

    def new_lines(self) -> Iterator[JournalLine]:
        """What was appended since the last call; everything on the first."""
        if self._fd < 0:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return
        while chunk := os.read(self._fd, _CHUNK):
            *raws, self._rest = (self._rest + chunk).split(b"\n")
            yield from decoded(raw + b"\n" for raw in raws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """``first`` is the journal's first line, ``lines`` those from the last adopted plan on.

    Of heartbeats in a row only the newest is among them. Both are empty for a journal without a whole line.
    """

    first: JournalLine | None = None
    lines: tuple[JournalLine, ...] = ()


def tail(path: Path) -> Tail:
    """What the present workers left, since all of them were started. OSError without a journal."""
    with path.open("rb") as file:
        if not file.read(1):
            return Tail()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            first = journal_line(line_of_bytes(text.readline()) or {})
            start = len(text)
            while start := text.rfind(b"\n", 0, max(text.rfind(_PLAN, 0, start), 0)) + 1:
                text.seek(start)
                if not _keeps(line_of_bytes(text.readline()) or {}):
                    break
            text.seek(start)
            return Tail(first=first, lines=tuple(decoded(iter(text.readline, b""), beats_in_one=len(text))))


def _keeps(line: Mapping[str, object]) -> bool:
    """Whether it is of a plan that keeps workers, who were started before it."""
    plan = line.get("plan")
    return isinstance(plan, dict) and bool(plan.get("kept"))


def _agreed(event: Event | None) -> Incident | None:
    """What several nodes found together; each had told its own part before."""
    match event:
        case PlanAdopted(plan=Plan(aftermath=Aftermath(incident=incident))):
            return incident
        case PlanElsewhere(plan=Plan(aftermath=Aftermath(incident=incident))):
            return incident
        case RunFinished(aftermath=Aftermath(incident=incident)):
            return incident
        case _:
            return None


def _judged(actions: object) -> Incident | None:
    for action in actions if isinstance(actions, list) else ():
        fact = action.get("fact") if isinstance(action, dict) else None
        if isinstance(fact, dict) and fact.get("incident"):
            with suppress(CodecError):
                told: Publish = decode(action, Publish)
                return told.fact.left.incident
    return None


def _whole(number: object) -> int:
    return number if isinstance(number, int) and not isinstance(number, bool) else -1
