"""A training that is rehearsed with faults: its state follows from its step, so that a wrong resume shows.

Four phases, each announced to ``faultrun.testing``: startup (before the ranks
meet), compile (the first collective), step, save. ``--collective=gloo`` meets
by torch, ``sockets`` by hand, without any framework. Prints ``WRONG`` and
leaves with 9 when what it resumed from, or what it ends with, is not the truth.
"""

import argparse
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from benchmarks.jobs import options as jobs_options
from benchmarks.jobs.small_state import State, gradient, read
from faultrun import sdk, testing
from faultrun.model.checkpoint import Kind
from faultrun.model.observed.progress import WorkPhase
from faultrun.sdk.session import read_identity
from faultrun.sdk.worker.save_files import Folder, Position, SaveWriter, numbered

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
_KEEP = 2
_WRONG = 9

Reduce = Callable[[int], int]


def check(state: State) -> None:
    """Leave with 9 unless the weight is what an undisturbed training has at this step."""
    if state.weight != state.truth(WORLD):
        print(f"WRONG step {state.step}: {state.weight} is not {state.truth(WORLD)}", flush=True)
        os._exit(_WRONG)


def main() -> None:
    options = read_options()
    chaos = testing.from_environment()
    point = sdk.resume()
    chaos.at("startup")
    reduce = gloo(options) if options.collective == "gloo" else known(sockets(options))
    state = State() if point is None else read(point.path)
    if point is not None:
        check(state)
        print(f"resumed at step {state.step}", flush=True)
    folder = Folder(directory=Path(options.ckpt).absolute(), keep=_KEEP)
    sdk.start(save=state.write, directory=folder, name="state.safetensors")
    chaos.at("compile")
    reduce(0)
    writer = SaveWriter(folder, read_identity(os.environ))
    while state.step < options.steps:
        step = state.step + 1
        time.sleep(options.step_s)
        total = reduce(gradient(step, RANK))
        with sdk.updating():
            state.update(total)
        print(f"step {step}", flush=True)
        sdk.step(step)
        chaos.at("step", step)
        if step % options.save_every == 0:
            save(state, writer, chaos)
    check(state)
    reduce(0)  # nobody leaves before all are done
    print(f"final step {state.step} weight {state.weight}", flush=True)
    sys.stdout.flush()
    os._exit(0)


def save(state: State, writer: SaveWriter, chaos: testing.Injector) -> None:
    """A periodic checkpoint of this rank, with a manifest; only the newest two are kept."""
    own = writer.folder.path / f"rank_{RANK}"
    path = own / f"periodic-{state.step}.safetensors"
    chaos.at("save", state.step, path=str(path))
    saved = writer.save_by_path(numbered(path), Position(state.step), state.write, Kind.PERIODIC)
    chaos.at("saved", state.step, path=saved.path)
    mine = sorted(own.glob("periodic-*.safetensors"), key=lambda one: (len(one.name), one.name))
    for old in mine[:-_KEEP]:
        for name in (f"{old.name}.manifest.json", old.name):
            with suppress(FileNotFoundError):
                (own / name).unlink()


def gloo(options: argparse.Namespace) -> Reduce:
    """torch.distributed over gloo."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.peer_timeout))

    def reduce(value: int) -> int:
        tensor = torch.tensor([value], dtype=torch.int64)
        dist.all_reduce(tensor)
        return int(tensor.item())

    return reduce


def known(reduce: Reduce) -> Reduce:
    """``reduce``, announced: nobody can tell from a stack that these sockets are a collective."""

    def announced(value: int) -> int:
        with sdk.phase(WorkPhase.COLLECTIVE):
            return reduce(value)

    return announced


def sockets(options: argparse.Namespace) -> Reduce:
    """Rank 0 adds what all send and sends the sum back; a peer's death breaks the connection at once."""
    address = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ["MASTER_PORT"])
    if RANK == 0:
        return _hub(address, options.peer_timeout)
    deadline = time.monotonic() + options.peer_timeout
    peer = _socket()
    while peer.connect_ex(address) != 0:
        if time.monotonic() > deadline:
            raise TimeoutError("rank 0 did not come")
        peer.close()
        time.sleep(0.01)
        peer = _socket()
    peer.settimeout(options.peer_timeout)
    stream = peer.makefile("rwb")

    def reduce(value: int) -> int:
        stream.write(f"{value}\n".encode())
        stream.flush()
        return int(_line(stream.readline()))

    return reduce


def _socket() -> socket.socket:
    """One that soon gives up a host that does not answer."""
    peer = socket.socket()
    peer.settimeout(1.0)
    return peer


def _hub(address: tuple[str, int], timeout_s: float) -> Reduce:
    with socket.create_server(address, backlog=WORLD) as server:
        server.settimeout(timeout_s)
        peers = [server.accept()[0] for _ in range(WORLD - 1)]
    for peer in peers:
        peer.settimeout(timeout_s)
    streams = [peer.makefile("rwb") for peer in peers]

    def reduce(value: int) -> int:
        total = value + sum(int(_line(stream.readline())) for stream in streams)
        for stream in streams:
            stream.write(f"{total}\n".encode())
            stream.flush()
        return total

    return reduce


def _line(line: bytes) -> bytes:
    if not line:
        raise ConnectionResetError(104, "Connection reset by peer")
    return line


def read_options() -> argparse.Namespace:
    parser = jobs_options.options(steps=12, save_every=4, step_s=0.02, ckpt="ckpt", peer_timeout=30.0)
    parser.add_argument("--collective", choices=("sockets", "gloo"), default="sockets")
    return parser.parse_args()


if __name__ == "__main__":
    main()
