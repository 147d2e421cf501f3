"""What the kernel writes about dying processes and faulty devices, where we may read it (/dev/kmsg).

Records are ``priority,sequence,microseconds,flags;text`` (Documentation/ABI/testing/dev-kmsg). Inside a
container the file is usually not readable, and its pids are the machine's; then control groups must do.
"""

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_KILLED = re.compile(r"Killed process (\d+) \(.*?\).*?anon-rss:(\d+)kB")
"""mm/oom_kill.c, __oom_kill_process()."""

_FAULT = re.compile(r"^(.*)\[(\d+)\]: (segfault at .*|general protection fault .*|trap .*)$")
"""arch/x86/mm/fault.c, show_signal_msg(): name and number are those of the thread."""

_SAME_MOMENT_S = 2.0
"""Between the kernel's two clocks, and from the fault to the end of the process (a core file takes time)."""

_RECORD_BYTES = 8192
_MOST_RECORDS = 20000


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKill:
    """One process that the OOM killer ended."""

    pid: int
    anon_rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line; ``at_s`` by a clock that runs with CLOCK_MONOTONIC_RAW, a fraction of a second beside it."""

    text: str
    at_s: float = 0.0


class KernelLog:
    """Reads what was written since ``mark``; silent where the log may not be read."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        try:
            self._fd: int | None = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._fd = None
        self.mark()

    def mark(self) -> None:
        """Forget everything up to now."""
        if self._fd is not None:
            os.lseek(self._fd, 0, os.SEEK_END)

    def records(self) -> tuple[Record, ...]:
        """All records since the mark or the last call, oldest first."""
        if self._fd is None:
            return ()
        found: list[Record] = []
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten before we came; reading goes on with what is left
                continue
            except OSError:
                break
            if not record:
                break
            found.append(_record(record.decode("utf-8", "replace")))
        return tuple(found)

    def close(self) -> None:
        """Let go of the log."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def oom_kills(lines: Sequence[str]) -> tuple[OomKill, ...]:
    """The processes that the OOM killer ended, by these lines."""
    found = (_KILLED.search(line) for line in lines)
    return tuple(OomKill(pid=int(m[1]), anon_rss_bytes=int(m[2]) * 1024) for m in found if m)


def memory_fault(lines: Sequence[str], pid: int) -> str:
    """What the kernel says of the memory fault of ``pid``: address and library; empty if nothing."""
    return next((m[3] for m in (_FAULT.search(line) for line in lines) if m and int(m[2]) == pid), "")


def thread_fault(records: Sequence[Record], died_at_s: float, others: Collection[int]) -> str:
    """The memory fault of a thread whose process ended at ``died_at_s``; empty if unknown.

    The kernel names the thread alone, and when its process can be looked at the thread is gone: so it is
    the only fault of that moment that none of ``others`` (pids) had, or none.
    """
    near = [record for record in records if abs(record.at_s - died_at_s) <= _SAME_MOMENT_S]
    found = [m for m in (_FAULT.search(record.text) for record in near) if m and int(m[2]) not in others]
    return f"{found[0][3]} (thread {found[0][1]})" if len(found) == 1 else ""


def _record(raw: str) -> Record:
    head, _, rest = raw.partition(";")
    fields = head.split(",")
    at_us = fields[2] if len(fields) > 2 and fields[2].isdecimal() else "0"
    return Record(text=rest.partition("\n")[0], at_s=int(at_us) / 1e6)
