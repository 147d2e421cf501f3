# ruff: noqa: T201 - what a worker prints goes to its log
"""Training on the CPU whose ranks train on while a place is empty; every sample that was trained is told.

The words on the command line are the number of epochs, of samples, and of samples a batch, ``ddp`` or
``hand``, and what else: ``workers`` (of the loader), ``bn``, ``meets`` (between two epochs), ``ignores``
(weights and parts), ``counts`` (in a buffer; ``counts-STEP`` from it on), ``own`` (generator of the dataset),
``steps`` (without a loader), ``function``, ``zeroes`` or ``drops`` (gradients as a step begins), ``second``
(loader), ``twice`` (backward), ``attacks`` (with gradients that it drops), ``opens`` or ``lacks`` (what only
loaders' processes have), ``wipes-STEP`` (the data of gradients), ``sums-STEP`` (each part's),
``returns-STEP`` (gradients, by hand, and adds none up), ``breaks`` (off in each epoch), ``compiles``,
``draws`` (numbers that all ranks draw), ``apart`` (an object that differs from rank to rank),
``gathers-STEP``, ``comes-STEP`` (a buffer that counts), ``centres`` (counts in a module of the objects),
``averages`` (the model, in such a one), ``frozen`` (no module trains), ``norms`` (in a module of the
objects), ``evaluates-STEP``, ``logs-STEP`` (behind the update), ``broadcasts-STEP`` (from it on),
``waits-STEP`` (behind it), ``rests`` (behind the loop, until a peer is lost), ``kill-RANK-STEP-PHASE``
(once).
"""

import os
import random
import signal
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

from faultrun import sdk
from faultrun.sdk.worker.worker import worker

EPOCHS, SAMPLES, BATCH = map(int, sys.argv[1:4])
MODE, *WORDS = sys.argv[4:]
OUT = Path(os.environ["OUT"])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WIDTH = 16
FROM = {word.split("-")[0]: int(word.split("-")[1]) for word in WORDS if word.count("-") == 1}


class Numbers(Dataset):  # type: ignore[misc]
    def __init__(self) -> None:
        if "own" in WORDS:
            self.numbers = torch.Generator()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, at: int) -> Any:
        if "opens" in WORDS:
            assert get_worker_info().dataset.opened
        if "lacks" in WORDS and get_worker_info() is None:
            raise RuntimeError("no process of a loader")
        generator = torch.Generator().manual_seed(at)
        return torch.randn(WIDTH, generator=generator), torch.randint(0, 10, (), generator=generator), at


def opened(_number: int) -> None:
    """What a loader's process begins with, as one that opens a file."""
    get_worker_info().dataset.opened = True


class Counter(nn.Module):  # type: ignore[misc]
    """Counts its passes in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.passes: Any
        self.register_buffer("passes", None if "comes" in FROM else torch.zeros(()))

    counts = True

    def forward(self, inputs: Any) -> Any:
        if self.counts:
            self.passes = torch.ones(()) if self.passes is None else self.passes + 1
        return inputs


class Own:
    """A state that each rank has of its own."""

    def state_dict(self) -> dict[str, int]:
        return {"rank": RANK}

    def load_state_dict(self, _state: dict[str, int]) -> None:
        pass


def build() -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    layers += [nn.BatchNorm1d(WIDTH)] if "bn" in WORDS else []
    layers += [Counter()] if "counts" in WORDS or {"counts", "comes"} & {*FROM} else []
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


class Job:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(7)
        random.seed(7)
        sdk.torch.init_process_group("gloo")
        self.net = build()
        self.net.register_buffer("scale", torch.ones(()))  # which rank 0 gives to all in each forward pass
        self.model: Any = self.net
        if MODE == "ddp":
            # several buckets; the compiler, which cuts at their limits, takes none below a MiB
            cap_mb = 25 if "compiles" in WORDS else 0.0005
            self.model = DistributedDataParallel(self.net, bucket_cap_mb=cap_mb)
        if "compiles" in WORDS:
            self.model = torch.compile(self.model, backend="eager")
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.criterion, self.average = Counter(), AveragedModel(self.net)
        objects: dict[str, Any] = {"criterion": self.criterion} if "centres" in WORDS else {}
        objects |= {"norm": nn.BatchNorm1d(WIDTH, track_running_stats=False)} if "norms" in WORDS else {}
        objects |= {"average": self.average} if "averages" in WORDS else {}
        objects |= {"apart": Own()} if "apart" in WORDS else {}
        folder = Path(os.environ["CKPT"])
        self.guard = sdk.torch.protect(self.model, self.optimizer, directory=folder, objects=objects)
        self.model.train("frozen" not in WORDS)
        self.guard.resume()
        self.samples: list[int] = []
        self.step = 0
        self.net[0].register_forward_pre_hook(lambda *_: self.at("forward"))
        self.net[0].register_forward_hook(self.watch)

    def watch(self, _module: Any, _inputs: Any, output: Any) -> None:
        if output.requires_grad:
            output.register_hook(lambda _: self.at("backward"))

    def by_steps(self) -> None:
        for step in self.guard.steps(9):
            with self.guard.attempt():
                self.step = step
                inputs, labels, _ = Numbers()[step]
                self.one(inputs[None], labels[None], 1.0, False)

    def train(self, _guard: object = None) -> None:
        loader = DataLoader(
            Numbers(),
            batch_size=BATCH,
            sampler=DistributedSampler(Numbers(), seed=5),
            num_workers=2 if {"workers", "opens", "lacks"} & {*WORDS} else 0,
            worker_init_fn=opened if "opens" in WORDS else None,
            persistent_workers="workers" in WORDS,
        )
        for epoch in range(self.guard.epoch, EPOCHS):
            second = iter(DataLoader(Numbers()))
            for inputs, labels, at in self.guard.batches(loader, epoch):
                if "second" in WORDS:
                    next(second)
                self.step = self.guard.global_step + 1
                weight, more = (1.0, False)
                if "ignores" not in WORDS:
                    weight, more = self.guard.weight, self.guard.accumulating
                self.samples += at.tolist() if weight else []
                with self.guard.attempt() as attempt:
                    self.one(inputs, labels, weight, more)
                if more and self.guard.accumulating:  # else all its parts come again
                    continue
                self.samples = []
                if attempt.done:
                    self.note(epoch)
                if "breaks" in WORDS and self.guard.step_in_epoch == 2:
                    break
            if "meets" in WORDS:
                dist.all_reduce(torch.ones(1))

    def one(self, inputs: Any, labels: Any, weight: float, more: bool) -> None:
        self.begins(inputs, weight)
        inputs = self.criterion(inputs) if "centres" in WORDS else inputs
        loss = cross_entropy(self.model(inputs), labels) * weight
        if not more:
            self.tell_samples()
        if self.does("returns"):
            gradients = torch.autograd.grad(loss, [*self.net.parameters()])
        else:
            loss.backward()
        self.at("parted" if more else "reduced")
        if self.does("sums"):
            dist.all_reduce(self.net[0].weight.grad.clone())
        if more:
            return
        if MODE == "hand":
            for at, parameter in enumerate(self.net.parameters()):
                parameter.grad = gradients[at] if self.does("returns") else parameter.grad
                dist.all_reduce(parameter.grad)
                parameter.grad /= WORLD
        if self.does("gathers"):
            dist.all_gather([torch.zeros(1) for _ in range(WORLD)], torch.ones(1))
        self.at("update")
        self.optimizer.step()
        self.at("updated")
        if "averages" in WORDS:
            self.average.update_parameters(self.net)
        if self.does("logs"):
            dist.all_reduce(loss.detach())
        if not {"zeroes", "drops"} & {*WORDS}:
            self.optimizer.zero_grad()

    def begins(self, inputs: Any, weight: float) -> None:
        """A step, or one of its parts: what the words want before its loss."""
        self.at("begin")
        random.seed(random.random() if "draws" in WORDS else RANK)
        Counter.counts = bool({"counts", "centres"} & {*WORDS}) or self.does("counts") or self.does("comes")
        if "zeroes" in WORDS:
            self.optimizer.zero_grad()
        if "drops" in WORDS:
            self.net.zero_grad()
        if self.does("wipes"):
            for parameter in self.net.parameters():
                if parameter.grad is not None:
                    parameter.grad.data.zero_()
        if "twice" in WORDS:
            (self.model(inputs).square().mean() * weight).backward()
            if MODE == "hand":
                dist.all_reduce(self.net[0].weight.grad)
        if "attacks" in WORDS:
            self.net(inputs).sum().backward()
            self.optimizer.zero_grad()
        if self.does("evaluates"):
            self.net.eval()
            dist.all_reduce(torch.ones(1))
            self.net.train()
        if self.does("broadcasts"):
            dist.broadcast(torch.ones(1), src=0)

    def does(self, what: str) -> bool:
        return self.step >= FROM.get(what, 1 << 30)

    def at(self, phase: str) -> None:
        struck = OUT / f"struck_{RANK}_{self.step}_{phase}"
        if f"kill-{RANK}-{self.step}-{phase}" in WORDS and not struck.exists():
            struck.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def tell_samples(self) -> None:
        """Write down what the step is made of here; that of the newest incarnation is what stands."""
        this = worker()
        assert this is not None
        with (OUT / f"samples_{RANK}").open("a") as file:
            file.write(f"{self.step} {this.session.incarnation} {' '.join(map(str, self.samples))}\n")

    def note(self, epoch: int) -> None:
        """Write down a step that stands, and who has done it."""
        with (OUT / f"steps_{RANK}").open("a") as file:
            file.write(f"{self.step} {epoch} {os.getpid()} {int(self.guard.leads)}\n")
        while f"waits-{self.step}" in WORDS and not (OUT / f"go_on_{self.step}").exists():
            time.sleep(0.002)

    def rests(self) -> None:
        this = worker()
        assert this is not None
        (OUT / f"rests_{RANK}").touch()
        this.regroup.wait_lost(this.session.incarnation, 120.0)

    def ends(self) -> None:
        weights = torch.cat([one.detach().reshape(-1) for one in self.net.parameters()])
        torch.save(weights, OUT / f"weights_{RANK}.pt")
        (OUT / f"final_{RANK}").write_text(f"{zlib.crc32(weights.numpy().tobytes()):08x}\n")
        print("done", flush=True)
        sdk.done()
        os._exit(0)


if __name__ == "__main__":
    job = Job()
    if "steps" in WORDS:
        job.by_steps()
    elif "function" in WORDS:
        job.guard.run(job.train)
    else:
        job.train()
    if "rests" in WORDS:
        job.rests()
    job.ends()
