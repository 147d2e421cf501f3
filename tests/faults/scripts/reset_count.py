# ruff: noqa: T201 - what a worker prints goes to its log
"""A worker that counts to 10 and saves when asked; the first life stands still at 5, the second at 8."""

import json
import os
import signal
from pathlib import Path

from faultrun import sdk

LAST, STANDS_STILL_AT = 10, {0: 5, 1: 8}
LIFE = int(os.environ["FAULTRUN_INCARNATION"])

state = {"count": 0}


def write(path: str) -> None:
    Path(path).write_text(json.dumps(state))


def main() -> None:
    point = sdk.resume()
    if point is not None:
        state.update(json.loads(Path(point.path).read_text()))
    print(f"from {state['count']}", flush=True)
    sdk.start(save=write, directory="ck", name="count.json")
    for n in range(state["count"] + 1, LAST + 1):
        with sdk.updating():
            state["count"] = n
        sdk.step(n)
        if STANDS_STILL_AT.get(LIFE) == n:
            print("ready", flush=True)
            while True:
                signal.pause()
    print("done", flush=True)


if __name__ == "__main__":
    main()
