"""A sibling process that outlives the supervisor by a moment, to kill what the kernel does not.

PDEATHSIG ends the ranks when the supervisor is killed, but not *their*
children: data loaders of a killed rank would keep running and hold device
memory. The deadman blocks on a pipe whose other end only the supervisor has;
end of file means that it is gone.
"""

import os
import signal
from collections.abc import Callable

from faultrun.workers.forked import keep_only


def guard(sweep: Callable[[], object]) -> int:
    """Fork the deadman and return its pid; it calls ``sweep`` once we are gone and ends.

    Must be called before any thread is started. The deadman ignores every
    signal that can be ignored: a SIGTERM to the process group is ours to
    answer.
    """
    read_end, _held_by_us_alone = os.pipe()
    pid = os.fork()
    if pid:
        os.close(read_end)
        return pid
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        keep_only(read_end)
        while os.read(read_end, 1):
            pass
        sweep()
    finally:
        os._exit(0)
