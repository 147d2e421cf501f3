"""A small training that tells a ledger all it does: which step, which save, where it began.

Its weight follows from its step, so that it knows a wrong resume by itself
(exit 9). ``--guard=sdk`` saves when it is asked to, ``--guard=none`` leaves
that to its periodic saves. Checkpoints are safetensors that name their step
inside, so that they may be called anything.
"""

import argparse
import json
import os
import time
from pathlib import Path

from benchmarks.jobs.chaos import RANK, check, sockets
from benchmarks.jobs.options import options
from benchmarks.jobs.small_state import State, gradient, read
from faultrun import sdk

LIFE = int(os.environ.get("FAULTRUN_INCARNATION", "0"))
_KEEP = 3


class Ledger:
    """``ledger_<rank>.jsonl``: what this rank did, on CLOCK_MONOTONIC; a killed rank leaves all of it."""

    def __init__(self) -> None:
        self._fd = os.open(f"ledger_{RANK}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, what: str, step: int, path: str = "") -> None:
        """One line in one write."""
        line = {"at_s": time.monotonic(), "life": LIFE, "pid": os.getpid(), "what": what, "step": step}
        os.write(self._fd, (json.dumps({**line, "path": path}) + "\n").encode())


def main() -> None:
    asked = read_options()
    ledger = Ledger()
    handed = os.environ.get("FAULTRUN_RESUME_FROM", "")
    state = read(handed) if handed else State()
    check(state)
    ledger.note("begin", state.step, handed)
    folder = Path(asked.ckpt).absolute()
    if asked.guard == "sdk":
        sdk.start(save=state.write, directory=folder, name="state.safetensors")
    reduce = sockets(asked)
    while state.step < asked.steps:
        time.sleep(asked.step_s)
        total = reduce(gradient(state.step + 1, RANK))
        with sdk.updating():
            state.update(total)
        print(f"step {state.step}", flush=True)
        ledger.note("step", state.step)
        if asked.guard == "sdk":
            sdk.step(state.step)
        if state.step % asked.save_every == 0:
            ledger.note("save", state.step, periodic(state, folder))
    check(state)
    reduce(0)  # nobody leaves before all are done
    ledger.note("final", state.step)
    if asked.guard == "sdk":
        sdk.done()


def periodic(state: State, folder: Path) -> str:
    """Save this rank's copy under its final name, and ``last`` in place; drop the oldest."""
    path = state.save_in(folder / f"rank_{RANK}", _KEEP)
    state.write(str(path.with_name("last.safetensors")))
    return str(path)


def read_options() -> argparse.Namespace:
    parser = options(steps=40, save_every=5, step_s=0.01, ckpt="ckpt", peer_timeout=60.0)
    parser.add_argument("--guard", choices=("sdk", "none"), default="sdk")
    return parser.parse_args()


if __name__ == "__main__":
    main()
