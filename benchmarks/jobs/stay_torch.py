"""A training whose survivors stay, which shows where each rank is and can be compared bit for bit.

``stay_torch.py MODE STEPS FOLDER [PAUSE_S]``: ``ddp`` (with batch norm) or ``fsdp``. A rank writes a line
into ``FOLDER/steps_RANK`` as a step begins, with a digest of everything it has then, and as it ends, with the
loss; into ``births_RANK`` who it is. ``FOLDER/board`` holds it back, and says where to die.
"""

import hashlib
import os
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from benchmarks.jobs.stay_board import Board, Place
from faultrun import sdk
from faultrun.sdk.torch.state.shards import local_of, packed
from faultrun.sdk.torch.state.trees import map_tensors
from faultrun.sdk.worker.worker import worker

MODE, LAST, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
PAUSE_S = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WIDTH, BATCH, SAVE_EVERY = 64, 8, 25
_LOOK_S = 0.001
_STANDS_S = 0.03
"""At the end: so that others find it there."""

BOARD = Board(FOLDER / "board", WORLD)


class Lines:
    """A file that takes whole lines from processes that may die."""

    def __init__(self, name: str) -> None:
        self._fd = os.open(FOLDER / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, *words: object) -> None:
        """One line."""
        line = " ".join(map(str, (f"{time.monotonic():.6f}", os.getpid(), *words)))
        os.write(self._fd, f"{line}\n".encode())


class Times(dict[str, float]):
    """Of a rejoin: the SDK notes when it comes to what, and we hear it."""

    def __init__(self, job: "Job") -> None:
        super().__init__()
        self._job = job

    def __setitem__(self, name: str, at_s: float) -> None:
        super().__setitem__(name, at_s)
        self._job.repairs(Place[name.upper()])

    def setdefault(self, name: str, at_s: float = 0.0) -> float:
        """As of a dict, and heard."""
        if name not in self:
            self[name] = at_s
        return self[name]


class Job:
    """One rank."""

    def __init__(self, net: nn.Sequential, model: Any) -> None:
        self.steps, self.step = Lines(f"steps_{RANK}"), 0
        self.model, self.net = model, net
        self.optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=200)
        self.inside = os.environ.get("FAULTRUN_REJOIN") != "1"
        middle = net[len(net) // 2]
        middle.register_forward_pre_hook(lambda *_: self.at(Place.FORWARD))
        middle.register_forward_hook(self._watch)
        self.guard = sdk.torch.protect(
            model,
            self.optimizer,
            directory=FOLDER / "ck",
            objects={"scheduler": self.scheduler},
            snapshot_every=1,  # no finished step may be lost
        )
        # behind those of the guard: what they do has been done
        self.optimizer.register_step_pre_hook(lambda *_: self.at(Place.UPDATE))
        self.optimizer.register_step_post_hook(lambda *_: self.at(Place.UPDATED))
        this = worker()
        if this is not None:
            this.regroup.times = Times(self)

    def train(self) -> None:
        """All steps."""
        self.guard.resume()
        for step in self.guard.steps(LAST):
            self.step, self.inside = step, True
            self.at(Place.LOADER)
            while step > BOARD.limit:
                time.sleep(_LOOK_S)
            self.steps.write("begin", step, self.digest())
            with self.guard.attempt() as attempt:
                self.one(step)
            self.at(Place.AFTER)
            if (
                attempt.done
                and step % SAVE_EVERY == 0
                and (MODE == "fsdp" or step // SAVE_EVERY % WORLD == RANK)
            ):
                self.at(Place.SAVING)
                self.guard.save(FOLDER / "ck" / f"step-{step}.pt")
            if step == LAST:
                self.at(Place.ENDS)
                time.sleep(_STANDS_S)
        self.step = LAST + 1
        self.steps.write("begin", LAST + 1, self.digest())

    def one(self, step: int) -> None:
        """What an attempt is around."""
        self.at(Place.BEGIN)
        loss = cross_entropy(self.model(*inputs(step)), labels(step))
        loss.backward()
        self.at(Place.COLLECTIVE)
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        if PAUSE_S:
            time.sleep(PAUSE_S)
        self.at(Place.END)
        self.steps.write("done", step, mean.numpy().tobytes().hex())

    def at(self, place: Place) -> None:
        """Say where this rank is, and end there if that is asked for."""
        if self.inside:
            BOARD.say(RANK, self.step, place)
            BOARD.strike(RANK, self.step, place)

    def repairs(self, place: Place) -> None:
        """In the main thread, or in the SDK's own."""
        self.inside |= place >= Place.JOIN
        if place is Place.RESTORED:
            self.steps.write("back", self.guard.position.step, "-")
        self.at(place)

    def digest(self) -> str:
        """Of parameters, buffers, optimizer, schedule and random numbers."""
        found = hashlib.blake2b(digest_size=8)
        for tensor in tensors([self.net.state_dict(), packed(self.optimizer.state_dict())]):
            found.update(tensor.contiguous().view(-1).view(torch.uint8).numpy())
        found.update(repr(self.scheduler.state_dict()).encode())
        found.update(torch.get_rng_state().numpy())
        return found.hexdigest()

    def _watch(self, _module: Any, _inputs: Any, output: Any) -> None:
        if output.requires_grad:
            output.register_hook(lambda _: self.at(Place.BACKWARD))


def main() -> None:
    Lines(f"births_{RANK}").write("newcomer" if os.environ.get("FAULTRUN_REJOIN") == "1" else "all")
    torch.set_num_threads(1)
    torch.manual_seed(7)
    sdk.torch.init_process_group("gloo", timeout=timedelta(seconds=120))
    net = build()
    job = Job(net, wrapped(net))
    torch.manual_seed(100 + RANK)
    job.train()
    sdk.done()
    os._exit(0)


def build() -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(4):
        norm = [nn.BatchNorm1d(WIDTH)] if MODE == "ddp" else []
        layers += [nn.Linear(WIDTH, WIDTH), *norm, nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def wrapped(net: nn.Sequential) -> Any:
    if MODE == "ddp":
        return DistributedDataParallel(net, bucket_cap_mb=0.02)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # As one group: where modules within the model are sharded, survivors do not stay.
    fully_shard(net, mesh=init_device_mesh("cpu", (WORLD,)))
    return net


def inputs(step: int) -> tuple[torch.Tensor]:
    generator = torch.Generator().manual_seed(step * 1009 + RANK)
    return (torch.randn(BATCH, WIDTH, generator=generator),)


def labels(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step * 1013 + RANK)
    return torch.randint(0, 10, (BATCH,), generator=generator)


def tensors(state: Any) -> Iterator[torch.Tensor]:
    found: list[Any] = []
    map_tensors(packed(state), lambda one: found.append(local_of(one.detach())))
    yield from found


if __name__ == "__main__":
    main()
