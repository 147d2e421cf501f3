# ruff: noqa: T201 - what a worker prints goes to its log
"""A worker without a framework: counts, and saves its count when asked.

Arguments say what it does: steps, seconds a step, and words that name a behaviour.
"""

import json
import multiprocessing
import os
import resource
import socket
import sys
import time
from pathlib import Path

from faultrun import sdk
from faultrun.sdk.worker.worker import worker

STEPS, PACE_S, *WORDS = sys.argv[1:]
state = {"count": 0, "half": 0}


def write(path: str) -> None:
    if "slow-save" in WORDS:
        time.sleep(30)
    if "raising-save" in WORDS:
        raise ValueError("no such luck")
    if "full-disk" in WORDS:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    Path(path).write_text(json.dumps(state))


def update() -> None:
    state["count"] += 1
    time.sleep(float(PACE_S) / 2)
    state["half"] += 1


def compute(*, before: bool) -> None:
    """What a step does beside its update: before it, or with the word "works-late" only after it."""
    if before != ("works-late" in WORDS):
        time.sleep(float(PACE_S) * (0.5 if before else 10))


class Meeting:
    """All ranks wait for one another, through a socket each way; stands for a collective."""

    def __init__(self) -> None:
        port, rank = int(os.environ["MASTER_PORT"]), int(os.environ["RANK"])
        if rank == 0:
            with socket.create_server(("127.0.0.1", port)) as server:
                self._peer, _ = server.accept()
            return
        self._peer = socket.socket()
        while self._peer.connect_ex(("127.0.0.1", port)) != 0:
            time.sleep(0.02)

    def wait(self, step: int) -> None:
        """Both ranks are at ``step``."""
        message = step.to_bytes(8, "big")
        self._peer.sendall(message)
        assert self._peer.recv(8, socket.MSG_WAITALL) == message


def stand_still(word: str) -> None:
    """For good, if that is what was asked for."""
    if word in WORDS:
        print(word, flush=True)
        while True:
            time.sleep(1)


def main() -> None:
    point = sdk.resume()
    if point is not None:
        state.update(json.loads(Path(point.path).read_text()))
    meeting = Meeting() if "meet" in WORDS else None
    sdk.start(
        save=None if "no-save" in WORDS else write,
        directory=os.environ.get("CKPT", "ckpt"),
        name="count.json",
    )
    if "stays" in WORDS and (this := worker()) is not None:
        this.regroup.is_awaited = True
    stand_still("stuck-first")
    for n in range(state["count"] + 1, int(STEPS) + 1):
        compute(before=True)
        if "unmarked" in WORDS:
            update()
        else:
            with sdk.updating():
                update()
        compute(before=False)
        if meeting is not None:
            meeting.wait(n)
        sdk.step(n, epoch=n // 10)
        if n == 5:
            stand_still("stuck")
        if "raise-peer" in WORDS and n == 5:
            raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1")
        if "raise-own" in WORDS and n == 5:
            raise ValueError("a mistake of the script")
        if "exit-peer" in WORDS and n == 5:
            sys.exit(3)
        if "pool" in WORDS and n % 5 == 0:
            with multiprocessing.get_context("fork").Pool(1) as pool:  # ended by SIGTERM to its process
                pool.map(abs, [n])
        if "polite" in WORDS and sdk.should_stop():
            print(f"stopped at {n}", flush=True)
            break
    print("end of script", flush=True)


if __name__ == "__main__":
    main()
