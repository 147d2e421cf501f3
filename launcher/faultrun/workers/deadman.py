"""The deadman: a sibling of the supervisor that ends its workers when the supervisor can not.

It does so once the supervisor is gone: PDEATHSIG ends the ranks then, but not *their* children, and data
loaders of a killed rank would keep running and hold device memory. And it does so when a deadline passes
that no process moved: a supervisor that is frozen cannot renew what entitles its ranks to live, and others
take their places then. It never touches the supervisor, which may be PID 1 of a container.
"""

import ctypes
import math
import os
import select

from faultrun.files import readable
from faultrun.workers.forked_helper import Forked
from faultrun.workers.shared_deadline import NEVER, SharedDeadline, boottime
from faultrun.workers.sweep import kill_tagged, sweep, tagged

_CLOCK_BOOTTIME = 7
_TIMER_ABSTIME = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 10, 1000
_PATIENCE_S = 10.0
_LEAVE = b"!"
_LIBC = ctypes.CDLL(None, use_errno=True)


class Deadman:
    """The supervisor's end. Make it before any thread is started; ``boot`` tags what the supervisor starts.

    No signal that can be blocked reaches the deadman: a SIGTERM to the process group is ours to answer.
    """

    def __init__(self, boot: str) -> None:
        self.deadline, self.leaves = SharedDeadline(), False
        read_end, self._held_by_us_alone = os.pipe2(_NONBLOCK_CLOEXEC)
        work = _Watch(self.deadline, frozenset({boot}), read_end).run
        self.pid = Forked(work, keep=(read_end,)).pid
        os.close(read_end)

    def feed(self, until_s: float) -> None:
        """Have all ranks killed at ``until_s`` (CLOCK_BOOTTIME) and ever after, until another is given.

        To move it on costs no system call: the deadman finds the new one when the one before is over.
        """
        sooner = until_s < self.deadline.at_s
        self.deadline.at_s = until_s
        if sooner:
            os.write(self._held_by_us_alone, b".")

    def leave(self) -> None:
        """Nothing is to be killed any more: what lives may outlive us."""
        self.leaves = True
        os.write(self._held_by_us_alone, _LEAVE)


class _Watch:
    """In the child: kills when the deadline passes, and ends once the supervisor is gone."""

    def __init__(self, deadline: SharedDeadline, boots: frozenset[str], rope: int) -> None:
        self._deadline, self._boots, self._rope = deadline, boots, rope
        self._leaves = False
        self._rung = select.poll()
        self._rung.register(rope, select.POLLIN)

    def run(self) -> None:
        """Return once nothing is left of what a supervisor that is gone had started."""
        os.setsid()
        timer = _Timer()
        pause_ms = _FIRST_PAUSE_MS
        while not self._alone():
            if self._deadline.left_s > 0:
                pause_ms = _FIRST_PAUSE_MS
                timer.wait(self._deadline.at_s, self._rope)
            else:
                killed = self._kill()
                pause_ms = _FIRST_PAUSE_MS if killed else min(2 * pause_ms, _LONGEST_PAUSE_MS)
                self._rung.poll(pause_ms)
        if not self._leaves:
            sweep(self._boots, patience_s=_PATIENCE_S)

    def _kill(self) -> int:
        """One look; how many were found.

        A process that is started under a new deadline is not to be met by it.
        """
        killed = 0
        for pid in tagged(self._boots):
            if self._deadline.left_s > 0:
                break
            self._deadline.killed_at_s = boottime()
            kill_tagged(pid, self._boots)
            killed += 1
        return killed

    def _alone(self) -> bool:
        """Whether the other end is closed, which only the supervisor has. What it writes means: look."""
        try:
            while told := os.read(self._rope, 64):
                self._leaves |= _LEAVE in told
        except BlockingIOError:
            return False
        return True


class _TimerSpec(ctypes.Structure):
    """``struct itimerspec``, for a timer that rings once."""

    _fields_ = (
        ("period_s", ctypes.c_long),
        ("period_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class _Timer:
    """Waits on CLOCK_BOOTTIME: a timeout of ``poll`` would stand still while the machine sleeps."""

    def __init__(self) -> None:
        self._fd = _LIBC.timerfd_create(_CLOCK_BOOTTIME, _NONBLOCK_CLOEXEC)

    def wait(self, until_s: float, rope: int) -> None:
        """Return at ``until_s``, or when ``rope`` can be read."""
        if until_s == NEVER:
            readable(None, rope)
            return
        seconds = math.floor(until_s)
        spec = _TimerSpec(at_s=seconds, at_ns=int((until_s - seconds) * 1e9))
        _LIBC.timerfd_settime(self._fd, _TIMER_ABSTIME, ctypes.byref(spec), None)
        readable(None, rope, self._fd)
