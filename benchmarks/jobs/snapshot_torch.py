"""A sharded training that copies its shards in turn as ``auto`` chose, at every step, and not at all.

``snapshot_torch.py WIDTH BLOCKS``. The same processes, so that a slow minute of the machine hits all three.
All ranks count the same steps, and so change together. Rank 0 tells the time of a step in each block.
"""

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from benchmarks.jobs.tell import Teller
from faultrun import sdk
from faultrun.sdk.snapshot_interval import SnapshotInterval
from faultrun.sdk.torch.shard_copies import ShardCopies

WIDTH, BLOCKS = map(int, sys.argv[1:])
LAYERS, BATCH = 6, 64
_SETTLE = 4
"""Steps at the beginning of a block that are not counted: what the one before has begun ends in them."""

_BLOCK = 24


def main() -> None:
    tell = Teller()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    sdk.torch.init_process_group("gloo")
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    guard = sdk.torch.protect(net, optimizer, directory="checkpoints")
    inputs = torch.randn(BATCH, WIDTH)
    blocks: Blocks | None = None
    for step in guard.steps(1_000_000):
        with guard.attempt():
            net(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        interval = interval_of(guard)
        if blocks is None and interval.is_settled:
            blocks = Blocks(interval, tell if rank == 0 else None)
        if blocks is not None and blocks.stepped():
            break
        if step == 1:
            tell("began")
    sdk.done()
    os._exit(0)


class Blocks:
    """Blocks of steps, each with another interval. ``tell`` of rank 0, else None."""

    def __init__(self, interval: SnapshotInterval, tell: Teller | None) -> None:
        self._interval, self._tell = interval, tell
        self._chosen = interval.every
        if tell is not None:
            tell("interval", self._chosen)
        self._number = self._steps = 0
        self._began_s = 0.0
        self._kinds = (("auto", self._chosen), ("none", 0), ("one", 1))
        self._interval.every = self._kinds[0][1]

    def stepped(self) -> bool:
        """A step is complete; whether it was the last."""
        kind, every = self._kinds[self._number % len(self._kinds)]
        length = -(-_BLOCK // max(every, 1)) * max(every, 1)
        self._steps += 1
        if self._steps == _SETTLE:
            self._began_s = time.perf_counter()
        if self._steps == _SETTLE + length:
            took_s = (time.perf_counter() - self._began_s) / length
            if self._tell is not None:
                self._tell(kind, f"{took_s:.9f}")
            self._number, self._steps = self._number + 1, 0
            self._interval.every = self._kinds[self._number % len(self._kinds)][1]
        return self._number == BLOCKS * len(self._kinds)


def interval_of(guard: Any) -> SnapshotInterval:
    """The one that this rank copies by: nothing public changes it in the middle of a training."""
    shard = guard.rejoin._memory._shard
    assert isinstance(shard, ShardCopies)
    return shard._interval


if __name__ == "__main__":
    main()
