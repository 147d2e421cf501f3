"""How busy the processors are that this process may use: by affinity, ``/proc/stat`` and control group.

Two samples make a measurement; what it means is ``core.standby.headroom``'s. One costs a tenth of a
millisecond.
"""

import os
import time
from pathlib import Path

from faultrun.core.standby.headroom import ProcessorSample
from faultrun.files import text_of
from faultrun.platforms.cgroup import processor_quota

_IDLE, _IOWAIT = 4, 5  # fields of a "cpu<n>" line in proc_stat(5), its name included
_TICKS = os.sysconf("SC_CLK_TCK")


def sample(root: Path = Path("/")) -> ProcessorSample:
    """Read the counters; ``root`` is where ``proc`` and ``sys`` are looked for."""
    allowed = os.sched_getaffinity(0)
    at_s = time.monotonic()
    quota, spent_s = processor_quota(root)
    return ProcessorSample(
        at_s=at_s, allowed=len(allowed), idle_s=_idle_s(root, allowed), quota=quota, spent_s=spent_s
    )


def _idle_s(root: Path, allowed: set[int]) -> float | None:
    """How long ``allowed`` have been idle; None where one of them is not shown, or nothing is counted.

    A sandbox (gVisor) shows zeros: time that is neither used nor idle is none.
    """
    idle = counted = seen = 0
    for line in text_of(root / "proc/stat").splitlines():
        name, *fields = line.split()
        number = name.removeprefix("cpu")
        if number.isdecimal() and int(number) in allowed and len(fields) >= _IOWAIT:
            seen += 1
            counted += sum(map(int, fields))
            idle += int(fields[_IDLE - 1]) + int(fields[_IOWAIT - 1])
    return idle / _TICKS if seen == len(allowed) and counted else None
