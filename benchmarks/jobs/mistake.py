"""A DistributedDataParallel training with a mistake in its script, which every life meets again."""

import argparse
import os
import sys
import time
from pathlib import Path

from benchmarks.jobs.tell import BORN_S, Teller, rank

tell = Teller()
tell("running", at_s=BORN_S)

import torch  # noqa: E402  the note above must not wait for it
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from faultrun import sdk  # noqa: E402

FEATURES, CLASSES, BATCH = 64, 10, 32
LABELS = dict.fromkeys(range(CLASSES))


def main() -> None:
    options = read_options()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    net = nn.Linear(FEATURES, CLASSES)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    guard = sdk.torch.protect(model, optimizer, directory=Path("checkpoints"))
    guard.resume()
    while guard.global_step < options.steps:
        if rank() == 1 and guard.global_step + 1 >= options.at_step:
            tell("failing", guard.global_step)
            print(LABELS[CLASSES + time.time_ns()])  # another key in each life
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            model(torch.randn(BATCH, FEATURES)), torch.arange(BATCH) % CLASSES
        ).backward()
        optimizer.step()
        guard.step()
    sys.stdout.flush()
    os._exit(0)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--at_step", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
