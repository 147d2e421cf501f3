# ruff: noqa: T201 - what a worker prints goes to its log
"""A pipeline of two stages, each with replicas, over process groups of its own, in a function for guard.run.

The words on the command line are the number of steps, and, done only once, ``kill-RANK-STEP-PHASE``.
"""

import os
import signal
import sys
import time
import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import cross_entropy

from faultrun import sdk

LAST, WORDS = int(sys.argv[1]), sys.argv[2:]
OUT = Path(os.environ["OUT"])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STAGES = 2
WIDTH, BATCH, MICRO_BATCHES = 32, 8, 2


def build(stage: int) -> nn.Module:
    torch.manual_seed(7 + stage)
    last = nn.Linear(WIDTH, 10 if stage == STAGES - 1 else WIDTH)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.1), last)


def data(step: int, replica: int) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(step * 1000 + replica)
    inputs = torch.randn(BATCH, WIDTH, generator=numbers)
    return inputs, torch.randint(0, 10, (BATCH,), generator=numbers)


class Job:
    def __init__(self, part: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.part, self.optimizer = part, optimizer
        self.step = 0
        optimizer.register_step_pre_hook(lambda *_: self.at("update"))
        optimizer.register_step_post_hook(lambda *_: self.at("updated"))

    def train(self, guard: Any) -> None:
        mesh = init_device_mesh("cpu", (WORLD // STAGES, STAGES), mesh_dim_names=("dp", "pp"))
        replica, number = mesh.get_local_rank("dp"), mesh.get_local_rank("pp")
        stage = PipelineStage(self.part, number, STAGES, torch.device("cpu"), group=mesh.get_group("pp"))
        schedule = ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=cross_entropy)
        for self.step in range(guard.global_step + 1, LAST + 1):
            self.at("begin")
            inputs, labels = data(self.step, replica)
            if number == 0:
                schedule.step(inputs)
            else:
                schedule.step(target=labels)
            self.at("backward")
            for parameter in self.part.parameters():
                dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
            self.optimizer.step()
            self.optimizer.zero_grad()
            guard.step()
            with (OUT / f"steps_{RANK}").open("a") as file:
                file.write(f"{self.step} {os.getpid()}\n")

    def at(self, phase: str) -> None:
        struck = OUT / f"struck_{RANK}_{self.step}_{phase}"
        if f"kill-{RANK}-{self.step}-{phase}" in WORDS and not struck.exists():
            struck.touch()
            (OUT / f"killed_{RANK}").write_text(repr(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    torch.set_num_threads(1)
    sdk.torch.init_process_group("gloo", timeout=timedelta(seconds=60))
    number = RANK % STAGES
    part = build(number)
    optimizer = torch.optim.AdamW(part.parameters(), lr=0.01)
    torch.manual_seed(100 + RANK)
    same = tuple(range(number, WORLD, STAGES))
    folder = sdk.Folder(directory=Path(os.environ["CKPT"]), replica_group=same)
    guard = sdk.torch.protect(part, optimizer, directory=folder, snapshot_every=1)
    guard.resume()
    guard.run(Job(part, optimizer).train)
    held = [
        *part.state_dict().values(),
        *(one for state in optimizer.state.values() for one in state.values()),
    ]
    crc = 0
    for tensor in (*held, torch.get_rng_state()):
        crc = zlib.crc32(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes(), crc)
    (OUT / f"final_{RANK}").write_text(f"{crc:08x}\n")
    print("done", flush=True)
    sdk.done()
    os._exit(0)


if __name__ == "__main__":
    main()
