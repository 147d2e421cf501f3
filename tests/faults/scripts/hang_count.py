# ruff: noqa: T201 - what a worker prints goes to its log
"""A worker that counts in step with all others, and does as it is told at some steps.

Each argument is ``<life>:<rank>:<step>:<deed>[:<seconds>]``; a rank of ``*`` means all.
"""

import json
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path

from faultrun import sdk

LAST, *DEEDS = sys.argv[1:]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LIFE, PORT = int(os.environ["FAULTRUN_INCARNATION"]), int(os.environ["MASTER_PORT"])
state = {"count": 0}
pace = {"s": 0.02}


class Meeting:
    """All ranks wait for one another at rank 0; stands for a collective."""

    def __init__(self) -> None:
        if RANK == 0:
            with socket.create_server(("127.0.0.1", PORT)) as server:
                self._peers = [server.accept()[0] for _ in range(WORLD - 1)]
            return
        self._peers = [socket.socket()]
        while self._peers[0].connect_ex(("127.0.0.1", PORT)) != 0:
            time.sleep(0.02)
            self._peers[0].close()
            self._peers[0] = socket.socket()

    def wait(self, step: int) -> None:
        message = struct.pack("!q", step)
        if RANK == 0:
            for peer in self._peers:
                assert peer.recv(8, socket.MSG_WAITALL) == message
        for peer in self._peers:
            peer.sendall(message)
        if RANK != 0:
            assert self._peers[0].recv(8, socket.MSG_WAITALL) == message


def fetch() -> None:
    """What a data loader's thread does most of the time."""
    threading.Event().wait()


def write(path: str) -> None:
    Path(path).write_text(json.dumps(state))


def compute(seconds: float) -> None:
    """Work: its stack moves."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        descend(random.randrange(20))


def descend(levels: int) -> int:
    return descend(levels - 1) if levels else sum(range(20_000))


def do(deed: str, seconds: float) -> None:
    print(deed, flush=True)
    match deed:
        case "restop":
            stop_again_and_again()
        case "spin":
            while True:
                pass
        case "sleep":
            time.sleep(seconds)
        case "compute":
            compute(seconds)
        case "saving" | "evaluating":
            with sdk.phase(deed):
                time.sleep(seconds)
        case "slow":
            pace["s"] *= seconds


def stop_again_and_again() -> None:
    """Somebody, for once a child, stops this process whenever it goes on."""
    me = os.getpid()
    if os.fork() == 0:
        while True:
            os.kill(me, signal.SIGSTOP)
            time.sleep(0.01)
    time.sleep(600.0)


def deeds(step: int) -> None:
    for text in DEEDS:
        life, rank, at, deed, *seconds = text.split(":")
        if (int(life), int(at)) == (LIFE, step) and rank in ("*", str(RANK)):
            do(deed, float(seconds[0]) if seconds else 600.0)


def main() -> None:
    point = sdk.resume()
    if point is not None:
        state.update(json.loads(Path(point.path).read_text()))
    print(f"from {state['count']}", flush=True)
    first = state["count"] + 1
    sdk.start(save=write, directory="ck", name="count.json")
    threading.Thread(target=fetch, name="loader", daemon=True).start()
    meeting = Meeting()
    for n in range(first, int(LAST) + 1):
        deeds(n if LIFE == 0 else n - first + 1)
        time.sleep(pace["s"])
        meeting.wait(n)
        with sdk.updating():
            state["count"] = n
        sdk.step(n)
        if n == first + 4:
            print("ready", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
