"""Gathers the evidence about dead workers: a glance while they die, the reading once all are gone."""

import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from faultrun.core.logged_steps import first_step, last_step
from faultrun.core.phases.one_stop import STOP_SIGNUMS
from faultrun.files import bytes_from, text_of
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.observed.evidence import DeathNote, FaultClass, Finding, Row
from faultrun.model.wire import SIGNALS_FILE, Progress
from faultrun.platforms.cgroup import memory_group, oom_kill_count
from faultrun.platforms.kernel_log import KernelLog, Record, memory_fault, oom_kills, thread_fault
from faultrun.supervisor.reactor import RunClock
from faultrun.workers.logs.death_evidence import death_note
from faultrun.workers.logs.log_files import LogFiles

_SIGKILL, _SIGSEGV, _SIGBUS = 9, 11, 7
_SHM = "/dev/shm"
_GROUPS = Path("/proc/self/cgroup")
_FULL = 0.98
_NO_ROOM_BYTES = 65536
_NUMBERS, _MOST_BYTES = 4, 1 << 20
_MORE_SHM = "a larger /dev/shm: emptyDir with medium Memory, docker --shm-size"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Glance:
    """What can be seen of a process only before it is reaped."""

    pid: int
    status: ExitStatus
    at_s: float = 0.0  # CLOCK_MONOTONIC_RAW
    oom_kills: int = 0
    shm: tuple[int, int] | None = None  # bytes used, bytes there are


class ExitInspector:
    """Collects evidence of deaths: ``begin`` and ``saw`` in the loop's thread, ``notes`` in any other."""

    def __init__(self, rows: Sequence[Row], clock: RunClock, stops: Collection[int] = ()) -> None:
        """``stops``: the signals that mean a stop."""
        self._rows, self._clock, self._stops = rows, clock, stops
        self._kernel = KernelLog()
        self._seen: dict[int, _Glance] = {}
        self._groups, self._began_ns = "", 0
        self._own: Path | None = None
        self._counted: dict[Path | None, int] = {}

    def begin(self) -> None:
        """A new incarnation: what was before is not about it."""
        self._seen.clear()
        self._began_ns = time.time_ns()
        self._kernel.mark()
        groups = text_of(_GROUPS)
        if groups != self._groups:  # its mount is looked for only then: all nodes may wait for this start
            self._groups, self._own = groups, memory_group(os.getpid())
        self._counted = {self._own: oom_kill_count(self._own)}

    def saw(self, rank: int, pid: int, status: ExitStatus) -> None:
        """``pid`` has ended and is not reaped yet."""
        glance = _Glance(pid=pid, status=status, at_s=time.clock_gettime(time.CLOCK_MONOTONIC_RAW))
        if status == Signaled(signum=_SIGKILL):
            groups = {memory_group(pid), self._own}
            grown = max(oom_kill_count(one) - self._counted.get(one, 0) for one in groups)
            glance = replace(glance, oom_kills=grown)
        elif status == Signaled(signum=_SIGBUS):
            glance = replace(glance, shm=_usage(_SHM))
        self._seen[rank] = glance

    def notes(
        self, ranks: tuple[int, ...], logs: LogFiles, words: Mapping[int, Progress | None]
    ) -> tuple[DeathNote, ...]:
        """One note for each of ``ranks``; ``words`` are the last of those that spoke the SDK."""
        kernel_records = self._kernel.records()
        found = []
        for rank in ranks:
            glance = self._seen.get(rank)
            note = death_note(
                rank,
                logs.parts(rank),
                logs.error_file(rank),
                glance.status if glance is not None else None,
                self._rows,
                self._clock.of_utc_ns,
                logs.step_pattern,
            )
            if glance is not None:
                known = self._by_kernel(glance, kernel_records) or note.finding
                known = known or _log_disk_full(glance.status, note, logs.folder)
                note = replace(note, finding=_left_over(note, self._began_ns) or known)
            note = replace(note, reports=words.get(rank) is not None)
            found.append(self._with_signal(note, logs, words.get(rank)))
        return tuple(found)

    def _with_signal(self, note: DeathNote, logs: LogFiles, word: Progress | None) -> DeathNote:
        """``note`` with the last signal to stop that the rank's program took, and what it did since.

        One that means no stop (``--signals``) was one all the same where the rank did no step after it.
        """
        noted = logs.folder / SIGNALS_FILE.format(rank=note.rank)
        lines = [[int(one) for one in line.split() if one.isdecimal()] for line in text_of(noted).split("\n")]
        told = [one for one in lines if len(one) == _NUMBERS and one[0] in STOP_SIGNUMS]
        if not told:
            return note
        signum, *sizes, count = told[-1]
        files = (logs.worker(note.rank), logs.worker_errors(note.rank))
        data = (bytes_from(file, size, _MOST_BYTES) for file, size in zip(files, sizes, strict=True))
        later = [line for one in data for line in one.decode("utf-8", "replace").splitlines()]
        first, last = first_step(later, logs.step_pattern), last_step(later, logs.step_pattern)
        known = last is not None or note.logged_step is not None or note.logged_in_epoch is not None
        trained_on = first != last if known else None
        if word is not None and word.count > 0:
            trained_on = word.count > count + 1
        if signum not in self._stops and trained_on is not False:
            return note
        with suppress(OSError):
            at_s = self._clock.of_utc_ns(noted.stat().st_mtime_ns)
            return replace(note, told=(signum, at_s), trained_on=trained_on)
        return note

    def close(self) -> None:
        """Let go of the kernel's log."""
        self._kernel.close()

    def _by_kernel(self, glance: _Glance, records: Sequence[Record]) -> Finding | None:
        """What outranks the worker's own words, because it had none."""
        lines = [record.text for record in records]
        killed = next((kill for kill in oom_kills(lines) if kill.pid == glance.pid), None)
        if killed is not None:
            return _out_of_memory(
                f"the kernel's OOM killer ended pid {killed.pid} (anon-rss {_size(killed.anon_rss_bytes)})"
            )
        if glance.oom_kills > 0:
            return _out_of_memory("the kernel's OOM killer ended it at the memory limit of its control group")
        if glance.shm is not None:
            return _bus_error(*glance.shm)
        broken = [row for row in self._rows if row.fault_class is FaultClass.HARDWARE]
        for line in lines:
            found = next((found for row in broken if (found := row.found_in(line))), None)
            if found is not None:
                return found
        if glance.status != Signaled(signum=_SIGSEGV):
            return None
        others = {one.pid for one in self._seen.values()}
        fault = memory_fault(lines, glance.pid) or thread_fault(records, glance.at_s, others)
        if fault:
            return Finding(
                name="memory-fault", fault_class=FaultClass.UNKNOWN, says="memory fault", line=fault
            )
        return None


def _out_of_memory(line: str) -> Finding:
    return Finding(
        name="oom-killer",
        fault_class=FaultClass.RESOURCE,
        says="out of memory",
        line=line,
        hint="a larger memory limit, fewer data loader workers, smaller caches",
    )


def _bus_error(used_bytes: int, total_bytes: int) -> Finding:
    """What nameless files held was freed when the process ended, before it could be looked at."""
    if used_bytes >= _FULL * total_bytes:
        return Finding(
            name="shared-memory",
            fault_class=FaultClass.RESOURCE,
            says="shared memory is full",
            line=f"SIGBUS, and {_SHM} has no room",
            hint=_MORE_SHM,
        )
    return Finding(
        name="bus-error",
        fault_class=FaultClass.UNKNOWN,
        says="a mapped file lost its page: no room in its file system, or the file was cut",
        line=f"{_SHM} has {_size(total_bytes)}, {_size(used_bytes)} of it in use after its end",
        hint=f"{_MORE_SHM}, if it passes tensors there",
    )


def _log_disk_full(status: ExitStatus, note: DeathNote, folder: Path) -> Finding | None:
    """A worker that cannot print ends with an error that it cannot print either."""
    if not isinstance(status, Exited) or status.code == 0 or note.raised is not None:
        return None
    try:
        room = os.statvfs(folder)
    except OSError:
        return None
    if room.f_bavail * room.f_frsize >= _NO_ROOM_BYTES and (room.f_favail or not room.f_files):
        return None
    return Finding(
        name="log-disk-full",
        fault_class=FaultClass.RESOURCE,
        says="the disk is full",
        line=f"no room in {folder}, where its output goes",
        hint="df -h and df -i of the log_dir",
    )


def _left_over(note: DeathNote, began_ns: int) -> Finding | None:
    """Named memory that an earlier life made is in the way of a rank that makes it again."""
    raised = note.raised
    named = None if raised is None else re.search(rf"'(?:{_SHM})?/?([^'/]+)'", raised.message)
    if raised is None or raised.kind != "FileExistsError" or named is None:
        return None
    try:
        made_ns = (left := Path(_SHM) / named[1]).stat().st_ctime_ns
    except OSError:
        return None
    if made_ns >= began_ns:
        return None
    return Finding(
        name="left-over",
        fault_class=FaultClass.TRANSIENT,
        says=f"{left} is left over from rank {note.rank}",
        line=f"an earlier life made {left}",
        hint=f"rm {left}; a name with FAULTRUN_INCARNATION in it meets nothing of before",
    )


def _usage(path: str) -> tuple[int, int] | None:
    try:
        seen = os.statvfs(path)
    except OSError:
        return None
    used, total = seen.f_blocks - seen.f_bfree, seen.f_blocks
    return (used * seen.f_frsize, total * seen.f_frsize) if total > 0 else None


def _size(size_bytes: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes >> 10} KiB"
