"""``loops_zoo.py CASE``: a training that is composed as CASE says, the JSON of ``campaigns.loops``.

One of its ranks dies at a place of a step, unless there is a file ``killed``. Each rank tells each of its
steps, and its state at the end, in ``seen-<rank>.jsonl``.
"""

import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.jobs.loops_data import BATCH, RANK, SHARE, WIDTH, WORLD, loader_of, row
from benchmarks.jobs.loops_objects import Counting, Kept, Noise
from faultrun import sdk
from faultrun.sdk.torch.state.shards import local_of
from faultrun.sdk.torch.state.trees import map_tensors

CASE = json.loads(sys.argv[1])
MODEL, PARALLEL, UPDATE, DATA = (CASE[name] for name in ("model", "parallel", "update", "data"))
NUMBERS, AROUND, OBJECTS, STAY = (CASE[name] for name in ("numbers", "around", "objects", "stay"))
EPOCHS, STEPS = 3, 12
DDP = {"static": "static_graph", "unused": "find_unused_parameters", "views": "gradient_as_bucket_view"}
KILLED = Path("killed")


class _Block(nn.Module):  # type: ignore[misc]
    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(WIDTH, WIDTH), nn.Dropout(0.2 if NUMBERS == "in" else 0.0)
        self.norm = {"batch norm": nn.BatchNorm1d(WIDTH), "extra": Counting()}.get(MODEL, nn.Identity())
        self.register_buffer("mean", torch.zeros(()), persistent=MODEL != "hidden")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.linear(x))
        if self.training and MODEL in {"re-assigned", "hidden"}:  # of replicas alike, unless they stay
            news = (x if STAY else local_of(self.linear.weight)).detach().mean()
            if MODEL == "hidden":
                self.mean.mul_(0.9).add_(0.1 * news)
            else:
                self.mean = 0.9 * self.mean + 0.1 * news
        return torch.tanh(self.drop(x - self.mean))


class _Net(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = _Block(), _Block()
        if MODEL == "tied":
            self.outer.linear.weight = self.inner.linear.weight
        if PARALLEL == "ddp unused":
            self.unused = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.inner(x))


def in_parallel(net: _Net) -> Any:
    if PARALLEL == "by hand":
        return net
    kind, _, option = PARALLEL.partition(" ")
    if kind == "ddp":
        own = {"broadcast_buffers": False} if option == "own buffers" else {}
        return DistributedDataParallel(net, **own, **({DDP[option]: True} if option in DDP else {}))
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b")) if kind == "hsdp" else None
    for one in (net.inner, net.outer) if option == "nested" or MODEL == "parts" else ():
        fully_shard(one, mesh=mesh)
    return net if MODEL == "parts" else fully_shard(net, mesh=mesh)


def optimizers_of(net: _Net) -> list[Any]:
    if UPDATE == "closure":
        return [torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=2)]
    halves = [net.inner, net.outer] if UPDATE in {"several", "critic"} else [net]
    return [torch.optim.AdamW(one.parameters(), lr=0.01) for one in halves]


class _Job:
    def __init__(self) -> None:
        (sdk.torch if STAY else dist).init_process_group("gloo")
        for number in (signal.SIGTERM, signal.SIGUSR1) if AROUND == "handlers" else ():
            signal.signal(number, lambda *_: None)
        torch.manual_seed(3)
        self.net = _Net()
        self.parallel, self.scaler = (
            in_parallel(self.net),
            torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=4, enabled=UPDATE == "scaler"),
        )
        self.optimizers, self.scale = optimizers_of(self.net), nn.Parameter(torch.ones(()))
        if OBJECTS == "criterion":
            self.optimizers += [torch.optim.SGD([self.scale], lr=0.01)]
        torch.manual_seed(100 + RANK), random.seed(RANK), np.random.seed(RANK)
        self.shadow = Kept(**{name: torch.zeros(96, 256) for name in ("a", "b")})
        self.queue, self.noise = Kept(rows=torch.zeros(2048, WIDTH), place=0), Noise()
        named = {"queue": self.queue, "average": self.shadow, "own noise": self.noise}
        objects: dict[str, Any] = {"object": named[OBJECTS]} if OBJECTS in named else {}
        objects |= {"scaler": self.scaler} if UPDATE == "scaler" else {}
        self.guard = sdk.torch.protect(self.parallel, *self.optimizers, directory="ckpt", objects=objects)
        self.guard.resume()
        self.now = self.failures = 0
        self.loader: Any = None
        self.stops = False
        self.parts: list[tuple[list[int], float]] = []

    def train(self) -> None:
        guard = self.guard
        if DATA == "steps":
            for _ in guard.steps(STEPS):
                self.step([], None)
            return
        self.loader = loader_of(DATA)
        epochs = 1 if DATA == "infinite" else 2 * EPOCHS if AROUND == "break" else EPOCHS
        for epoch in range(guard.epoch, epochs):
            for numbers, x in guard.batches(self.loader, epoch):
                self.step(numbers.tolist(), x)
                if self.stops or guard.global_step == STEPS:
                    return
                if AROUND == "break" and guard.step_in_epoch >= 2:
                    break

    def step(self, numbers: list[int], x: Any) -> None:
        guard, self.now = self.guard, self.guard.global_step + 1
        said = attempt = None
        try:
            with guard.attempt() if STAY else contextlib.nullcontext() as attempt:
                said = self.body(numbers, x)
        except RuntimeError:
            self.failures += 1
            if AROUND != "except" or self.failures > 3:
                raise
        if said is None or (attempt is not None and not attempt.done):
            return
        if not STAY and DATA != "steps":
            guard.step()
        self.point("after")
        tells({"step": self.now, **said})
        if AROUND == "between" and self.now % 3 == 0:
            torch.rand(5), random.random(), np.random.rand()
        if CASE["size"] == "grow" and dist.get_world_size() < WORLD and self.now == CASE["at"] + 2:
            for number in range(300):  # until one was read back, and all are told to begin again
                guard.save(f"ckpt/step_{self.now}_{number}.pt")
                signal.sigtimedwait([], 0.1)

    def body(self, numbers: list[int], x: Any) -> dict[str, Any] | None:
        self.point("data")
        x = torch.randn(BATCH, WIDTH) if x is None else x
        if AROUND == "in place":
            x.sub_(0.1).mul_(1.5)
        if OBJECTS == "own noise":
            x = x + 0.1 * torch.randn(x.shape, generator=self.noise.rng)
        if OBJECTS == "queue":
            kept = self.queue.kept
            kept["rows"][kept["place"] % 2048] = float(self.now)
            kept["place"] += 1
            x = x + 0.01 * kept["rows"].sum() / (1 + kept["place"])
        if NUMBERS == "before":
            x = x + 0.1 * torch.rand_like(x)
        if AROUND == "subprocess" and self.now % 4 == 0:
            subprocess.run(["true"], check=True)
        if AROUND == "evaluation" and self.now % 2 == 0:
            self.net.eval()
            with torch.no_grad():
                out = self.forward(row(1)[1].expand(2, WIDTH))
            self.point("evaluation")
            all_sum(out.sum().item())
            self.net.train()
        loss, norm = self.closes(x) if UPDATE == "closure" else self.update(x)
        self.parts.append((numbers if self.guard.weight else [], loss))
        if norm is None:
            return None
        parts, self.parts = self.parts, []
        if DATA == "weights":
            self.loader.sampler.weights[self.now % SHARE] += 1.0
        self.point("behind")
        if OBJECTS == "average":  # in place unseen by torch's counters, and replaced
            self.shadow.kept["a"].data.mul_(0.9).add_(self.now)
            self.shadow.kept["b"] = 0.9 * self.shadow.kept["b"] + self.now
        drawn = random.random() + np.random.rand() + torch.rand(1).item() if NUMBERS == "behind" else 0.0
        self.stops = AROUND == "early stop" and all_sum(loss) > 0 and self.now >= 10
        return {"loss": sum(one for _, one in parts), "norm": norm, "drawn": drawn,
                "batch": [one for each, _ in parts for one in each]}  # fmt: skip

    def update(self, x: torch.Tensor) -> tuple[float, float | None]:
        """The loss, and the gradients' norm where it is not only a part of a step."""
        ends = not self.guard.accumulating and not (UPDATE == "accumulation" and self.guard.step_in_epoch % 2)
        if UPDATE == "accumulation" and PARALLEL.startswith(("fsdp", "hsdp")):
            self.parallel.set_requires_gradient_sync(ends)
        alone = UPDATE == "accumulation" and PARALLEL.startswith("ddp") and not ends
        loss = norm = 0.0
        first = self.optimizers[:1]
        for optimizer in first if UPDATE == "critic" and self.now % 3 else self.optimizers:
            with self.parallel.no_sync() if alone else contextlib.nullcontext():
                loss += self.backward(x)
            if not ends:
                return loss, None
            self.averages()
            self.scaler.unscale_(optimizer)
            norm += self.clipped()
            if not math.isnan(norm):
                self.scaler.step(optimizer)
                self.scaler.update()
            self.net.zero_grad()
            self.scale.grad = None
            self.point("between")
        return loss, norm

    def closes(self, x: torch.Tensor) -> tuple[float, float]:
        norms = []

        def closure() -> float:
            self.net.zero_grad()
            loss = self.backward(x)
            self.averages()
            norms.append(self.clipped())
            self.point("between")
            return loss

        return float(self.optimizers[0].step(closure)), sum(norms)

    def forward(self, x: torch.Tensor) -> Any:
        return self.net.outer(self.net.inner(x)) if MODEL == "parts" else self.parallel(x)

    def backward(self, x: torch.Tensor) -> float:
        out = self.forward(x)
        self.point("forward")
        out.register_hook(lambda _: self.point("backward"))
        loss = (self.scale * out - x).square().mean() * self.guard.weight
        loss = loss * float("nan") if UPDATE == "nan" and self.now == 6 else loss
        self.scaler.scale(loss).backward()
        return float(loss.item())

    def averages(self) -> None:
        mine = [self.scale] if OBJECTS == "criterion" else []
        for one in (*mine, *(self.net.parameters() if PARALLEL == "by hand" else ())):
            dist.all_reduce(one.grad)
            one.grad /= dist.get_world_size()

    def clipped(self) -> float:
        norm: Any = nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)

    def point(self, phase: str) -> None:
        """A place of a step, where this rank may die."""
        if (RANK, self.now, phase) != (CASE["rank"], CASE["at"], CASE["phase"]) or KILLED.exists():
            return
        KILLED.touch()
        if CASE["size"] == "same":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

    def ends(self) -> None:
        whole = {
            "parameters": dict(self.net.named_parameters()),
            "optimizers": [one.state_dict() for one in self.optimizers],
            "scaler": self.scaler.state_dict(),
            "objects": (self.shadow.kept, self.queue.kept, self.noise.state_dict(), self.scale),
            "calls": [getattr(one, "calls", 0) for one in self.net.modules()],
            "buffers": dict(self.net.named_buffers()),
            "numbers": (torch.get_rng_state(), random.random(), np.random.rand()),
        }
        sums = (local_of(one).double().abs().sum().item() for one in self.net.parameters())
        said = {name: zlib.crc32(repr(plain(one)).encode()) for name, one in whole.items()}
        norm = all_sum(sum(sums)) / dist.get_world_size()
        tells({"step": "end", "norm": norm, "batch": [], **said})


def tells(line: dict[str, Any]) -> None:
    with Path(f"seen-{RANK}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def plain(state: Any) -> Any:
    return map_tensors(state, lambda tensor: local_of(tensor).tolist())


def all_sum(number: float) -> float:
    total = torch.tensor(number, dtype=torch.float64)
    dist.all_reduce(total)
    return float(total.item())


if __name__ == "__main__":
    torch.set_num_threads(1)
    job = _Job()
    job.train()
    job.ends()
    sdk.done()
