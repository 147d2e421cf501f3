"""What lives below a rank, in its session and in sessions of its own: who is asked to save, who is awaited.

Reads ``environ``, ``cmdline`` and ``fd``, which may wait for a process that the kernel holds: for helper
threads.
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from faultrun.files import readable, text_of
from faultrun.workers.proc_reader import Member, above, members, to_ask
from faultrun.workers.sweep import Strangers, carries_tag, cleans_up, kill_tagged, pidfd_of, tagged, told_by

_PROC = Path("/proc")
_COPIES = (b"--multiprocessing-fork", b"multiprocessing.forkserver", b"compile_worker")
"""In the command of a program that a framework starts as it would fork: loaders, pools, their servers."""

Passed = tuple[frozenset[int], Strangers]
"""Sessions of others, and processes that are known to be none of ours."""

_LOOK_AGAIN_S, _STANDS_STILL_S = 0.1, 3.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Below:
    """The processes below one rank. ``writing`` have a file of a checkpoint folder open to be written."""

    found: Mapping[int, Member]
    writing: frozenset[int] = frozenset()

    def awaited(self, *, all_programs: bool, since_s: float) -> frozenset[int]:
        """Those whose end the rank waits for: who writes, was begun ``since_s``, or is asked in a session.

        ``all_programs``: its leader was none but them, or the run is to end. Seconds of CLOCK_BOOTTIME.
        """
        programs = {pid for pid, one in self.found.items() if one.program}
        if not all_programs:
            late = {pid for pid in programs if self.found[pid].began_s >= since_s - _TICK_S}
            programs = late | {pid for pid in programs if self._leads(pid)}
        return self.writing | programs

    def to_ask(self, *, all_programs: bool) -> list[int]:
        """Who is to be told that the end comes, and by none above it: each that leads a session and hears.

        ``all_programs``: also those of the rank's own session.
        """
        if all_programs:
            return to_ask(self.found)
        lead = [pid for pid in self.found if self._leads(pid)]
        return [pid for pid in lead if not any(one.program for one in above(self.found[pid], self.found))]

    def _leads(self, pid: int) -> bool:
        one = self.found[pid]
        return one.session == pid and one.program and one.hears


def below(rank: int, leader: int, boot: str, passed: Passed, roots: Sequence[str]) -> Below:
    """What lives below a rank of the supervisor ``boot``, but for those that are ``passed`` by.

    Outside of its leader's session it carries the tag, and its environment at exec tells the rank. ``roots``:
    checkpoint folders.
    """
    own, (others, strangers) = f"RANK={rank}".encode(), passed

    def is_below(entry: "os.DirEntry[str]") -> bool:
        pid = int(entry.name)
        if strangers.has(entry) or os.getsid(pid) in others:
            return False
        return own in told_by(pid, "environ").split(b"\0") and carries_tag(pid, frozenset({boot}))

    found = members(leader, is_below)
    for pid, one in found.items():
        program = one.program and not (
            cleans_up(pid) or any(word in told_by(pid, "cmdline") for word in _COPIES)
        )
        found[pid] = replace(one, program=program)
    return Below(found=found, writing=frozenset(pid for pid in found if written(pid, roots)))


def sweep_session(leader: int, boot: str, roots: Sequence[str]) -> tuple[()]:
    """SIGKILL what is left in the session that ``leader`` began, one look; not who cleans up after the rest.

    Nor who writes a checkpoint. The leader has ended, and may be reaped: what carries the tag is of no later
    session with its number. Returns nothing to tell.
    """
    for entry in os.scandir(_PROC):
        with suppress(OSError, ValueError):
            if os.getsid(pid := int(entry.name)) == leader and not (cleans_up(pid) or written(pid, roots)):
                kill_tagged(pid, frozenset({boot}))
    return ()


def let_write(boots: frozenset[str], roots: Sequence[str], spare: frozenset[int], patience_s: float) -> None:
    """Wait for the processes of ``boots`` that write a checkpoint, each as long as it gets on.

    One that has merely inherited an open file from the dead stands still.
    """
    until_s, moved_s, last = time.monotonic() + patience_s, time.monotonic(), dict[int, list[str]]()
    while roots and (now_s := time.monotonic()) < until_s:
        found = ((pid, written(pid, roots)) for pid in set(tagged(boots)) - spare)
        if not (writes := {pid: places for pid, places in found if places}):
            return
        moved_s, last = (moved_s if writes == last else now_s), writes
        if now_s - moved_s > _STANDS_STILL_S:
            return
        with suppress(OSError), pidfd_of(min(writes)) as pidfd:
            readable(_LOOK_AGAIN_S, pidfd)


def written(pid: int, roots: Sequence[str]) -> list[str]:
    """How far it is in each file of these folders that it has open to be written."""
    places = []
    with suppress(OSError):
        for fd in (_PROC / str(pid) / "fd").iterdir() if roots else ():
            if str(fd.readlink()).startswith(tuple(f"{root}/" for root in roots)):
                info = text_of(_PROC / str(pid) / "fdinfo" / fd.name).split()
                if "flags:" in info and int(info[info.index("flags:") + 1], 8) & os.O_ACCMODE:
                    places.append(f"{fd.name} {info[info.index('pos:') + 1]}")
    return places
