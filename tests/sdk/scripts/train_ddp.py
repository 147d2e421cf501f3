# ruff: noqa: T201 - what a worker prints goes to its log
"""Data-parallel training on the CPU that can be checked bit for bit, protected by the SDK.

Every rank appends "step <n> <crc> <crc>" to ``sums_<rank>`` in $OUT after each
step: of parameters and optimizer (the same on all ranks), and of these and
the buffers. Words on the command line name what shall happen.

With more than two ranks sums depend on where a gradient lies in its bucket,
and DistributedDataParallel rearranges its buckets after its first step: only
with gradients reduced one by one ("byhand") can a resumed run stay equal bit for bit to the end.
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
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from faultrun import sdk
from sdk.support.checksums import checksums

EPOCHS, PACE_S, *WORDS = sys.argv[1:]
OUT = Path(os.environ["OUT"])
RANK = int(os.environ["RANK"])


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    net = nn.Sequential(
        nn.Linear(16, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Dropout(0.25 if "dropout" in WORDS else 0.0),
        nn.Linear(32, 4),
    )
    model: nn.Module = net if "byhand" in WORDS else DistributedDataParallel(net)
    if "adam" in WORDS:
        optimizer: Any = torch.optim.AdamW(net.parameters(), lr=0.01)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    torch.manual_seed(100 + RANK)
    data = TensorDataset(
        torch.randn(512, 16, generator=torch.Generator().manual_seed(1)), torch.arange(512) % 4
    )
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, seed=3), drop_last=True)
    guard = sdk.torch.protect(
        model, optimizer, directory=os.environ["CKPT"], objects={"scheduler": scheduler}
    )
    guard.resume()
    if guard.global_step:
        note(guard.global_step, net, optimizer, "resumed")
    for epoch in range(guard.epoch, int(EPOCHS)):
        for inputs, labels in guard.batches(loader, epoch):
            time.sleep(float(PACE_S))
            misbehave(guard.global_step + 1)
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            if "byhand" in WORDS:
                for parameter in net.parameters():
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= dist.get_world_size()
            optimizer.step()
            scheduler.step()
            if "late" in WORDS:
                dist.all_reduce(loss.detach())  # before the step is said to be complete
            if "automatic" not in WORDS:
                guard.step()
                note(guard.global_step, net, optimizer, "step")
            if "periodic" in WORDS and RANK == 0 and guard.global_step % 5 == 0:
                guard.save(Path(os.environ["CKPT"]) / f"step_{guard.global_step}.pt")
    print("done", flush=True)
    os._exit(0)  # torch's own threads abort one interpreter shutdown in twelve, with or without the SDK


def misbehave(step: int) -> None:
    if f"freeze-{RANK}-{step}" in WORDS:
        os.kill(os.getpid(), signal.SIGSTOP)
    if f"kill-{RANK}-{step}" in WORDS:
        os.kill(os.getpid(), signal.SIGKILL)


def note(step: int, net: nn.Module, optimizer: Any, word: str) -> None:
    with (OUT / f"sums_{RANK}").open("a") as file:
        shared, whole = checksums(net.state_dict(), optimizer.state_dict())
        file.write(f"{word} {step} {shared} {whole}\n")


if __name__ == "__main__":
    main()
