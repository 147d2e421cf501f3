"""Until when this node's ranks may live: one moment in memory that forked processes share.

The supervisor moves it on. The deadman acts on it, and so does every worker between its fork and its
exec: a supervisor that was frozen in between starts nothing that others may have replaced by then.
"""

import math
import mmap
import time

NEVER = math.inf
_BYTES = 16


class SharedDeadline:
    """Seconds on CLOCK_BOOTTIME, which goes on while a machine sleeps; ``NEVER`` at first."""

    def __init__(self) -> None:
        self._moment = memoryview(mmap.mmap(-1, _BYTES)).cast("d")
        self.at_s = NEVER
        self.killed_at_s = -NEVER

    @property
    def at_s(self) -> float:
        """The moment, as it was set last by whichever process."""
        return self._moment[0]

    @at_s.setter
    def at_s(self, moment_s: float) -> None:
        self._moment[0] = moment_s

    @property
    def killed_at_s(self) -> float:
        """When ranks were killed last because their time was over, noted before the first was."""
        return self._moment[1]

    @killed_at_s.setter
    def killed_at_s(self, moment_s: float) -> None:
        self._moment[1] = moment_s

    @property
    def left_s(self) -> float:
        """Seconds until then; not above 0 once it is over."""
        return self.at_s - boottime()


def boottime() -> float:
    """Now, on the clock of every ``SharedDeadline`` of this machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
