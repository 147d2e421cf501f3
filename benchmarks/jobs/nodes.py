"""A small training over several nodes that tells all it does: where each rank began, its steps and saves.

Its weight follows from its step, so that a wrong resume shows (exit 9). All ranks add up in each step: over
sockets without any framework, or with ``--collective=gloo`` by torch. Rank 0 saves every few steps into a
folder that all nodes share; ``--guard=sdk`` has every rank save in a dying gasp as well. Each rank beats
100 times a second into a page of its own, as long as it runs, and so does its child in a session of its own.
"""

import argparse
import json
import mmap
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
LIFE = int(os.environ.get("FAULTRUN_INCARNATION", "0"))
PAGE = "<dd"
"""When a process was born, and when it ran last."""

_BEAT_S = 0.01
_MODULUS = (1 << 61) - 1
_KEEP = 3
_WRONG = 9
_OVER = 1 << 40
_CONNECT_PAUSE_S = 0.01
_FORMAT = {"weight": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}

Reduce = Callable[[int], int]


def boot_s() -> float:
    """CLOCK_BOOTTIME, which all hosts of the campaign share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Ledger:
    """What this process did, a line each, and the page that shows when it ran last."""

    def __init__(self, folder: Path, kind: str, life: int = LIFE) -> None:
        name = f"{life}_{RANK}_{os.getpid()}_{os.uname().nodename}"
        self.life = life
        """Where it is now: a survivor goes on into later ones."""
        self._about = {"rank": RANK, "node": os.uname().nodename, "pid": os.getpid()}
        page = os.open(folder / f"{name}.{kind}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(page, struct.pack(PAGE, boot_s(), boot_s()))
        self._page = mmap.mmap(page, struct.calcsize(PAGE))
        threading.Thread(target=self._beat, daemon=True).start()
        self._fd = os.open(folder / f"{name}.notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, what: str, step: int, path: str = "") -> None:
        """One line in one write."""
        line = {"at_s": boot_s(), "life": self.life, **self._about, "what": what, "step": step, "path": path}
        os.write(self._fd, (json.dumps(line) + "\n").encode())

    def _beat(self) -> None:
        while True:
            self._page[8:] = struct.pack("<d", boot_s())
            time.sleep(_BEAT_S)


class State:
    """All there is to save: a file that tells its step, and a weight that follows from the step."""

    def __init__(self) -> None:
        self.step = 0
        self.weight = 1

    def update(self, total: int) -> None:
        """One step."""
        self.weight = (self.weight * 31 + total) % _MODULUS
        self.step += 1

    def is_true(self) -> bool:
        """Whether the weight is what an undisturbed training has at this step."""
        truth = State()
        while truth.step < self.step:
            truth.update(sum(gradient(truth.step + 1, rank) for rank in range(WORLD)))
        return truth.weight == self.weight

    def write(self, path: str) -> None:
        """A safetensors file, on the disk when this returns."""
        header = json.dumps({"__metadata__": {"step": str(self.step)}, **_FORMAT}).encode()
        with Path(path).open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + struct.pack("<q", self.weight))
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, path: Path) -> "State":
        """What ``write`` wrote; ValueError or OSError if it is not all there."""
        data = path.read_bytes()
        state = cls()
        try:
            (length,) = struct.unpack_from("<Q", data)
            state.step = int(json.loads(data[8 : 8 + length])["__metadata__"]["step"])
            (state.weight,) = struct.unpack_from("<q", data, 8 + length)
        except (struct.error, KeyError) as error:
            raise ValueError(path) from error
        return state


def gradient(step: int, rank: int) -> int:
    """What ``rank`` contributes to ``step``."""
    return step * 1000 + rank


def newest_whole(folder: Path) -> int:
    """The newest step of which a true file is in the folder; -1: none."""
    steps = [-1]
    for path in folder.rglob("*.safetensors"):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            with suppress(OSError, ValueError):
                state = State.read(path)
                steps.append(state.step if state.is_true() else -1)
    return max(steps)


def main() -> None:
    options = read_options()
    ledger = Ledger(options.told, "rank")
    _child(options.told)
    handed = os.environ.get("FAULTRUN_RESUME_FROM", "")
    state = State.read(Path(handed)) if handed else State()
    ledger.note("there", newest_whole(options.ckpt))
    ledger.note("begin", state.step, handed)
    if not state.is_true():
        ledger.note("wrong", state.step, handed)
        os._exit(_WRONG)
    sdk = _guarded(state, options, ledger)
    reduce = _gloo() if options.collective == "gloo" else _sockets()
    over = False
    while not over:
        time.sleep(options.step_s)
        asked = _OVER if RANK == 0 and options.finish.exists() else 0
        total = reduce(gradient(state.step + 1, RANK) + asked)
        over, total = total >= _OVER, total % _OVER
        if sdk is None:
            state.update(total)
        else:
            with sdk.updating():
                state.update(total)
            sdk.step(state.step)
        ledger.note("step", state.step)
        if state.step % options.print_every == 0:
            print(f"step {state.step}", flush=True)
        if RANK == 0 and state.step % options.save_every == 0:
            _save(state, options.ckpt, ledger)
    ledger.note("final" if state.is_true() else "wrong", state.step)
    reduce(0)  # nobody leaves before all are done
    if sdk is not None:
        sdk.done()
    os._exit(0)


def _child(told: Path) -> None:
    """As a data loader that escapes: it shows whether what a rank started outlives its incarnation."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Ledger(told, "child")
        while True:
            signal.pause()


def _guarded(state: State, options: argparse.Namespace, ledger: Ledger):  # type: ignore[no-untyped-def]
    """The SDK, which saves when it is asked to; None without."""
    if options.guard == "none":
        return None
    from faultrun import sdk

    def save(path: str) -> None:
        state.write(path)
        ledger.note("gasp", state.step, path)

    sdk.start(save=save, directory=options.ckpt, name="state.safetensors")
    return sdk


def _save(state: State, folder: Path, ledger: Ledger) -> None:
    """Under its final name once it is on the disk; drop the oldest."""
    own = folder / "periodic"
    own.mkdir(parents=True, exist_ok=True)
    path = own / f"step_{state.step}.safetensors"
    partial = own / f".{path.name}.tmp"
    state.write(str(partial))
    partial.replace(path)
    ledger.note("saved", state.step, str(path))
    kept = sorted(own.glob("step_*.safetensors"), key=lambda one: (len(one.name), one.name))
    for old in kept[:-_KEEP]:
        with suppress(FileNotFoundError):
            old.unlink()


def _gloo() -> Reduce:
    import torch
    import torch.distributed as dist

    if Path("/sys/class/net/eth0").exists():
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))

    def reduce(value: int) -> int:
        tensor = torch.tensor([value], dtype=torch.int64)
        dist.all_reduce(tensor)
        return int(tensor.item())

    return reduce


def _sockets() -> Reduce:
    """Rank 0 adds what all send, and sends the sum back."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if RANK == 0:
        with socket.create_server(address, backlog=WORLD) as server:
            streams = [server.accept()[0].makefile("rwb") for _ in range(WORLD - 1)]

        def add(value: int) -> int:
            total = value + sum(int(_line(stream.readline())) for stream in streams)
            for stream in streams:
                stream.write(f"{total}\n".encode())
                stream.flush()
            return total

        return add
    stream = _connected(address).makefile("rwb")

    def reduce(value: int) -> int:
        stream.write(f"{value}\n".encode())
        stream.flush()
        return int(_line(stream.readline()))

    return reduce


def _connected(address: tuple[str, int]) -> socket.socket:
    """Again and again: rank 0 may begin later, and who ends this rank is its supervisor."""
    while True:
        peer = socket.socket()
        peer.settimeout(1.0)
        if peer.connect_ex(address) == 0:
            peer.settimeout(None)
            return peer
        peer.close()
        time.sleep(_CONNECT_PAUSE_S)


def _line(line: bytes) -> bytes:
    if not line:
        raise ConnectionResetError(104, "Connection reset by peer")
    return line


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--collective", choices=("sockets", "gloo"), default="sockets")
    parser.add_argument("--guard", choices=("sdk", "none"), default="sdk")
    parser.add_argument("--ckpt", type=Path, required=True)
    parser.add_argument("--told", type=Path, required=True, help="where what is told goes")
    parser.add_argument("--finish", type=Path, required=True, help="a file: once it is there, all end")
    parser.add_argument("--save_every", type=int, default=10)
    parser.add_argument("--print_every", type=int, default=20)
    parser.add_argument("--step_s", type=float, default=0.05)
    return parser.parse_args()


if __name__ == "__main__":
    main()
