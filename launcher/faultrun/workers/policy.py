"""How the kernel schedules a worker while MindSpore's ranks meet.

MindSpore's TCP client gives a connection up, and sleeps half a second, when
its own event thread runs before ``connect()`` has returned. On a busy machine
that is the rule: the event wakes the thread, which preempts the other. A
thread under SCHED_BATCH preempts nobody when it wakes; it gets the same share.
"""

import os
from contextlib import suppress
from pathlib import Path

_PASSES = 3
"""A thread may be born, with the policy of the one that made it, while they are being listed."""


def without_preempting(pid: int) -> None:
    """Let no thread of ``pid`` preempt another by waking up; one with a policy of its own is left alone."""
    _change(pid, os.SCHED_OTHER, os.SCHED_BATCH)


def as_usual(pid: int) -> None:
    """Take that back. Nothing happens to a process that has ended."""
    _change(pid, os.SCHED_BATCH, os.SCHED_OTHER)


def _change(pid: int, before: int, after: int) -> None:
    for _ in range(_PASSES):
        changed = False
        with suppress(OSError):  # it has ended, or a sandbox forbids it
            for task in Path(f"/proc/{pid}/task").iterdir():
                changed |= _change_one(int(task.name), before, after)
        if not changed:
            return


def _change_one(tid: int, before: int, after: int) -> bool:
    with suppress(OSError):
        if os.sched_getscheduler(tid) == before:
            os.sched_setscheduler(tid, after, os.sched_param(0))
            return True
    return False
