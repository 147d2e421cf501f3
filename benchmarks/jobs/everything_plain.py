"""``everything_plain.py COLLECTIVE GUARD FOLDER STEP_S``: a small training whose every weight is known.

All ranks add up in each step, over sockets without any framework (``plain``) or by torch (``gloo``). Rank 0
saves every few steps into a folder that all share; with ``sdk`` every rank saves in a dying gasp as well. A
rank has a child in a session of its own that beats as long as it runs, too.
"""

import os
import signal
import sys
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from benchmarks.jobs.chaos import gloo, sockets
from benchmarks.jobs.everything_notes import Ledger, Notes
from benchmarks.jobs.small_state import State, gradient, read

COLLECTIVE, GUARD, FOLDER, STEP_S = sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])
NOTES = Notes(FOLDER)
CKPT = FOLDER / "ckpt"
_SAVE_EVERY, _PRINT_EVERY, _KEEP = 10, 20, 3
_WRONG = 9
_PATIENCE = Namespace(peer_timeout=300.0)


def main() -> None:
    NOTES.born(child=False)
    _child()
    handed = os.environ.get("FAULTRUN_RESUME_FROM", "")
    state = read(handed) if handed else State()
    NOTES.begins(state.step, newest_whole())
    if state.weight != state.truth(NOTES.world):
        NOTES.note("wrong", state.step, handed)
        os._exit(_WRONG)
    sdk = _guarded(state)
    if Path("/sys/class/net/eth0").exists():
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    reduce = gloo(_PATIENCE) if COLLECTIVE == "gloo" else sockets(_PATIENCE)
    while not NOTES.ends_at(state.step):
        time.sleep(STEP_S)
        total = reduce(gradient(state.step + 1, NOTES.rank))
        if sdk is None:
            state.update(total)
        else:
            with sdk.updating():
                state.update(total)
            sdk.step(state.step)
        NOTES.note("step", state.step, f"{state.weight:x} 0.0")
        if state.step % _PRINT_EVERY == 0:
            print(f"step {state.step}", flush=True)
        if NOTES.rank == 0 and state.step % _SAVE_EVERY == 0:
            NOTES.note("saved", state.step, str(state.save_in(CKPT / "periodic", _KEEP)))
        NOTES.at("step")
    reduce(0)  # nobody leaves before all are done
    if sdk is not None:
        sdk.done()
    os._exit(0)


def newest_whole() -> int:
    """The newest step of which a true file is there; -1: none."""
    steps = [-1]
    for path in CKPT.rglob("*.safetensors"):
        if not any(part.startswith(".") for part in path.relative_to(CKPT).parts):
            with suppress(OSError, ValueError):
                state = read(str(path))
                steps.append(state.step if state.weight == state.truth(NOTES.world) else -1)
    return max(steps)


def _child() -> None:
    """As a data loader that escapes: it shows whether what a rank started outlives its incarnation."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Ledger(FOLDER / "told", "child", NOTES.life)
        while True:
            signal.pause()


def _guarded(state: State):  # type: ignore[no-untyped-def]
    """The SDK, which saves when it is asked to; None without."""
    if GUARD != "sdk":
        return None
    from faultrun import sdk

    sdk.start(save=state.write, directory=CKPT, name="state.safetensors")
    return sdk


if __name__ == "__main__":
    main()
