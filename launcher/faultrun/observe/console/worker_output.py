"""What workers have printed, in all lives of a run: which files there are, and their lines in order of time.

A log has no times of its own. Where its lines begin with one, as those of most logging libraries do, lines of
several ranks are put in that order; a line without a time belongs to the one before it.
"""

import heapq
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from faultrun.workers.logs.log_rotation import FIRST_SUFFIX, NEWEST_SUFFIX

_FOLDER = re.compile(r"incarnation_(\d+)")
_LOG = re.compile(r".+?_(\d+)(\.err)?\.log")
_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 16
_BATCH_BYTES, _HEAD_BYTES = 1 << 20, 96
_ISO = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[ T-](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?")
"""Also MindSpore's 2026-11-22-21:30:05.123.456."""
_GLOG = re.compile(rb"\b[IWEF](\d\d)(\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class WorkerLog:
    """One file of one rank in one life: both streams, or one of them where standard error is kept apart."""

    incarnation: int
    rank: int
    path: Path

    @property
    def parts(self) -> tuple[Path, ...]:
        """What is left of it, oldest first: of a log that was cut, the first and the newest part too."""
        name = self.path.name
        cut = (self.path.with_name(name + FIRST_SUFFIX), self.path.with_name(name + NEWEST_SUFFIX))
        return (*(part for part in cut if part.exists()), self.path)


@dataclass(frozen=True, slots=True)
class OutputLine:
    """``at`` sorts: the time of the line, or of the last one before that had any; empty before the first."""

    at: str
    log: WorkerLog
    text: bytes


def lives(log_dir: Path) -> list[int]:
    """The incarnations that left a folder, in their order; empty where there is none."""
    try:
        names = [path.name for path in log_dir.iterdir()]
    except OSError:
        return []
    return sorted(int(found[1]) for name in names if (found := _FOLDER.fullmatch(name)))


def logs_of(log_dir: Path, incarnation: int, ranks: Sequence[int] = ()) -> list[WorkerLog]:
    """The logs of one life, by rank; of all ranks if none is named."""
    folder = log_dir / f"incarnation_{incarnation}"
    found = [(match, path) for path in folder.glob("*.log") if (match := _LOG.fullmatch(path.name))]
    logs = [WorkerLog(incarnation, int(match[1]), path) for match, path in found]
    return sorted(
        (log for log in logs if not ranks or log.rank in ranks), key=lambda log: (log.rank, log.path)
    )


def in_order(streams: Iterable[Iterable[OutputLine]]) -> Iterator[OutputLine]:
    """Lines of several logs as one; what has no times keeps its order."""
    return heapq.merge(*streams, key=lambda line: line.at)


def whole(log: WorkerLog) -> Iterator[OutputLine]:
    """All that is left of a log."""
    return _lines(log, [(part, 0) for part in log.parts])


def last(logs: Sequence[WorkerLog], count: int) -> list[tuple[int, Iterator[OutputLine]]]:
    """The last ``count`` lines of one log, whose files of several lives are given oldest first; by life."""
    streams: list[tuple[int, Iterator[OutputLine]]] = []
    for log in reversed(logs):
        places: list[tuple[Path, int]] = []
        for part in reversed(log.parts):
            if count <= 0:
                break
            begin, found = begin_of_last(part, count)
            places.insert(0, (part, begin))
            count -= found
        if places:
            streams.insert(0, (log.incarnation, _lines(log, places)))
    return streams


def begin_of_last(path: Path, count: int) -> tuple[int, int]:
    """Where the last ``count`` lines of a file begin, and how many they are; it is read from its end."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            found, end = 0, size - 1  # a newline at the very end begins no line
            while end > 0:
                at = max(0, end - _CHUNK)
                file.seek(at)
                place = len(chunk := file.read(end - at))
                while (place := chunk.rfind(b"\n", 0, place)) >= 0:
                    found += 1
                    if found == count:
                        return at + place + 1, count
                end = at
            return 0, found + (size > 0)
    except OSError:
        return 0, 0


class GrowingLog:
    """A log that may still grow, from ``begin`` on; it may be cut meanwhile."""

    def __init__(self, log: WorkerLog, begin: int = 0) -> None:
        self.log, self._at_byte = log, begin
        self._rest = b""
        self._at = ""

    def new_lines(self) -> list[OutputLine]:
        """Whole lines that came since the last call, at most a megabyte of them."""
        try:
            with self.log.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._at_byte:
                    self._at_byte = 0
                file.seek(self._at_byte)
                data = file.read(_BATCH_BYTES)
        except OSError:
            return []
        self._at_byte += len(data)
        *texts, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            texts.append(self._rest)
            self._rest = b""
        return [self._line(text) for text in texts]

    def last_lines(self) -> Iterator[OutputLine]:
        """All that is there, also a last line without its end: it is not written any more."""
        while more := self.new_lines():
            yield from more
        if self._rest:
            yield self._line(self._rest)
            self._rest = b""

    def _line(self, text: bytes) -> OutputLine:
        self._at = max(self._at, time_of(text, self.log.path))
        return OutputLine(self._at, self.log, text)


def time_of(text: bytes, path: Path) -> str:
    """The time at the beginning of a line, to be sorted; empty where there is none."""
    head = text[:_HEAD_BYTES]
    if found := _ISO.search(head):
        date, clock, parts = b"-".join(found.groups()[:3]), found[4], found[5]
    elif found := _GLOG.search(head):
        year = datetime.fromtimestamp(path.stat().st_mtime).year
        date, clock, parts = b"%d-%b-%b" % (year, found[1], found[2]), found[3], found[4]
    else:
        return ""
    return (date + b" " + clock + b"." + (parts or b"0").ljust(6, b"0")).decode()


def _lines(log: WorkerLog, places: Sequence[tuple[Path, int]]) -> Iterator[OutputLine]:
    at = ""
    for path, begin in places:
        with suppress(OSError), path.open("rb") as file:  # gone meanwhile: another run begins here
            file.seek(begin)
            while text := file.readline(_LONGEST_LINE):
                at = max(at, time_of(text, path))
                yield OutputLine(at, log, text.rstrip(b"\n"))
