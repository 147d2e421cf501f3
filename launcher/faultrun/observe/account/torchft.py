"""What torchft said of a run's recoveries, read from the workers' logs when somebody asks.

Shown beside what faultrun saw itself, under torchft's name; neither the journal nor any decision has it.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultrun.core.torchft_events import TORCHFT_MARK, TorchftEvent, in_words, told_after, torchft_event
from faultrun.files import bytes_from
from faultrun.journal.lines import moment
from faultrun.journal.logdir import recorded, worker_log_name
from faultrun.model.exits import WorkerExitCodes
from faultrun.observe.account.records import Account

_MARK = TORCHFT_MARK.encode()
_MOST_BYTES = 256 << 20
"""Of all logs, the newest ones; a report is not to take minutes at the end of a run."""
_CHUNK = 1 << 20
_LONGEST = 1 << 13
_WHOSE = "From the workers' logs, by their clocks; faultrun has checked none of it and acts on none."
_SOONER_S = 0.05
"""By so much a peer may say that it noticed a death before we have reaped the process."""
_NOT_OF_RECOVERY = ("process_start", "assigned")
_MOST_ROWS = 1000
_MOST_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldByTorchft:
    """Events in the order in which they were. ``unread_bytes`` of older logs were not looked at."""

    events: tuple[TorchftEvent, ...] = ()
    unread_bytes: int = 0


def recovers_by_torchft(record: Mapping[str, Any]) -> bool:
    """Whether the run that ``run.json`` tells of was started for a training that recovers by itself."""
    codes = recorded(record, "spec", "supervision", "policy", "exit_codes")
    return codes == WorkerExitCodes.TORCHFT.value


def told_by_torchft(folder: Path, record: Mapping[str, Any], most_bytes: int = _MOST_BYTES) -> ToldByTorchft:
    """The events in the newest ``most_bytes`` of the logs of ``folder``; none of any other run."""
    if not recovers_by_torchft(record):
        return ToldByTorchft()
    left, unread = most_bytes, 0
    events: list[TorchftEvent] = []
    for rank, path, size in _newest_first(folder, worker_log_name(record)):
        read = min(size, left)
        left, unread = left - read, unread + size - read
        lines = _marked(path, size - read, size)
        found = (torchft_event(rank, line.decode(errors="replace")) for line in lines)
        events += [one for one in found if one is not None]
    return ToldByTorchft(
        events=tuple(sorted(events, key=lambda one: (one.at_utc_s, one.rank))), unread_bytes=unread
    )


def torchft_section(told: ToldByTorchft, account: Account) -> dict[str, Any] | None:
    """The part of the report, which says whose words they are; None without any."""
    if not told.events:
        return None
    unread = f" {told.unread_bytes:,} bytes of older logs were not read." if told.unread_bytes else ""
    rows = [_row(one, account) for one in told.events if one.name not in _NOT_OF_RECOVERY]
    return {
        "title": "What torchft said itself",
        "text": f"{_WHOSE}{unread}",
        "events": dict(Counter(one.name for one in told.events)),
        "recoveries": rows[-_MOST_ROWS:],
    }


def torchft_lines(told: ToldByTorchft, account: Account, number: int) -> list[str]:
    """What was said after incident ``number``, and before the next one."""
    found = _faults(account)
    begins = [at_s for known, at_s in found if known == number]
    if not begins:
        return []
    ends = min((at_s for _, at_s in found if at_s > begins[0]), default=float("inf"))
    return in_words(told_after(told.events, begins[0], ends), _MOST_LINES)


def _newest_first(folder: Path, name: str) -> list[tuple[int, Path, int]]:
    """Rank, file and size of each log."""
    log = re.compile(rf"{re.escape(name)}_(\d{{1,9}})(?:\.err)?\.log(?:\.1)?")
    found = []
    for path in folder.glob("incarnation_*/*"):
        named = log.fullmatch(path.name)
        if named is not None and path.is_file():
            stat = path.stat()
            found.append((stat.st_mtime_ns, int(named[1]), path, stat.st_size))
    return [(rank, path, size) for _, rank, path, size in sorted(found, reverse=True)]


def _marked(path: Path, begin: int, end: int) -> Iterator[bytes]:
    """The lines that may tell of an event; of a longer one its end."""
    rest = b""
    while begin < end:
        chunk = bytes_from(path, begin, min(_CHUNK, end - begin))
        if not chunk:
            break
        begin += len(chunk)
        whole, newline, last = (rest + chunk).rpartition(b"\n")
        if newline and _MARK in whole:
            yield from (line for line in whole.split(b"\n") if _MARK in line)
        rest = last[-_LONGEST:]
    if _MARK in rest:
        yield rest


def _row(one: TorchftEvent, account: Account) -> dict[str, Any]:
    """What it told of; a field that it did not tell is left out."""
    told = {
        "incident": _incident_of(one, account),
        "rank": one.rank,
        "event": one.name,
        "step": one.step,
        "took_s": one.seconds if one.total_s is None else one.total_s,
        "links_s": one.links_s,
        "restore_s": one.restore_s,
        "error": one.error or None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _incident_of(one: TorchftEvent, account: Account) -> int | None:
    before = [(at_s, number) for number, at_s in _faults(account) if at_s <= one.at_utc_s]
    return max(before)[1] if before else None


def _faults(account: Account) -> Sequence[tuple[int, float]]:
    """Number and moment of each incident, in seconds since 1970."""
    began = moment(account.began_utc)
    if began is None:
        return ()
    return [(fault.number, began.timestamp() + fault.at_s - _SOONER_S) for fault in account.faults]
