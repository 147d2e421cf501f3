"""A sharded training that copies its shards as ``auto`` chose and not at all, in turn; then at every step.

``snapshot_torch.py WIDTH PAIRS``. The same processes, so that a slow minute of the machine hits both of a
pair, of which the one goes first in every second. All ranks count the same steps, and so change together.
Rank 0 tells the time of a step in each block. At last steps without copies, each beside one of an equal
training that the SDK does not know.
"""

import os
import sys
import time
from collections import deque
from itertools import chain
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from benchmarks.jobs.tell import Teller
from faultrun import sdk
from faultrun.sdk.snapshots.interval import SnapshotInterval
from faultrun.sdk.torch.snapshots.shard_copies import ShardCopies

WIDTH, PAIRS = map(int, sys.argv[1:])
LAYERS, BATCH = 6, 64
_SETTLE = 2
"""Steps at the beginning of a block that are not counted: what the one before has begun ends in them."""
_BLOCK = 12
"""Steps that are counted at least; with copies as many as there are between some of them."""
_BESIDE = 200
"""Steps beside those of the training without the SDK."""
_AT_EACH = 4
"""Blocks with a copy at every step, each beside one without."""


def main() -> None:
    tell = Teller()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    sdk.torch.init_process_group("gloo")
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
    net, optimizer = made(mesh)
    guard = sdk.torch.protect(net, optimizer, directory="checkpoints")
    inputs = torch.randn(BATCH, WIDTH)
    blocks: Blocks | None = None
    for _ in guard.steps(1_000_000):
        with guard.attempt():
            train(net, optimizer, inputs)
        interval = interval_of(guard)
        if blocks is None and interval.is_settled:
            blocks = Blocks(interval, tell if rank == 0 else None)
        if blocks is not None and blocks.stepped():
            break
    interval.every, other = 0, made(mesh)
    bare_s, under_s, hooks_s = list[float](), list[float](), list[float]()
    began_s = time.perf_counter()
    for _ in guard.steps(guard.global_step + _BESIDE):
        with guard.attempt():
            train(net, optimizer, inputs)
            trained_s = time.perf_counter()
        hooks_s.append(time.perf_counter() - trained_s)
        ended_s = time.perf_counter()
        train(*other, inputs)
        bare_s.append(time.perf_counter() - ended_s)
        under_s.append(ended_s - began_s)
        began_s = time.perf_counter()
    tell("hook", f"{median(hooks_s):.9f}")
    tell("speed", f"{median(bare_s) / median(under_s):.9f}")
    sdk.done()
    os._exit(0)


def made(mesh: Any) -> tuple[Any, Any]:
    """A model over the mesh, and its optimizer."""
    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net, torch.optim.AdamW(net.parameters(), lr=1e-4)


def train(net: Any, optimizer: Any, inputs: Any) -> None:
    """One step."""
    net(inputs).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


class Blocks:
    """Blocks of steps, each with another interval. ``tell`` of rank 0, else None."""

    def __init__(self, interval: SnapshotInterval, tell: Teller | None) -> None:
        self._interval, self._tell = interval, tell
        self._chosen = interval.every
        if tell is not None:
            tell("interval", self._chosen)
        self._steps = 0
        self._began_s = 0.0
        auto, none, one = ("auto", self._chosen), ("none", 0), ("one", 1)
        pairs = [(auto, none), (none, auto)] * (PAIRS // 2)
        self._left = deque([*chain.from_iterable(pairs), *((("bare", 0), one) * _AT_EACH)])
        self._interval.every = self._left[0][1]

    def stepped(self) -> bool:
        """A step is complete; whether it was the last."""
        kind, every = self._left[0]
        length = -(-_BLOCK // max(every, 1)) * max(every, 1)
        self._steps += 1
        if self._steps == _SETTLE:
            self._began_s = time.perf_counter()
        if self._steps == _SETTLE + length:
            took_s = (time.perf_counter() - self._began_s) / length
            if self._tell is not None:
                self._tell(kind, f"{took_s:.9f}")
            self._steps = 0
            self._left.popleft()
            if self._left:
                self._interval.every = self._left[0][1]
        return not self._left


def interval_of(guard: Any) -> SnapshotInterval:
    """The one that this rank copies by: nothing public changes it in the middle of a training."""
    shard = guard.rejoin._memory._shard
    assert isinstance(shard, ShardCopies)
    return shard._interval


if __name__ == "__main__":
    main()
