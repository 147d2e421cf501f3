# ruff: noqa: T201 - what a worker prints goes to its log
"""Workers that hold the two parts of a model, one or two copies of each, and count to 10.

Who holds the same is said as MindSpore says it: in ``group_info.pb``. The first life stands still at 5, where
rank 1 loses its device, the second at 8. A rank that is given another part than its own ends the run.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from faultrun import sdk

PARTS, LAST, STANDS_STILL_AT = 2, 10, {0: 5, 1: 8}
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LIFE = int(os.environ["FAULTRUN_INCARNATION"])
COPIES = tuple(range(RANK % PARTS, WORLD, PARTS))

state = {"part": RANK % PARTS, "count": 0}


def write(path: str) -> None:
    Path(path).write_text(json.dumps(state))


def tell_copies() -> None:
    ranks = b"".join(b"\x08" + bytes([rank]) for rank in COPIES)
    Path(os.environ["FAULTRUN_GROUP_INFO_FILE"]).write_bytes(b"\x12" + bytes([len(ranks)]) + ranks)


def dies_once_all_stand_still() -> None:
    while not all(Path(f"stands_{rank}").exists() for rank in range(WORLD)):
        time.sleep(0.01)
    sys.exit("HBM MULTI BIT ECC error")


def main() -> None:
    point = sdk.resume()
    if point is not None:
        loaded = json.loads(Path(point.path).read_text())
        assert loaded["part"] == state["part"], f"rank {RANK} was given {point.path}"
        state.update(loaded)
    print(f"from {state['count']}", flush=True)
    tell_copies()
    sdk.start(save=write, directory=sdk.Folder(directory="ck", replica_group=COPIES), name="count.json")
    for n in range(state["count"] + 1, LAST + 1):
        with sdk.updating():
            state["count"] = n
        sdk.step(n)
        if STANDS_STILL_AT.get(LIFE) == n:
            Path(f"stands_{RANK}").touch()
            if (RANK, LIFE) == (1, 0):
                dies_once_all_stand_still()
            print("ready", flush=True)
            while True:
                signal.pause()


if __name__ == "__main__":
    main()
