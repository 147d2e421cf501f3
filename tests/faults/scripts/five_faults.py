"""A worker that trains by counting and meets with another fault in each of its first five lives."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from faultrun import sdk

STEPS, PACE_S = int(sys.argv[1]), float(sys.argv[2])
RANK, LIFE = int(os.environ["RANK"]), int(os.environ["FAULTRUN_INCARNATION"])
FAULTS = 5
state = {"count": 0}


def write(path: str) -> None:
    if LIFE == 2:
        raise OSError("no space left on device")
    Path(path).write_text(json.dumps(state))


def fault() -> None:
    """By life and rank: killed, an exception, a broken memory access, an exit code, a frozen group."""
    match (LIFE, RANK):
        case (0, 2):
            os.kill(os.getpid(), signal.SIGKILL)
        case (1, 1):
            raise FloatingPointError("loss is nan")
        case (2, 0):
            os.kill(os.getpid(), signal.SIGSEGV)
        case (3, 3):
            sys.exit(17)
        case (4, 2):
            os.kill(os.getpid(), signal.SIGABRT)


def main() -> None:
    point = sdk.resume()
    if point is not None:
        state.update(json.loads(Path(point.path).read_text()))
    began = state["count"]
    sdk.start(save=write, directory="ck", name="count.json")
    for n in range(began + 1, STEPS + 1):
        time.sleep(PACE_S)
        with sdk.updating():
            state["count"] = n
        sdk.step(n)
        if LIFE < FAULTS and n == began + STEPS // 8 + 3:
            fault()
            while True:
                signal.pause()  # the others wait there, however late the one that fails has started


if __name__ == "__main__":
    main()
