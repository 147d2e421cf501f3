# ruff: noqa: T201 - what a worker prints goes to its log
"""A rank whose process outlives its peers' deaths, without a framework: the SDK's words, and files.

The words on the command line: the last step, ``forks-RANK`` for one that leaves a process of its own session
behind, ``alone`` for ranks that cannot do a missing one's share, ``dies-JOIN`` for newcomers that die where
they come (``parks``, ``joins``; each rank's first one), ``gated`` for newcomers that wait until there
is a file ``gate``, ``pace-SECONDS`` of a step.
"""

import os
import signal
import sys
import time
from pathlib import Path

from faultrun import sdk
from faultrun.sdk.worker.worker import worker

LAST, WORDS = int(sys.argv[1]), sys.argv[2:]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
NEW = os.environ.get("FAULTRUN_REJOIN") == "1"
PACE_S = next((float(one[5:]) for one in WORDS if one.startswith("pace-")), 0.005)
LOOK_S, WITHIN_S = 0.002, 60.0


def main() -> None:
    this = worker()
    assert this is not None
    if f"forks-{RANK}" in WORDS and not NEW and os.fork() == 0:
        os.setsid()
        Path(f"forked_{RANK}").write_text(str(os.getpid()))
        signal.pause()
    sdk.start(save=lambda path: Path(path).write_text(Path(f"at_{RANK}").read_text()), directory="ck")
    point = sdk.resume()
    step = point.step or 0 if point is not None else 0
    life = this.session.incarnation
    others = set(range(WORLD))
    if NEW:
        dies("parks")
        if "gated" in WORDS:
            while not Path("gate").exists():
                time.sleep(LOOK_S)
        this.say("can_join")
        step, life, others = joined(-1)
    print("ready", flush=True)
    while step < LAST:
        if this.regroup.asked >= life:
            this.say("can_rejoin", incarnation=life, trains_on="", waits=True)
            this.regroup.wait_lost(life, WITHIN_S)
        if this.regroup.is_lost(life):
            step, life, others = joined(life)
        with sdk.updating():
            step += 1
            at(step)
        sdk.step(step)
        if step == 3:
            able(life)
        meet(step, others)
        this.regroup.wait_lost(life, PACE_S)
        if RANK == 1 and Path("break").exists():
            Path("break").unlink()
            sys.exit("CUDA error: uncorrectable ECC error encountered")
    this.say("cannot_rejoin", incarnation=life, why="all its steps are done")


def able(life: int) -> None:
    """Say what this rank can do, as the SDK does."""
    this = worker()
    assert this is not None
    asked = os.environ.get("FAULTRUN_WHILE_MISSING") == "train"
    why = "this script cannot share" if "alone" in WORDS else ""
    this.say("can_rejoin", incarnation=life, **({"trains_on": why} if asked else {}))


def dies(where: str) -> None:
    """The first newcomer of each rank, in the middle of its way."""
    struck = Path(f"struck_{RANK}_{where}")
    if f"dies-{where}" in WORDS and not struck.exists():
        struck.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def joined(life: int) -> tuple[int, int, set[int]]:
    """Enter the next group: all of it go on after the lowest step that one of them is at.

    Where some trained on it is the highest: what a newcomer finds of its own is old.
    """
    this = worker()
    assert this is not None
    while True:
        join = this.regroup.wait_join(life, WITHIN_S)
        assert join is not None, "nobody formed another group"
        if NEW and life < 0:
            dies("joins")
        Path(join.store).touch()
        this.moves_to(join)
        life = join.incarnation
        others = set(range(WORLD)) - {*join.missing}
        common = max if "FAULTRUN_WHILE_MISSING" in os.environ else min
        step = common(int(Path(f"at_{rank}").read_text()) for rank in others)
        at(step)
        this.say("rejoined", incarnation=life, step=step)
        able(life)
        return step, life, others


def at(step: int) -> None:
    """Where this rank is, for its peers and for who comes after it."""
    fresh = Path(f".at_{RANK}")
    fresh.write_text(str(step))
    fresh.replace(f"at_{RANK}")


def meet(step: int, ranks: set[int]) -> None:
    """Nobody is ever more than a step ahead; a lost peer ends the wait."""
    this = worker()
    assert this is not None
    life, until_s = this.session.incarnation, time.monotonic() + WITHIN_S
    others = [Path(f"at_{rank}") for rank in ranks]
    while not all(one.exists() and int(one.read_text()) >= step for one in others):
        if this.regroup.wait_lost(life, LOOK_S):
            return
        assert time.monotonic() < until_s, f"a rank that lives does not come to step {step}"


if __name__ == "__main__":
    main()
