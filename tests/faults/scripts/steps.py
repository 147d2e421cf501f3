# ruff: noqa: T201 - what a worker prints goes to its log
"""A worker that does one step after the other, each with a line in its log unless it is told to be silent.

``LAST``, then ``<life>:<rank>:<step>:<signal or word>`` for what happens where; ``sdk`` to report steps,
``save`` to be ready to save as well, ``silent`` to print none.
"""

import json
import os
import sys
import time
from pathlib import Path

from faultrun import sdk

LAST, *WORDS = sys.argv[1:]
RANK, LIFE = int(os.environ["RANK"]), int(os.environ["FAULTRUN_INCARNATION"])
WORLD = int(os.environ["WORLD_SIZE"])
DEEDS = [word.split(":") for word in WORDS if ":" in word]
state = {"step": 0}


def write(path: str) -> None:
    Path(path).write_text(json.dumps(state))


def do(deed: str) -> None:
    if deed == "ready":
        print("ready", flush=True)
    while deed in ("ready", "hang"):
        time.sleep(60)
    os.kill(os.getpid(), int(deed))


def all_are_here() -> None:
    """Ranks do not wait for each other afterwards: one that starts late on a busy machine stays behind."""
    Path(f"here_{LIFE}_{RANK}").touch()
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s and len(list(Path().glob(f"here_{LIFE}_*"))) < WORLD:
        time.sleep(0.002)


def main() -> None:
    if "save" in WORDS:
        point = sdk.resume()
        if point is not None:
            state.update(json.loads(Path(point.path).read_text()))
        sdk.start(save=write, directory="ck", name="steps.json")
    all_are_here()
    for step in range(state["step"] + 1, int(LAST) + 1):
        time.sleep(0.02)
        with sdk.updating():
            state["step"] = step
        if {"sdk", "save"} & set(WORDS):
            sdk.step(step)
        if "silent" not in WORDS:
            print(f"step {step} loss {1 / step:.4f}", flush=True)
        for life, rank, at, deed in DEEDS:
            if (int(life), int(rank), int(at)) == (LIFE, RANK, step):
                do(deed)


if __name__ == "__main__":
    main()
