"""What a rank does instead of its next step: healthy pauses of all kinds, and hangs that never end.

Each takes seconds; a hang goes on until it is killed. Standard library only
where the framework is not the point.
"""

import argparse
import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from benchmarks.jobs.tell import Teller, life, rank
from faultrun import sdk

_FOR_EVER_S = 3600.0
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE_VFORK = 0x4000
_CHUNK_BYTES, _LARGEST_BYTES = 1 << 26, 1 << 30
_LOAD = 10
_BUSY = "while True: pass"
_MOUNTER = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
if libc.mount(b"nobody", sys.argv[1].encode(), b"fuse", 0, options):
    sys.exit(1)
print("mounted", flush=True)
time.sleep(float(sys.argv[2]))
os.close(device)
libc.umount2(sys.argv[1].encode(), 2)
"""
"""A file system whose server never answers: who asks is in state D until the server ends."""


def do(what: str, seconds: float) -> None:
    """The deed, by its name."""
    DEEDS[what](seconds)


def _until(seconds: float) -> Callable[[], bool]:
    until_s = time.monotonic() + seconds
    return lambda: time.monotonic() < until_s


def _waits_on_a_socket(seconds: float) -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(seconds)
    with ours, theirs:
        try:
            ours.recv(1)
        except TimeoutError:
            return


def _waits_in_the_kernel(seconds: float) -> None:
    """Whoever called vfork is in state D until the child ends; this child shares no memory."""
    number = _SYS_CLONE[os.uname().machine]
    libc = ctypes.CDLL(None)
    if libc.syscall(number, _CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        time.sleep(seconds)
        os._exit(0)


def _waits_for_a_file_server(seconds: float) -> None:
    folder = tempfile.mkdtemp(prefix="frozen-")
    command = [sys.executable, "-c", _MOUNTER, folder, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        if server.stdout.readline() == b"mounted\n":
            with suppress(OSError):
                Path(folder, "file").stat()
    Path(folder).rmdir()


def _computes(seconds: float) -> None:
    goes_on = _until(seconds)
    while goes_on():
        pass


def _loads(seconds: float) -> None:
    """Rows come from another process, which waits for them itself."""
    fetching = f"import time; time.sleep({seconds}); print('rows')"
    subprocess.run([sys.executable, "-S", "-c", fetching], stdout=subprocess.PIPE, check=True)


def _evaluates(seconds: float) -> None:
    with sdk.phase("evaluating"):
        _computes(seconds / 2)
        time.sleep(seconds / 2)


def _saves(seconds: float) -> None:
    """Gigabytes, again and again into the same place."""
    goes_on, chunk = _until(seconds), bytes(_CHUNK_BYTES)
    with tempfile.TemporaryFile(dir=".") as file:
        while goes_on():
            file.write(chunk)
            os.fsync(file.fileno())
            if file.tell() >= _LARGEST_BYTES:
                file.seek(0)


def _collects_garbage(seconds: float) -> None:
    goes_on = _until(seconds)
    kept = [[number] for number in range(300_000)]
    while goes_on():
        kept.append(kept[0])
        gc.collect()


def _compiles(seconds: float) -> None:
    """One long call into C after the other."""
    goes_on = _until(seconds)
    source = "\n".join(f"x{number} = [{number}, {{'a': {number}}}]" for number in range(20_000))
    while goes_on():
        compile(source, "graph", "exec")


def _is_crowded_out(seconds: float) -> None:
    crowd = [subprocess.Popen([sys.executable, "-S", "-c", _BUSY]) for _ in range(_LOAD)]
    _computes(seconds)
    for one in crowd:
        one.kill()
        one.wait()


def _is_stopped(_seconds: float) -> None:
    """A rank that was stopped once is woken; this one is stopped whenever it goes on."""
    stopping = f"import os, time\nwhile True: os.kill({os.getpid()}, 19); time.sleep(0.01)"
    subprocess.Popen([sys.executable, "-S", "-c", stopping])
    time.sleep(_FOR_EVER_S)


def _spins(_seconds: float) -> None:
    """In one place: a stack that moves is work."""
    while True:
        pass


def _deadlocks(_seconds: float) -> None:
    """It waits for what nobody sends, and the others for it."""
    import torch

    torch.distributed.recv(torch.zeros(1), src=0)


def _sleeps_in_a_save(seconds: float) -> None:
    with sdk.phase("saving"):
        time.sleep(seconds)


PAUSES: Mapping[str, Callable[[float], None]] = {
    "sleep": time.sleep,
    "socket": _waits_on_a_socket,
    "kernel": _waits_in_the_kernel,
    "file server": _waits_for_a_file_server,
    "busy": _computes,
    "loader": _loads,
    "evaluation": _evaluates,
    "save": _saves,
    "garbage": _collects_garbage,
    "compile": _compiles,
    "load": _is_crowded_out,
    "stopped once": lambda _seconds: os.kill(os.getpid(), signal.SIGSTOP),
    "frozen": lambda _seconds: None,  # by the campaign, from outside
}
HANGS: Mapping[str, Callable[[float], None]] = {
    "stopped": _is_stopped,
    "spins": _spins,
    "sleeps": lambda _seconds: time.sleep(_FOR_EVER_S),
    "deadlock": _deadlocks,
    "saves": lambda _seconds: _sleeps_in_a_save(_FOR_EVER_S),
}
DEEDS: Mapping[str, Callable[[float], None]] = {**PAUSES, **HANGS}


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is done, for how long, by whom and when."""
    parser.add_argument("--deed", default="stopped", choices=DEEDS)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--everybody", action="store_true", help="all ranks, not rank 1 alone")
    parser.add_argument("--at_step", type=int, default=60)


class Deed:
    """Done before a step; told as ``hung``, and ``over`` if it ends."""

    def __init__(self, options: argparse.Namespace, tell: Teller) -> None:
        self._options, self._tell = options, tell

    def before(self, step: int) -> None:
        """Do it now, if it is time to."""
        options = self._options
        if (life(), step) != (0, options.at_step) or not (options.everybody or rank() == 1):
            return
        self._tell("hung", step)
        do(options.deed, options.seconds)
        self._tell("over", step)
