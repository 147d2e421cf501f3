"""What the kernel says about a worker, its children and its session: proc(5), read without ever waiting.

``stat``, ``schedstat``, ``io``, ``wchan``, ``syscall``, ``stack`` and ``status`` take no lock that a process
in an uninterruptible sleep may hold; ``cmdline``, ``environ`` and ``maps`` do, and are not read here.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from faultrun.files import text_of
from faultrun.model.wire import UNANSWERED_SIGNAL

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_SLEEPING_CALLS = {
    "x86_64": {35: "nanosleep", 230: "clock_nanosleep", 202: "futex", 232: "epoll_wait", 281: "epoll_pwait",
               7: "poll", 271: "ppoll", 23: "select", 270: "pselect6", 45: "recvfrom", 47: "recvmsg",
               0: "read", 1: "write", 44: "sendto", 46: "sendmsg", 61: "wait4", 247: "waitid", 34: "pause",
               73: "flock", 72: "fcntl", 74: "fsync", 75: "fdatasync", 288: "accept4", 42: "connect"},
    "aarch64": {101: "nanosleep", 115: "clock_nanosleep", 98: "futex", 22: "epoll_pwait", 73: "ppoll",
                72: "pselect6", 207: "recvfrom", 212: "recvmsg", 63: "read", 64: "write", 206: "sendto",
                211: "sendmsg", 260: "wait4", 95: "waitid", 32: "flock", 25: "fcntl", 82: "fsync",
                83: "fdatasync", 242: "accept4", 203: "connect"},
}  # fmt: skip
"""Numbers of calls that wait, from the kernel's syscall tables of the two architectures."""

_CPU_CLOCK = 2  # CPUCLOCK_SCHED, include/linux/posix-timers_types.h: of a whole process
_FORKED_ONLY = 0x40  # PF_FORKNOEXEC, include/linux/sched.h
_HELD = re.compile(r"^Sig(?:Blk|Cgt):\t([0-9a-f]+)$", re.MULTILINE)
_CAUGHT = re.compile(r"^SigCgt:\t([0-9a-f]+)$", re.MULTILINE)
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox", "fish", "csh", "tcsh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One process and its session at one moment. Times are seconds since their start, sizes bytes.

    ``main_wakes`` counts how often the main thread came to a processor.
    """

    state: str
    cpu_s: float
    main_cpu_s: float
    main_starved_s: float
    main_wakes: int
    children_cpu_s: float
    io_bytes: int


def state_of(pid: int) -> str:
    """The letter of the process's state: R S D T t Z X; empty when it is gone."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def snapshots(pids: tuple[int, ...]) -> dict[int, Snapshot]:
    """One look at each of ``pids``, which lead sessions; their children are those of the same session."""
    children: dict[int, list[int]] = {pid: [] for pid in pids}
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields and int(fields[3]) in children and int(entry.name) != int(fields[3]):
                children[int(fields[3])].append(int(entry.name))
    found = {pid: _snapshot(pid, children[pid]) for pid in pids}
    return {pid: one for pid, one in found.items() if one is not None}


def processor_s(pid: int) -> float:
    """Processor time of the process and all its threads so far, to the nanosecond; 0 where it is gone."""
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | _CPU_CLOCK)
    return 0.0


def waiting_in(pid: int) -> tuple[str, str]:
    """The kernel function and the system call that the main thread waits in; empty if unknown."""
    wchan = text_of(_PROC / str(pid) / "wchan").strip()
    number = text_of(_PROC / str(pid) / "syscall").partition(" ")[0]
    names = _SLEEPING_CALLS.get(os.uname().machine, {})
    call = names.get(int(number), f"system call {number}") if number.isdecimal() else ""
    return "" if wchan == "0" else wchan, call


def catches(pid: int, signum: int) -> bool:
    """Whether the process has a handler for ``signum``."""
    return _mask(pid, _CAUGHT, signum)


def hears(pid: int, signum: int) -> bool:
    """Whether the process has a handler for ``signum``, or holds it back to wait for it."""
    return _mask(pid, _HELD, signum)


def answers(pid: int, signum: int) -> bool:
    """Whether the program that runs there has a handler of its own for ``signum``."""
    return catches(pid, signum) and not catches(pid, UNANSWERED_SIGNAL)


def kernel_view(pid: int) -> str:
    """``status``, ``wchan``, ``syscall`` and ``stack``, as far as we may read them, for a person."""
    read = ((name, text_of(_PROC / str(pid) / name)) for name in ("status", "wchan", "syscall", "stack"))
    return "\n".join(f"/proc/{pid}/{name}\n{text.rstrip()}\n" for name, text in read if text.rstrip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A living process. ``program``: it was executed; a copy of its parent, as a data loader is, was not.

    ``hears``: it catches SIGTERM, or holds it back to wait for it. ``began_s`` is on CLOCK_BOOTTIME.
    """

    pid: int
    parent: int
    program: bool
    hears: bool
    session: int = 0
    began_s: float = 0.0


def members(leader: int, too: "Callable[[os.DirEntry[str]], bool]" = lambda _: False) -> dict[int, Member]:
    """Every living process of the session that ``leader`` began, by pid, without ``leader``.

    ``too``: whether one of another session is with them.
    """
    found = {}
    for entry in os.scandir(_PROC):
        pid = int(entry.name) if entry.name.isdigit() else leader
        if pid == leader:
            continue
        with suppress(OSError):
            if (session := os.getsid(pid)) != leader and not too(entry):
                continue
            if (fields := _stat(pid)) and fields[0] not in "ZX":
                program = not int(fields[6]) & _FORKED_ONLY
                asked, began_s = hears(pid, signal.SIGTERM), int(fields[19]) / _TICKS
                one = Member(pid=pid, parent=int(fields[1]), program=program, hears=asked)
                found[pid] = replace(one, session=session, began_s=began_s)
    return found


def to_ask(found: Mapping[int, Member]) -> list[int]:
    """Those to be told that the end comes: no leader above them would do it, and it does not only end them.

    No program of the session is their ancestor. Who would merely die of SIGTERM (``tee`` behind a pipe,
    which must live through the save of who writes to it) is passed over while one that hears it lives.
    """
    highest = {pid for pid in found if not any(one.program for one in above(found[pid], found))}
    hear = {pid for pid in found if found[pid].program and found[pid].hears}
    lead_there = hear.union(*({one.pid for one in above(found[pid], found)} for pid in hear))
    return sorted(highest & lead_there if hear else highest)


def programs(pids: Iterable[int]) -> frozenset[int]:
    """Those that were executed, and what they have forked; not what only others have."""
    found: set[int] = set()
    for pid in sorted(pids):
        if (fields := _stat(pid)) and (not int(fields[6]) & _FORKED_ONLY or int(fields[1]) in found):
            found.add(pid)
    return frozenset(found)


def is_shell(pid: int) -> bool:
    """Whether ``pid`` runs a shell; known of a process that has ended, too, until it is reaped."""
    stat = text_of(_PROC / str(pid) / "stat")
    return stat[stat.find("(") + 1 : stat.rfind(")")] in _SHELLS


def above(member: Member, found: Mapping[int, Member]) -> list[Member]:
    """Its ancestors among them, the nearest first."""
    line, seen = [], {member.pid}
    above = found.get(member.parent)
    while above is not None and above.pid not in seen:
        line.append(above)
        seen.add(above.pid)
        above = found.get(above.parent)
    return line


def _snapshot(pid: int, children: list[int]) -> Snapshot | None:
    if not (own := _stat(pid)):
        return None
    main = text_of(_PROC / str(pid) / "task" / str(pid) / "schedstat").split()
    thread = _fields(text_of(_PROC / str(pid) / "task" / str(pid) / "stat"))
    return Snapshot(
        state=own[0],
        cpu_s=_cpu_s(own),
        main_cpu_s=int(main[0]) / 1e9 if main else _cpu_s(thread or own),
        main_starved_s=int(main[1]) / 1e9 if len(main) > 1 else 0.0,
        main_wakes=int(main[2]) if len(main) > 2 else 0,
        children_cpu_s=sum(_cpu_s(_stat(child)) for child in children),
        io_bytes=sum(_io_bytes(one) for one in (pid, *children)),
    )


def _io_bytes(pid: int) -> int:
    """All that passed through read and write, caches and pipes too."""
    lines = dict(line.split(": ") for line in text_of(_PROC / str(pid) / "io").splitlines())
    return int(lines.get("rchar", 0)) + int(lines.get("wchar", 0))


def _mask(pid: int, masks: re.Pattern[str], signum: int) -> bool:
    """Whether one of these masks of proc_pid_status(5) has ``signum``."""
    status = text_of(_PROC / str(pid) / "status")
    return any(int(mask, 16) >> (signum - 1) & 1 for mask in masks.findall(status))


def _cpu_s(fields: list[str]) -> float:
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


def _stat(pid: int) -> list[str]:
    """Read without a buffer and text's own reader: it is asked of each rank several times a second."""
    with suppress(OSError), open(f"{_PROC}/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123
        return _fields(file.read().decode(errors="replace"))
    return []


def _fields(stat: str) -> list[str]:
    """Fields of proc(5) stat from the third, the state, on; a name may contain anything."""
    return stat.rpartition(")")[2].split()
