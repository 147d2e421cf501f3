"""Two equal trainings in one process, step by step in turn: one under the SDK, one without. Prints JSON.

The same process, so that a slow moment of the machine hits both alike; steps
are in processor time, which waiting for a busy processor does not lengthen.
"""

import json
import random
import sys
import time
from typing import Any

import torch
from torch import nn

from faultrun import sdk

STEPS = int(sys.argv[1])
WARM_UP = 10


class Training:
    """One small classifier; ``guard`` is None for the bare one."""

    def __init__(self, directory: str) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Linear(784, 2048), nn.BatchNorm1d(2048), nn.ReLU(), nn.Dropout(0.1), nn.Linear(2048, 512)
        )
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=1000)
        self.guard: Any = None
        if directory:
            objects = {"scheduler": self.scheduler}
            self.guard = sdk.torch.protect(self.net, self.optimizer, directory=directory, objects=objects)
        self.steps_s: list[float] = []
        self.hooks_s: list[float] = []

    def step(self, inputs: Any, labels: Any) -> None:
        """One step, timed."""
        began_s = time.process_time()
        loss = nn.functional.cross_entropy(self.net(inputs), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        if self.guard is not None:
            hook_s = time.perf_counter()
            self.guard.step()
            self.hooks_s.append(time.perf_counter() - hook_s)
        self.steps_s.append(time.process_time() - began_s)


def main() -> None:
    torch.set_num_threads(1)
    both = [Training(sys.argv[2]), Training("")]
    inputs, labels = torch.randn(96, 784), torch.randint(0, 512, (96,))
    chance = random.Random(1)
    for _ in range(STEPS + WARM_UP):
        for training in chance.sample(both, 2):
            training.step(inputs, labels)
    under, bare = both
    calls_s = []
    for number in range(1000):
        began_s = time.perf_counter()
        sdk.step(number + 1)
        calls_s.append(time.perf_counter() - began_s)
    again_s = []
    for _ in range(1000):
        began_s = time.perf_counter()
        under.guard.step()
        again_s.append(time.perf_counter() - began_s)
    result = {
        "under_s": under.steps_s[WARM_UP:],
        "bare_s": bare.steps_s[WARM_UP:],
        "hook_s": under.hooks_s[WARM_UP:],
        "again_s": again_s,
        "call_s": calls_s,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
