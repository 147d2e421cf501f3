"""Who lives in a worker's session beside its leader (proc_pid_stat(5))."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_FORKED_ONLY = 0x40  # PF_FORKNOEXEC, include/linux/sched.h
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox", "fish", "csh", "tcsh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A living process. ``program``: it was executed; a copy of its parent, as a data loader is, was not."""

    pid: int
    parent: int
    program: bool


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
                found[pid] = Member(pid=pid, parent=int(parent), program=program)
    return found


def highest(found: dict[int, Member]) -> list[int]:
    """Those whose end nobody above them would tell them of: no program of the session is their ancestor."""
    return [pid for pid in found if not _has_program_above(found[pid], found)]


def is_shell(pid: int) -> bool:
    """Whether ``pid`` runs a shell; known of a process that has ended, too, until it is reaped."""
    try:
        name, _ = _stat(pid)
    except OSError:
        return False
    return name in _SHELLS


def _has_program_above(member: Member, found: dict[int, Member]) -> bool:
    seen = {member.pid}
    above = found.get(member.parent)
    while above is not None and above.pid not in seen:
        if above.program:
            return True
        seen.add(above.pid)
        above = found.get(above.parent)
    return False


def _stat(pid: int) -> tuple[str, list[str]]:
    """The name, and the fields from the state to the flags."""
    text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    name = text[text.index("(") + 1 : text.rindex(")")]
    return name, text[text.rindex(")") + 1 :].split()[:7]
