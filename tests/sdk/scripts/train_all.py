# ruff: noqa: T201 - what a worker prints goes to its log
"""One worker with everything that has a state, saved over and over while it trains.

Two optimizers of which one steps twice, schedulers by step and by epoch, a
gradient scaler that skips steps, an averaged model, accumulation, dropout,
batch norm, random augmentation from three generators, and a shuffling loader.
"""

import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

from faultrun import sdk
from sdk.support.checksums import checksum

EPOCHS = 4


class Everything:
    """A training whose every part can be compared with another's."""

    def __init__(self, directory: str) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        self.net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 3))
        self.head = nn.Linear(3, 3)
        self.model = nn.Sequential(self.net, self.head)
        self.body_optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        self.head_optimizer = torch.optim.SGD(self.head.parameters(), lr=0.1, momentum=0.9)
        self.by_step = torch.optim.lr_scheduler.OneCycleLR(self.body_optimizer, 0.02, total_steps=200)
        self.by_epoch = torch.optim.lr_scheduler.StepLR(self.head_optimizer, 1, gamma=0.7)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=5)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        data = TensorDataset(torch.randn(96, 8), torch.arange(96) % 3)
        self.loader = DataLoader(data, batch_size=8, shuffle=True)
        self.guard = sdk.torch.protect(
            self.model,
            self.body_optimizer,
            self.head_optimizer,
            directory=sdk.Folder(directory=Path(directory), keep=100),
            objects={
                "by_step": self.by_step,
                "by_epoch": self.by_epoch,
                "scaler": self.scaler,
                "average": self.average,
            },
        )

    def train(self, pace_s: float = 0.0) -> Iterator[int]:
        """Yields the global step after each one."""
        for epoch in range(self.guard.epoch, EPOCHS):
            for inputs, labels in self.guard.batches(self.loader, epoch):
                time.sleep(pace_s)
                noise = torch.randn_like(inputs) * np.random.rand() + random.random()
                loss = nn.functional.cross_entropy(self.model(inputs + 0.1 * noise), labels)
                self.scaler.scale(loss / 2).backward()
                if self.guard.step_in_epoch % 2 == 0:  # two batches make one update
                    self.update()
                    yield self.guard.global_step
            self.by_epoch.step()

    def update(self) -> None:
        self.scaler.step(self.body_optimizer)
        self.scaler.step(self.head_optimizer)
        self.head_optimizer.step()
        self.scaler.update()
        self.body_optimizer.zero_grad()
        self.head_optimizer.zero_grad()
        self.by_step.step()
        self.average.update_parameters(self.model)
        self.guard.step()

    def sum(self) -> str:
        """Over all there is."""
        parts = [
            checksum(self.model.state_dict(), self.body_optimizer.state_dict()),
            checksum(self.average.state_dict(), self.head_optimizer.state_dict()),
            self.by_step.state_dict(),
            self.by_epoch.state_dict(),
            self.scaler.state_dict(),
            torch.rand(1).item(),
            random.random(),
            float(np.random.randn()),
        ]
        return repr(parts)


def main() -> None:
    training: Any = Everything(os.environ["CKPT"])
    for step in training.train(float(sys.argv[1])):
        if step % 10 == 0:
            print("step", step, flush=True)
    Path(os.environ["OUT"], "sum").write_text(training.sum())


if __name__ == "__main__":
    main()
