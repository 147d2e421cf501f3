# ruff: noqa: T201 - what a worker prints goes to its log
"""A worker that counts under the SDK; words say what becomes of its saves, and where it stands still.

The first life stands still at step 5, the second at step 8, up to life ``TROUBLE``, for which the
words are meant; the next goes on to the end. So a first gasp can succeed, and the second meet with trouble.
With ``stays`` the second stands still in any case, with ``waits`` until a file ``go_on`` is there.
"""

import json
import os
import resource
import signal
import sys
import threading
from pathlib import Path

from faultrun import sdk

TROUBLE, *WORDS = sys.argv[1:]
RANK, LIFE = int(os.environ["RANK"]), int(os.environ["FAULTRUN_INCARNATION"])
LAST, STANDS_STILL_AT = 10, {0: 5, 1: 8}

state = {"count": 0, "half": 0}


def write(path: str) -> None:
    print("saving", flush=True)
    if "slow" in words():
        threading.Event().wait(60)
    if "unable" in words() or f"unable-{RANK}" in words():
        raise ValueError("no such luck")
    while f"freezes-{RANK}" in words():
        os.kill(os.getpid(), signal.SIGSTOP)  # for good: whoever wakes it stops it again
    if "held" in words():
        Path(f"let_go_{RANK}").read_bytes()  # a named pipe: ends when the test has opened and closed it
    if "device-full" in words():
        with Path("/dev/full").open("w") as file:
            file.write(json.dumps(state))
    if "limited" in words():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, resource.RLIM_INFINITY))
    Path(path).write_text(json.dumps(state))


def words() -> list[str]:
    return WORDS if int(TROUBLE) == LIFE else []


def main() -> None:
    point = sdk.resume()
    if point is not None:
        state.update(json.loads(Path(point.path).read_text()))
    print(f"from {state['count']}", flush=True)
    sdk.start(save=write, directory="ck", name="count.json")
    for n in range(state["count"] + 1, LAST + 1):
        with sdk.updating():
            state["count"] = n
            state["half"] = n
        sdk.step(n)
        while "waits" in WORDS and LIFE == 1 and n == STANDS_STILL_AT[1] and not Path("go_on").exists():
            threading.Event().wait(0.02)
        if (int(TROUBLE) >= LIFE or "stays" in WORDS) and STANDS_STILL_AT.get(LIFE) == n:
            print("ready", flush=True)
            if "left" in words() and RANK == 0:
                sys.exit(0)
            if "left" in words():
                raise ConnectionResetError("Connection closed by peer")
            while True:
                signal.pause()
    print("done", flush=True)


if __name__ == "__main__":
    main()
