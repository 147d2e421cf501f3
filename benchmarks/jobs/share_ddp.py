"""A DistributedDataParallel training over a dataset; survivors share a dead rank's samples, where they can.

Everybody runs this very script. A sample takes its time, so that a rank with more of them takes longer.
"""

import os
import sys
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from benchmarks.jobs.ddp import CLASSES, FEATURES, tell
from benchmarks.jobs.stay_ddp import begin, strike
from benchmarks.jobs.tell import rank

SAMPLES, BATCH, EPOCHS = 240_000, 8, 1000


class Numbers(Dataset):  # type: ignore[misc]
    """Random images and labels, each the same for every rank that reads it."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(at)
        return torch.randn(FEATURES, generator=generator), torch.randint(0, CLASSES, (), generator=generator)


def main() -> None:
    options, training, guard = begin()
    pause, data = threading.Event(), Numbers()
    loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, seed=options.seed))
    for epoch in range(guard.epoch, EPOCHS):
        counted = 0
        for images, labels in guard.batches(loader, epoch):
            weight, more, step = guard.weight, guard.accumulating, guard.global_step + 1
            strike(options.kill, options.kill_once, step)
            with guard.attempt() as attempt:
                pause.wait(options.step_s * len(labels) / BATCH)
                loss = nn.functional.cross_entropy(training.parallel(images), labels) * weight
                loss.backward()
                if not more:
                    training.optimizer.step()
                    training.optimizer.zero_grad()
            counted += len(labels) if weight else 0
            if more and guard.accumulating:  # else all parts of the step come again
                continue
            if attempt.done:
                tell("step", guard.global_step)
                tell("samples", f"{guard.global_step}:{counted}")
                if rank() == 0 and guard.global_step % options.save_every == 0:
                    guard.save(options.checkpoint_dir / f"step-{guard.global_step:06d}.pt")
            counted = 0
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
