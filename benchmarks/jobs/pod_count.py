"""Counts under the SDK and saves slowly: ``pod_count.py SAVE_S``. Imports no framework.

Prints ``saving`` and ``saved <count>`` around each save, and ``step`` once the first step is done.
"""

import json
import sys
import threading
from pathlib import Path

from faultrun import sdk

SAVE_S = float(sys.argv[1])
STEP_S = 0.01
LAST = 100_000

state = {"count": 0, "twice": 0}


def write(path: str) -> None:
    print("saving", flush=True)
    threading.Event().wait(SAVE_S)
    Path(path).write_text(json.dumps(state), encoding="utf-8")
    print("saved", state["count"], flush=True)


def main() -> None:
    sdk.start(save=write, directory="ck", name="count.json")
    pause = threading.Event()
    for count in range(1, LAST):
        with sdk.updating():
            state["count"] = count
            state["twice"] = 2 * count
        sdk.step(count)
        if count == 1:
            print("step", flush=True)
        pause.wait(STEP_S)


if __name__ == "__main__":
    main()
