# ruff: noqa: T201 - what a worker prints goes to its log
"""FSDP2 on the CPU that can be checked bit for bit, protected by the SDK without any word about shards.

Every rank appends "step <n> <crc> <crc>" to ``sums_<rank>`` in $OUT after each step: of its own shards of
parameters and optimizer, and of these and the buffers. Words on the command line name what shall happen.
"""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from faultrun import sdk
from sdk.support.checksums import checksums, local_tensors

EPOCHS, PACE_S, *WORDS = sys.argv[1:]
OUT = Path(os.environ["OUT"])
RANK = int(os.environ["RANK"])


class Averages:
    """Averaged parameters, as shards: what a script of today keeps beside a sharded model."""

    def __init__(self, net: nn.Module) -> None:
        self._net = net
        self._kept = {name: one.detach().clone() for name, one in net.named_parameters()}

    def update(self) -> None:
        live = [one.detach() for one in self._net.parameters()]
        if "tensor" not in WORDS:
            torch._foreach_lerp_(list(self._kept.values()), live, 0.1)
            return
        for kept, one in zip(self._kept.values(), live, strict=True):  # the one is spread, the other is not
            kept.lerp_(one, 0.1)

    def state_dict(self) -> dict[str, Any]:
        return dict(self._kept)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, one in state.items():
            self._kept[name].copy_(one)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    net = nn.Sequential(
        nn.Linear(16, 33),
        nn.BatchNorm1d(33),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(33, 32),
        nn.Linear(32, 4),
    )
    spread(net)
    model: Any = torch.compile(net, backend="eager") if "compiled" in WORDS else net
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, foreach="tensor" not in WORDS)
    averages = Averages(net)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    torch.manual_seed(100 + RANK)
    data = TensorDataset(
        torch.randn(512, 16, generator=torch.Generator().manual_seed(1)), torch.arange(512) % 4
    )
    sampler = (
        DistributedSampler(data, 1, 0, seed=3) if "tensor" in WORDS else DistributedSampler(data, seed=3)
    )
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    guard = sdk.torch.protect(
        model, optimizer, directory=os.environ["CKPT"], objects={"scheduler": scheduler, "averages": averages}
    )
    print("group", *guard.training.writer.folder.replica_group, flush=True)
    guard.resume()
    if guard.global_step:
        note(guard, net, optimizer, averages, "resumed")
    for epoch in range(guard.epoch, int(EPOCHS)):
        for number, (inputs, labels) in enumerate(guard.batches(loader, epoch)):
            time.sleep(float(PACE_S))
            misbehave(guard.global_step + 1)
            loss = nn.functional.cross_entropy(model(inputs).float(), labels)
            loss.backward()
            if "accumulate" in WORDS and number % 2 == 0:
                continue
            if "unclipped" not in WORDS:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            averages.update()
            guard.step()
            note(guard, net, optimizer, averages, "step")
    print("done", flush=True)
    os._exit(0)


def spread(net: nn.Sequential) -> None:
    """Over all ranks, or as the words say."""
    world = dist.get_world_size()
    if "tensor" in WORDS:
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
        parallelize_module(net, mesh, {"4": ColwiseParallel(), "5": RowwiseParallel()})
        return
    if "hybrid" in WORDS:
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (world,))
    options: dict[str, Any] = {"mesh": mesh}
    if "offload" in WORDS:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    mixed = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)
    for layer in (net[0], net[4]):
        fully_shard(layer, **options, mp_policy=mixed if "mixed" in WORDS else MixedPrecisionPolicy())
    fully_shard(net, **options)


def misbehave(step: int) -> None:
    if f"kill-{RANK}-{step}" in WORDS:
        os.kill(os.getpid(), signal.SIGKILL)


def note(guard: Any, net: nn.Module, optimizer: Any, averages: Averages, word: str) -> None:
    """Read as the helper thread does: ``state_dict`` would bring gathered parameters back into shards."""
    live = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    model = local_tensors({**live, **{f"average.{name}": one for name, one in averages.state_dict().items()}})
    shared, whole = checksums(model, local_tensors(optimizer.state_dict()))
    with (OUT / f"sums_{RANK}").open("a") as file:
        file.write(f"{word} {guard.global_step} {shared} {whole}\n")


if __name__ == "__main__":
    main()
