"""Who lives in a worker's session beside its leader (proc_pid_stat(5))."""

import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_FORKED_ONLY = 0x40  # PF_FORKNOEXEC, include/linux/sched.h
_HELD = re.compile(r"^Sig(?:Blk|Cgt):\t([0-9a-f]+)$", re.MULTILINE)
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox", "fish", "csh", "tcsh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A living process. ``program``: it was executed; a copy of its parent, as a data loader is, was not.

    ``hears``: SIGTERM does something else to it than end it, now or later.
    """

    pid: int
    parent: int
    program: bool
    hears: bool


def members(leader: int) -> dict[int, Member]:
    """Every living process of the session that ``leader`` began, by pid, without ``leader``."""
    found = {}
    for entry in os.scandir(_PROC):
        pid = int(entry.name) if entry.name.isdigit() else leader
        if pid == leader:
            continue
        with suppress(OSError):
            if os.getsid(pid) != leader:
                continue
            _, (state, parent, *_, flags) = _stat(pid)
            if state not in "ZX":
                program = not int(flags) & _FORKED_ONLY
                found[pid] = Member(pid=pid, parent=int(parent), program=program, hears=_hears_sigterm(pid))
    return found


def to_ask(found: dict[int, Member]) -> list[int]:
    """Those to be told that the end comes: nobody above them would do it, and it does not only end them.

    No program of the session is their ancestor. Who would merely die of SIGTERM (``tee`` behind a pipe,
    which must live through the save of who writes to it) is passed over while one that hears it lives.
    """
    highest = {pid for pid in found if not any(one.program for one in _above(found[pid], found))}
    hear = {pid for pid in found if found[pid].program and found[pid].hears}
    lead_there = hear.union(*({one.pid for one in _above(found[pid], found)} for pid in hear))
    return sorted(highest & lead_there if hear else highest)


def is_shell(pid: int) -> bool:
    """Whether ``pid`` runs a shell; known of a process that has ended, too, until it is reaped."""
    try:
        name, _ = _stat(pid)
    except OSError:
        return False
    return name in _SHELLS


def _above(member: Member, found: dict[int, Member]) -> list[Member]:
    """Its ancestors in the session, the nearest first."""
    line, seen = [], {member.pid}
    above = found.get(member.parent)
    while above is not None and above.pid not in seen:
        line.append(above)
        seen.add(above.pid)
        above = found.get(above.parent)
    return line


def _hears_sigterm(pid: int) -> bool:
    """Whether it catches SIGTERM, or holds it back to wait for it (proc_pid_status(5))."""
    status = (_PROC / str(pid) / "status").read_text(errors="replace")
    return any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in _HELD.findall(status))


def _stat(pid: int) -> tuple[str, list[str]]:
    """The name, and the fields from the state to the flags."""
    text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    name = text[text.index("(") + 1 : text.rindex(")")]
    return name, text[text.rindex(")") + 1 :].split()[:7]
