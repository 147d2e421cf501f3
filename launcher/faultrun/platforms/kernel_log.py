"""What the kernel writes about dying processes and faulty devices, where we may read it (/dev/kmsg).

Records are ``priority,sequence,microseconds,flags;text``
(Documentation/ABI/testing/dev-kmsg). Inside a container the file is usually
not readable, and its pids are the machine's; then control groups must do.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

_KILLED = re.compile(r"Killed process (\d+) \(.*?\).*?anon-rss:(\d+)kB")
"""mm/oom_kill.c, __oom_kill_process()."""

_FAULT = re.compile(r"\[(\d+)\]: (segfault at .*|general protection fault .*|trap .*)$")
"""arch/x86/mm/fault.c, show_signal_msg()."""

_RECORD_BYTES = 8192
_MOST_RECORDS = 20000


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKill:
    """One process that the OOM killer ended."""

    pid: int
    anon_rss_bytes: int


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

    def lines(self) -> tuple[str, ...]:
        """The texts of all records since the mark or the last call, oldest first."""
        if self._fd is None:
            return ()
        found: list[str] = []
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
            text = record.decode("utf-8", "replace").partition(";")[2]
            found.append(text.partition("\n")[0])
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
    found = (_FAULT.search(line) for line in lines)
    return next((m[2] for m in found if m and int(m[1]) == pid), "")
