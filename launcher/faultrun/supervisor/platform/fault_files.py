"""Watches the platform's fault files, from a process of its own.

A file on a hung file system, a gigantic or a hostile one holds up or fills that
process and not the supervisor; what it understood arrives as one line a notice.
"""

import contextlib
import json
import os
import select
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from faultrun.files import readable
from faultrun.journal.codec import CodecError, decode, encode
from faultrun.model.events import Event, FaultNotice
from faultrun.model.observed.platform_notice import Notice, TableVersion, UnreadableNotice
from faultrun.model.spec.run_spec import FaultFiles
from faultrun.platforms.fault_files import (
    MOST_FAULT_FILE_BYTES,
    parse_fault_ranks,
    parse_reset,
    parse_restart_kind,
    parse_version,
)
from faultrun.platforms.file_watch import FileWatch
from faultrun.platforms.untrusted_files import read_bounded
from faultrun.supervisor.launch.progress_page import LiveWorkers
from faultrun.supervisor.reactor import Reactor
from faultrun.workers.forked_helper import Forked

_TICK_MS = 1000
_SETTLE_S = 0.05
_SETTLE_LOOKS = 40
_DOUBT_S, _PATIENCE_S = 1.0, 2.0
_CHUNK = 1 << 16
_READY = b"ready"

Parse = Callable[[bytes], Notice | None]
_Stamp = tuple[int, int, int]


def sources(files: FaultFiles, rank_table_file: str) -> dict[Path, Parse]:
    """Each file to watch and what reads it. ``version`` beside a rank table exists on shared storage only."""
    found: dict[Path, Parse] = {}
    if files.fault_config:
        found[Path(files.fault_config)] = parse_fault_ranks
    if files.reset_config:
        found[Path(files.reset_config)] = _Reset(Path(files.reset_config).with_name("restartType"), files)
    if rank_table_file:
        version = Path(rank_table_file).absolute().with_name("version")
        found[version] = lambda content: TableVersion(version=parse_version(content))
    return found


class FaultFileWatcher:
    """The supervisor's end. Nothing here blocks but ``first`` and ``close``, for ``patience_s`` at most."""

    def __init__(self, watched: dict[Path, Parse], patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._fd, report = os.pipe2(os.O_CLOEXEC)
        stop, self._held = os.pipe2(os.O_CLOEXEC)
        self._unread = b""
        self._watcher = Forked(lambda: _Watcher(watched, report).run(stop), keep=(report, stop))
        os.close(report)
        os.close(stop)
        os.set_blocking(self._fd, False)

    def first(self) -> tuple[Notice, ...]:
        """What the files say now; empty for what they do not say in time."""
        found: list[Notice] = []
        deadline = time.monotonic() + self._patience_s
        while (left_s := deadline - time.monotonic()) > 0:
            for line in self._lines() if readable(left_s, self._fd) else ():
                if line == _READY:
                    return tuple(found)
                found += (notice for notice, _ in _notices(line))
        return tuple(found)

    def attach(self, reactor: Reactor, workers: LiveWorkers) -> None:
        """Have every further notice returned by ``reactor``, after how far the workers are.

        What was there as the watcher began was known, although it may have come too late for ``first``:
        another file is written just then, or the machine is busy.
        """

        def told() -> Iterable[Event]:
            for line in self._lines():
                for notice, known in _notices(line):
                    yield from workers.newest_steps()
                    at_s, life = reactor.clock.now(), workers.incarnation
                    yield FaultNotice(at_s=at_s, incarnation=life, notice=notice, known=known)
            if self._fd < 0:
                reactor.forget(watched)

        watched = self._fd
        reactor.watch(watched, told)

    def close(self) -> None:
        """End the watching process."""
        os.close(self._held)
        self._watcher.end(self._patience_s)

    def _lines(self) -> Iterator[bytes]:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._fd = -1
        *lines, self._unread = (self._unread + data).split(b"\n")
        yield from lines


@dataclass(frozen=True, slots=True)
class _Reset:
    """``reset.json`` is read together with ``restartType`` and with what the user allows."""

    kind_file: Path
    files: FaultFiles

    def __call__(self, content: bytes) -> Notice | None:
        if (notice := parse_reset(content)) is None:
            return None
        kind = b""
        with contextlib.suppress(OSError, ValueError):
            kind = read_bounded(self.kind_file, MOST_FAULT_FILE_BYTES)
        restart_in_place = notice.restart_in_place and self.files.restart_in_place
        return replace(notice, kind=parse_restart_kind(kind), restart_in_place=restart_in_place)


@dataclass(slots=True)
class _Watcher:
    """In the child: looks when something may have changed, and tells what is new, and whether it was old.

    ``began`` is how each file was when this process began: to read them may take too long.
    """

    watched: dict[Path, Parse]
    report: int
    began: dict[Path, _Stamp | None] = field(default_factory=dict)
    said: dict[Path, Notice] = field(default_factory=dict)
    doubts: dict[Path, tuple[float, str]] = field(default_factory=dict)

    def run(self, stop: int) -> None:
        """Return when the supervisor's end of ``stop`` is closed."""
        self.began = {file: _stamp(file) for file in self.watched}
        kinds = [parse.kind_file for parse in self.watched.values() if isinstance(parse, _Reset)]
        watch = FileWatch((*self.watched, *kinds))
        poll = select.poll()
        poll.register(stop, select.POLLIN)
        if watch.fd >= 0:
            poll.register(watch.fd, select.POLLIN)
        self._look()
        self._tell_doubts()
        self._write(_READY)
        self.began.clear()  # a file that is as it was may mean something else beside a new ``restartType``
        while stop not in (fd for fd, _ in poll.poll(_TICK_MS)):
            if watch.touched():
                self._look()
            self._tell_doubts()

    def _look(self) -> None:
        for file, parse in self.watched.items():
            try:
                content = _settled(file)
                notice = parse(content) if content.strip() else None
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.doubts.setdefault(file, (_since(file), os.strerror(error.errno or 0)))
                continue
            except ValueError as error:
                self.doubts.setdefault(file, (_since(file), str(error)))
                continue
            self.doubts.pop(file, None)
            if notice is not None:
                self._tell(file, notice)

    def _tell_doubts(self) -> None:
        """A file is doubtful for a moment whenever it is written; a person hears of it if it stays so."""
        for file, (since, why) in self.doubts.items():
            if time.monotonic() - since > _DOUBT_S:
                self._tell(file, UnreadableNotice(file=str(file), why=why))

    def _tell(self, file: Path, notice: Notice) -> None:
        if self.said.get(file) != notice:
            self.said[file] = notice
            old = self.began.get(file)
            known = old is not None and _stamp(file) == old and not isinstance(notice, UnreadableNotice)
            self._write(json.dumps({"known": known, "notice": encode(notice)}).encode())

    def _write(self, line: bytes) -> None:
        data = line + b"\n"
        while data:
            data = data[os.write(self.report, data) :]


def _stamp(file: Path) -> _Stamp | None:
    """None where it is not there."""
    with contextlib.suppress(OSError):
        seen = file.stat()
        return seen.st_ino, seen.st_size, seen.st_mtime_ns
    return None


def _since(file: Path) -> float:
    """For how long it has been as it is, on the monotonic clock; what cannot be told begins now."""
    with contextlib.suppress(OSError):
        return time.monotonic() - max(0.0, time.time() - file.stat().st_mtime)
    return time.monotonic()


def _settled(file: Path) -> bytes:
    """What two looks in a row found; ValueError if the file never stands still, OSError if unreadable."""
    before = read_bounded(file, MOST_FAULT_FILE_BYTES)
    for _ in range(_SETTLE_LOOKS):
        time.sleep(_SETTLE_S)  # in a process that does nothing else
        if (now := read_bounded(file, MOST_FAULT_FILE_BYTES)) == before:
            return now
        before = now
    raise ValueError("it does not stop changing")


def _notices(line: bytes) -> list[tuple[Notice, bool]]:
    """What a line of our child says: a notice, and whether it was old; none if it was cut off by its end."""
    try:
        told = json.loads(line)
        notice: Notice = decode(told["notice"], Notice)
    except (ValueError, TypeError, KeyError, CodecError):
        return []
    return [(notice, bool(told["known"]))]
