"""Find what escaped from its session: every process that carries our tag, in limits or environment."""

import math
import os
import re
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from faultrun.files import readable, sha256
from faultrun.workers.proc_reader import programs

TAG_VARIABLE = "FAULTRUN_BOOT_ID"
"""Random for each supervisor process, so that a tag can never mean another's process."""

_CLEAN_UP_S = 1.0
"""How long those that clean up after others may take once the others are gone."""

_ENDS_SOON_S, _WORDS = 0.5, 80
_EMPTY_LOOKS = 2
_TEARDOWN_S = 0.003  # the kernel tears processes down at its own pace
_EXEC_S = 0.001
_PROC = Path("/proc")
_RLIMIT_LOCKS = 10  # asm-generic/resource.h; the resource module has no name for it
_SERVICES = (b"torch_shm_manag", b"wandb-core")
_LIMIT = re.compile(rb"^Max file locks +(\d+|unlimited) +(\d+|unlimited) ", re.MULTILINE)


class Strangers:
    """Processes that are not ours, as a look has found: they need no other.

    A process is known by its number and the inode of its folder in ``/proc``, which the next one of that
    number does not get. No process of ours may be started during a look: between fork and tag a child of ours
    looks like a process of another program.
    """

    def __init__(self) -> None:
        self._known: set[tuple[int, int]] = set()

    def look(self, boots: frozenset[str]) -> None:
        """Get to know who is here beside those of ``boots``."""
        for _ in tagged(boots, self):
            pass

    def has(self, entry: "os.DirEntry[str]") -> bool:
        """Whether this process is known not to be ours."""
        return (int(entry.name), entry.inode()) in self._known

    def note(self, entry: "os.DirEntry[str]") -> None:
        """This process is not ours, and will never be."""
        self._known.add((int(entry.name), entry.inode()))


def tagged(boots: frozenset[str], strangers: Strangers | None = None) -> Iterator[int]:
    """The pids of living processes that a supervisor of ``boots`` brought into the world.

    The tag is in ``/proc/<pid>/limits`` (``tag_limit``), which only descendants have. Where limits cannot be
    set it is in ``/proc/<pid>/environ`` alone: the environment at exec, which any program can give.
    So no other living supervisor may have started it. Who is among ``strangers`` is passed by.
    """
    me = str(os.getpid())
    for entry in os.scandir(_PROC):
        if not entry.name.isdigit() or entry.name == me or (strangers is not None and strangers.has(entry)):
            continue
        if ours := _is_ours(int(entry.name), boots):
            yield int(entry.name)
        elif ours is False and strangers is not None:
            strangers.note(entry)


def carries_tag(pid: int, boots: frozenset[str]) -> bool:
    """Whether ``pid`` lives, is ours to signal, and a supervisor of ``boots`` brought it into the world."""
    return _is_ours(pid, boots) is True


def _is_ours(pid: int, boots: frozenset[str]) -> bool | None:
    """None where that is not certain: it has ended, is not ours to ask, or limits tell nothing of it."""
    with suppress(OSError):
        limit, highest = _limits_of(pid)
        if limit not in {tag_limit(boot) for boot in boots if boot}:
            if limit is not None and _can_be_tagged(highest):
                return False
            return (_is_told(pid, boots) and _has_no_other_parent(pid, boots)) or None
        os.kill(pid, 0)
        return _lives(pid) or None
    return None


def _is_told(pid: int, boots: frozenset[str]) -> bool:
    told = b"\0" + told_by(pid, "environ")
    return any(f"\0{TAG_VARIABLE}={boot}\0".encode() in told for boot in boots if boot)


def _has_no_other_parent(pid: int, boots: frozenset[str]) -> bool:
    """Whether the first above it without the variable is one who may have been given our orphans."""
    own = {0, *_line_of(os.getpid())}
    return next((one in own for one in _line_of(pid)[1:] if one in own or not _is_told(one, boots)), True)


def _line_of(pid: int) -> list[int]:
    """The process, its parent, and so on, as far as any rank tells."""
    line = [pid]
    while stat := told_by(line[-1], "stat"):
        line.append(int(stat.rpartition(b")")[2].split()[1]))
    return line


@cache
def tag_limit(boot: str) -> int:
    """The soft limit on file locks (RLIMIT_LOCKS) of what this supervisor brings into the world: 62 bits.

    Linux has not asked for this limit since 2.4.25, and every fork and exec
    hands it on: it stays with a process that clears its environment or writes
    its title over it, that leaves its session, or whose memory is not ours to read.
    """
    return int.from_bytes(sha256(boot.encode()).digest()[:8], "big") >> 2 | 1


def tag(boot: str) -> None:
    """Have this process, and all that come from it, carry the tag; nothing where limits cannot be set."""
    if not boot:
        return
    with suppress(OSError, ValueError):
        resource.setrlimit(_RLIMIT_LOCKS, (tag_limit(boot), resource.getrlimit(_RLIMIT_LOCKS)[1]))


@cache
def _can_be_tagged(highest: int) -> bool:
    """Whether a child of ours with this hard limit would carry the tag."""
    with suppress(OSError, ValueError):
        resource.setrlimit(_RLIMIT_LOCKS, resource.getrlimit(_RLIMIT_LOCKS))
        return not 0 <= highest < 1 << 62
    return False


def _limits_of(pid: int) -> tuple[int | None, int]:
    """The soft and the hard limit; -1 for none; no soft one if unknown."""
    with suppress(FileNotFoundError):  # some sandboxes do not tell
        if (found := _LIMIT.search((_PROC / str(pid) / "limits").read_bytes())) is not None:
            soft, hard = (-1 if one == b"unlimited" else int(one) for one in found.groups())
            return soft, hard
    return None, -1


def _lives(pid: int) -> bool:
    """Not merely on the list until it is asked how it ended; its first thread may be over before others."""
    state = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0]
    return state not in (b"Z", b"X") or len(list((_PROC / str(pid) / "task").iterdir())) > 1


def sweep(
    boots: frozenset[str],
    *,
    patience_s: float,
    spare: frozenset[int] = frozenset(),
    strangers: Strangers | None = None,
) -> tuple[int, tuple[int, ...]]:
    """SIGKILL every tagged process that is not to ``spare``; how many were found, which outlived the wait.

    Repeats until two looks in a row find none: a process may fork while the others are being killed, and for
    an instant in its exec it shows no environment at all. Give ``strangers`` only where none of ``boots``
    can be started meanwhile: the second look reads only of those begun since. Those that clean up after the
    others have a second for it.
    """
    found: set[int] = set()
    deadline, clean_by = time.monotonic() + patience_s, time.monotonic() + _CLEAN_UP_S
    empty_looks = 0
    while True:
        alive = set(tagged(boots, strangers)) - spare
        empty_looks = 0 if alive else empty_looks + 1
        if empty_looks == _EMPTY_LOOKS:
            return len(found), ()
        cleaning = {pid for pid in alive if time.monotonic() < clean_by and cleans_up(pid)}
        found |= alive - cleaning
        for pid in alive - cleaning:
            kill_tagged(pid, boots)
        if alive == cleaning and alive:
            _await_end(min(alive), clean_by)
        if alive and time.monotonic() >= deadline:
            return len(found), tuple(sorted(alive))
        time.sleep(_TEARDOWN_S if found else _EXEC_S)  # in the helper thread


def sweep_ranks(boot: str, ranks: frozenset[int], incarnation: int, *, spare: frozenset[int]) -> None:
    """SIGKILL what ``ranks`` that are gone left behind, one look; processes of other ranks live.

    Known by the environment at exec: what a process forked that had been a standby is found when all are
    swept.
    """
    for pid in set(tagged(frozenset({boot}))) - spare:
        with suppress(OSError, ValueError, KeyError):
            environ = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
            told = dict(entry.split(b"=", 1) for entry in environ if b"=" in entry)
            of_them = int(told[b"RANK"]) in ranks and int(told[b"FAULTRUN_INCARNATION"]) <= incarnation
            if of_them and not cleans_up(pid):
                kill_tagged(pid, frozenset({boot}))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftRunning:
    """What ranks left running that ended with 0, and whether it ``lives_on``."""

    pids: frozenset[int] = frozenset()
    lives_on: bool = False
    words: str = ""


def left_running(boot: str, may_s: float, spare: frozenset[int]) -> LeftRunning:
    """The programs that still live after ``may_s``; where they may for ever, after what ends by itself.

    What a rank has merely forked is a part of it, and no program.
    """
    until_s = time.monotonic() + (_ENDS_SOON_S if may_s == math.inf else may_s)
    while pids := programs(set(tagged(frozenset({boot}))) - spare):
        if time.monotonic() >= until_s:
            break
        _await_end(min(pids), min(until_s, time.monotonic() + _ENDS_SOON_S))
    if not pids:
        return LeftRunning()
    commands = {pid: told_by(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace") for pid in pids}
    who = ", ".join(f"{commands[pid].strip()[:_WORDS]} (pid {pid})" for pid in sorted(pids))
    fate = "it lives on" if may_s == math.inf else f"killed after {may_s:g} s"
    words = f"left running by ranks that ended with 0: {who}; {fate} (--leave_running)"
    return LeftRunning(pids=pids, lives_on=may_s == math.inf, words=words)


def cleans_up(pid: int) -> bool:
    """Whether it waits for the end of others, to remove what they shared or to write what they told it.

    Nothing but names tells: trackers of semaphores and named memory (Python's, joblib's), torch's manager of
    shared memory, the service of an experiment's tracker. Each ends when no process holds its pipe or socket.
    """
    command, comm = (told_by(pid, name) for name in ("cmdline", "comm"))
    return b"resource_tracker" in command or comm.strip() in _SERVICES


def told_by(pid: int, name: str) -> bytes:
    """What this file of ``/proc`` says of ``pid``; nothing of one that is gone, or not ours to ask."""
    with suppress(OSError):
        return (_PROC / str(pid) / name).read_bytes()
    return b""


def _await_end(pid: int, until_s: float) -> None:
    with suppress(OSError), pidfd_of(pid) as pidfd:
        readable(max(0.0, until_s - time.monotonic()), pidfd)


def kill_tagged(pid: int, boots: frozenset[str]) -> None:
    """SIGKILL ``pid`` if it still carries the tag; its number may belong to another process by now."""
    with suppress(OSError), pidfd_of(pid) as pidfd:
        if carries_tag(pid, boots):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


@contextmanager
def pidfd_of(pid: int) -> Iterator[int]:
    """A descriptor that means this very process, for a moment. OSError if it is gone."""
    pidfd = os.pidfd_open(pid)
    try:
        yield pidfd
    finally:
        os.close(pidfd)
