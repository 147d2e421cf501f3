# ruff: noqa: T201 - what a worker prints goes to its log
"""Data-parallel training over several hosts that prints each step's loss, to the last bit.

``nodes_ddp.py CONFIG CHECKPOINTS [--resume FILE]``: rank 0 saves every five steps, every rank can save in a
dying gasp. CHECKPOINTS by a relative path are on each host's own disk: then a rank of each host saves.
In the life that begins anew the last rank stops before the collective of step 13, if CONFIG
says so: the others wait in it until somebody ends it.
"""

import argparse
import os
import signal
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import yaml
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from faultrun import sdk

STOPS_BEFORE = 13


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("--resume", default="")
    told = parser.parse_args()
    own_disk = not told.checkpoints.is_absolute()
    config = yaml.safe_load(told.config.read_text())
    if Path("/sys/class/net/eth0").exists():
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank, size = dist.get_rank(), dist.get_world_size()
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.25), nn.Linear(32, 4))
    # DistributedDataParallel rearranges its buckets after a step: with more than two ranks sums differ then.
    model: nn.Module = net if size > 2 else nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(100 + rank)
    images = torch.randn(40 * size, 16, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(images, torch.arange(40 * size) % 4)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=3), drop_last=True)
    guard = sdk.torch.protect(model, optimizer, directory=told.checkpoints)
    point = guard.resume()
    say("config", config["pre_trained"] or None)
    say("argument", told.resume or None)
    say("resumed", point and point.path)
    saves = os.environ["LOCAL_RANK" if own_disk else "RANK"] == "0"
    for epoch in range(guard.epoch, 2):
        for inputs, labels in guard.batches(loader, epoch):
            if config["stops"] and point is None and guard.global_step + 1 == STOPS_BEFORE:
                say("ready")
                if rank == size - 1:
                    signal.pause()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            if model is net:
                for parameter in net.parameters():
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= size
            optimizer.step()
            guard.step()
            say("step", guard.global_step, "loss", loss.item().hex())
            if saves and guard.global_step % 5 == 0:
                guard.save(told.checkpoints / f"step_{guard.global_step}.pt")
    dist.barrier()
    os._exit(0)  # a thread of gloo may abort an interpreter that is being torn down


def say(*words: object) -> None:
    print(*words, flush=True)


if __name__ == "__main__":
    main()
