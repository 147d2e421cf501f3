"""A torch training that loses a device, goes on with fewer ranks, and takes the device back.

``shrinks.py [FOLDER]``: with a folder that all nodes share rank 1 says there that its host can be killed.
With SHARDED in its environment it has ``fully_shard``, and a folder of ``torch.distributed.checkpoint`` every
other step. Each step of each rank is a line in ``seen_<incarnation>_<rank>.jsonl``. At the end rank 0 does
the same steps once more, undisturbed and in one process: ``alone.jsonl``.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from faultrun import sdk

if SHARDED := "SHARDED" in os.environ:  # other ranks need not import it
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

BATCH, EPOCHS, SAMPLES = 4, 4, 66  # of three ranks the last step of an epoch has two samples a rank
WORLD = int(os.environ["FAULTRUN_WORLD_SIZE_FULL"])
BROKEN, WELL = 4, 14
FOLDER = Path(*sys.argv[1:])


def data() -> TensorDataset:
    torch.manual_seed(7)
    inputs = torch.randn(SAMPLES, 5)
    return TensorDataset(torch.arange(SAMPLES), inputs, inputs.sum(1, keepdim=True).sin())


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def loader(dataset: TensorDataset, ranks: int, rank: int) -> DataLoader[Any]:
    return DataLoader(dataset, BATCH, sampler=DistributedSampler(dataset, ranks, rank))


def alone(said: TextIO) -> None:
    """All batches of a step at once."""
    model, optimizer = model_and_optimizer()
    dataset, step = data(), 0
    for epoch in range(EPOCHS):
        ranks = [loader(dataset, WORLD, rank) for rank in range(WORLD)]
        for one in ranks:
            one.sampler.set_epoch(epoch)
        for batches in zip(*ranks, strict=True):
            numbers, inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            line = {"step": step, "loss": loss.item(), "samples": numbers.tolist()}
            said.write(f"{json.dumps(line)}\n")


class Training:
    """Shards of model and optimizer, which fit any number of ranks."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )


def train() -> None:
    rank, life = int(os.environ["RANK"]), int(os.environ["FAULTRUN_INCARNATION"])
    dist.init_process_group("gloo")
    model, optimizer = model_and_optimizer()
    if SHARDED:
        parallel = fully_shard(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    else:
        parallel = nn.parallel.DistributedDataParallel(model)
    guard = sdk.torch.protect(parallel, optimizer, directory=FOLDER / "ck")
    everything = {"training": Training(model, optimizer), "guard": guard}
    guard.resume(load=(lambda path: dcp.load(everything, checkpoint_id=path)) if SHARDED else None)
    dataset = data()
    seen = (FOLDER / f"seen_{life}_{rank}.jsonl").open("a", buffering=1)
    samples: list[int] = []
    loss_here = 0.0
    for epoch in range(guard.epoch, EPOCHS):
        for numbers, inputs, targets in guard.batches(loader(dataset, dist.get_world_size(), rank), epoch):
            dies(rank, life, guard.global_step + 1)
            loss = nn.functional.mse_loss(parallel(inputs), targets) * guard.weight
            loss.backward()
            loss_here += loss.item()
            samples += numbers.tolist() if guard.weight else []
            if guard.accumulating:
                continue
            optimizer.step()
            optimizer.zero_grad()
            guard.step()
            seen.write(json.dumps({"step": guard.global_step, "loss": loss_here, "samples": samples}) + "\n")
            samples, loss_here = [], 0.0
            if SHARDED and guard.global_step % 2 == 0:
                dcp.save(everything, checkpoint_id=f"ck/step-{guard.global_step}")
            elif dist.get_world_size() < WORLD and guard.global_step == WELL:
                waits(guard, rank)
    dist.barrier()
    if rank == 0:
        with (FOLDER / "alone.jsonl").open("w") as said:
            alone(said)
    sdk.done()


def dies(rank: int, life: int, step: int) -> None:
    if (rank, life, step) == (1, 0, BROKEN):
        if sys.argv[1:]:
            (FOLDER / "can_be_killed").touch()
            signal.pause()
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")


def waits(guard: Any, rank: int) -> None:
    """Save until the device is well again, and somebody notices."""
    for number in range(100_000):
        time.sleep(0.05)
        if rank == 0 and number % 20 == 0:
            guard.save(FOLDER / f"ck/step_{WELL}_{number}.pt")


if __name__ == "__main__":
    train()
