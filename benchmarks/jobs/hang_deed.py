"""How a rank of the hang benchmark stops making progress: at one step of its first life."""

import os
import subprocess
import sys
import time

from benchmarks.jobs.tell import Teller, life, rank
from faultrun import sdk


class Deed:
    """``what``: stopped, spins, sleeps or saves. Done by rank 1 before step ``at_step``."""

    def __init__(self, what: str, at_step: int, tell: Teller) -> None:
        self._what = what
        self._at_step = at_step
        self._tell = tell

    def before(self, step: int) -> None:
        """Stand still now, if it is time to."""
        if (life(), rank(), step) != (0, 1, self._at_step):
            return
        self._tell("hung", step)
        match self._what:
            case "stopped":
                stop_whenever_it_goes_on()
            case "spins":
                while True:
                    pass
            case "saves":
                with sdk.phase("saving"):
                    time.sleep(3600)
            case _:
                time.sleep(3600)


def stop_whenever_it_goes_on() -> None:
    """A rank that was stopped once is woken; this one is stopped for good."""
    stopping = f"import os, time\nwhile True: os.kill({os.getpid()}, 19); time.sleep(0.01)"
    subprocess.Popen([sys.executable, "-c", stopping])
    time.sleep(3600)
