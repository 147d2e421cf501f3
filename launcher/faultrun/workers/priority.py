"""How the kernel schedules standbys until they are needed, and workers while MindSpore's ranks meet."""

import contextlib
import ctypes
import os
import threading
from pathlib import Path

_NICE = 5
"""A third of the weight of a process with 0: a quarter of a processor beside one worker. Standbys need
3 to 5 s of processor each, whatever the weight: with 10, a tenth, training is held up as much for longer."""
_IOPRIO_WHO_PROCESS = 1
_IOPRIO_IDLE = 3 << 13  # IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0) of linux/ioprio.h
_IOPRIO_NONE = 0
_SYS_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_PASSES = 3
"""A thread may be born, with the policy of the one that made it, while they are being listed."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def may_rise_again() -> bool:
    """Whether we may take back what ``nice`` gave away: only with CAP_SYS_NICE or RLIMIT_NICE.

    Tried out in a thread that ends at once, since Linux keeps the nice value of each thread.
    """
    answer: list[bool] = []

    def try_it() -> None:
        before = os.getpriority(os.PRIO_PROCESS, 0)
        try:
            os.setpriority(os.PRIO_PROCESS, 0, before + 1)
            os.setpriority(os.PRIO_PROCESS, 0, before)
        except OSError:
            answer.append(False)
        else:
            answer.append(True)

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join()
    return answer == [True]


class Priority:
    """Sets the priority of one process. ``lower`` it right after its start: threads inherit what it has."""

    def __init__(self, pid: int, *, may_rise: bool) -> None:
        self._pid, self._may_rise = pid, may_rise
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)

    def lower(self) -> None:
        """Nice and idle input/output where that can be undone; else only as a batch job."""
        with contextlib.suppress(OSError):
            if self._may_rise:
                os.setpriority(os.PRIO_PROCESS, self._pid, _NICE)
                self._write_autogroup(_NICE)
            else:
                os.sched_setscheduler(self._pid, os.SCHED_BATCH, os.sched_param(0))
        _set_ioprio(self._pid, _IOPRIO_IDLE)

    def restore(self) -> None:
        """Ours again, for each of its threads. Harmless when it has ended."""
        for thread in _threads(self._pid):
            with contextlib.suppress(OSError):
                if self._may_rise:
                    os.setpriority(os.PRIO_PROCESS, thread, self._nice)
                else:
                    os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
            _set_ioprio(thread, _IOPRIO_NONE)
        if self._may_rise:
            self._write_autogroup(0)

    def _write_autogroup(self, nice: int) -> None:
        """Where the kernel groups by session, a nice value counts inside the session only: sched(7).

        It refuses a second change within 0.1 s to users that are not root.
        """
        if os.geteuid() == 0:
            with contextlib.suppress(OSError):
                Path(f"/proc/{self._pid}/autogroup").write_text(str(nice))


def _threads(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(entry.name) for entry in os.scandir(f"/proc/{pid}/task")]
    return []


def _set_ioprio(pid: int, priority: int) -> None:
    if (number := _SYS_IOPRIO_SET.get(os.uname().machine)) is not None:
        _LIBC.syscall(number, _IOPRIO_WHO_PROCESS, pid, priority)


def without_preempting(pid: int) -> None:
    """Let no thread of ``pid`` preempt another by waking up; one with a policy of its own is left alone.

    MindSpore's TCP client gives a connection up, and sleeps half a second, when its own event thread runs
    before ``connect()`` has returned. On a busy machine that is the rule: the event wakes the thread, which
    preempts the other. A thread under SCHED_BATCH preempts none when it wakes; it gets the same share.
    """
    _change(pid, os.SCHED_OTHER, os.SCHED_BATCH)


def as_usual(pid: int) -> None:
    """Take that back. Nothing happens to a process that has ended."""
    _change(pid, os.SCHED_BATCH, os.SCHED_OTHER)


def _change(pid: int, before: int, after: int) -> None:
    for _ in range(_PASSES):
        for thread in _threads(pid):
            with contextlib.suppress(OSError):  # it has ended, or a sandbox forbids it
                if os.sched_getscheduler(thread) == before:
                    os.sched_setscheduler(thread, after, os.sched_param(0))
