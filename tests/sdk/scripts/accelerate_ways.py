"""Trains with every way in which accelerate opens data: without a stop, and resumed from either kind of save.

Run by torchrun; the first argument is a directory. Prints ``<way> <from what> same`` or ``... DIFFERENT``.
"""

import itertools
import os
import random
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from faultrun.sdk.accelerate import AccelerateGuard, protect

SIZE, STEPS, STOP = 103, 17, 9
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "split": {"split_batches": True},
    "uneven": {"even_batches": False},
    "seedable": {"use_seedable_sampler": True},
    "dispatched": {"dispatch_batches": True},
    "dispatched-split": {"dispatch_batches": True, "split_batches": True},
    "stream": {"dispatch_batches": False, "of": "stream"},
    "two-models": {"of": "models"},
    "accumulated": {"accumulate": 3},
}


class Stream(IterableDataset):  # type: ignore[misc]
    """Numbers in their order."""

    def __iter__(self) -> Any:
        return iter(torch.arange(SIZE, dtype=torch.float32).reshape(-1, 1) / SIZE)

    def __len__(self) -> int:
        return SIZE


class Training:
    """Models with dropout and a schedule, from the same first weights each time."""

    def __init__(self, directory: Path, of: str = "", accumulate: int = 1, **config: Any) -> None:
        AcceleratorState._reset_state()
        GradientState._reset_state()
        self.accelerator = Accelerator(
            cpu=True,
            gradient_accumulation_steps=accumulate,
            dataloader_config=DataLoaderConfiguration(**config),
        )
        torch.manual_seed(3)
        random.seed(3)
        self.of = of
        models = [nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.3), nn.Linear(8, 1)) for _ in range(2)]
        self.models = models[: 2 if of == "models" else 1]
        self.optimizers = [torch.optim.Adam(one.parameters(), lr=0.01) for one in self.models]
        schedules = [torch.optim.lr_scheduler.ExponentialLR(one, 0.99) for one in self.optimizers]
        data = TensorDataset(torch.arange(SIZE, dtype=torch.float32).reshape(-1, 1) / SIZE)
        loader = DataLoader(Stream() if of == "stream" else data, batch_size=6, shuffle=of != "stream")
        count = len(self.models)
        prepared = self.accelerator.prepare(*self.models, *self.optimizers, *schedules, loader)
        self.nets, self.updating = prepared[:count], prepared[count : 2 * count]
        self.schedules, self.loader = prepared[2 * count : -1], prepared[-1]
        self.guard: AccelerateGuard = protect(self.accelerator, directory=directory)
        torch.manual_seed(self.accelerator.process_index)
        self.seen: list[float] = []

    def go(self, until: int) -> list[float]:
        """Train on up to this update; the weights."""
        for epoch in itertools.count(self.guard.epoch):
            for batch in self.guard.batches(self.loader, epoch):
                values = batch if self.of == "stream" else batch[0]
                self.seen.append(values.sum().item())
                with self.accelerator.accumulate(*self.nets):
                    for net, optimizer, schedule in zip(
                        self.nets, self.updating, self.schedules, strict=True
                    ):
                        self.accelerator.backward((net(values) - values.square()).square().mean())
                        optimizer.step()
                        schedule.step()
                        optimizer.zero_grad()
                self.guard.step()
                if self.guard.global_step >= until and self.accelerator.sync_gradients:
                    return [x for one in self.models for p in one.parameters() for x in p.flatten().tolist()]
        raise AssertionError("never")


def main() -> None:
    torch.set_num_threads(1)
    rank = PartialState(cpu=True).process_index
    for way, config in WAYS.items():
        place = Path(sys.argv[1], way)
        whole = Training(place, **config)
        weights = whole.go(STEPS)
        begun = Training(place, **config)
        begun.go(STOP)
        begun.accelerator.save_state(str(place / "folder"))
        own = begun.guard.save(place / f"rank_{rank}.pt").path
        whole.accelerator.wait_for_everyone()
        for kind in ("folder", "file"):
            resumed = Training(place, **config)
            random.random()  # a script is never quite at the same place
            torch.rand(3)
            if kind == "folder":
                resumed.accelerator.load_state(str(place / "folder"))
            else:
                resumed.guard.load(torch.load(own, weights_only=True))
            same = resumed.go(STEPS) == weights and begun.seen + resumed.seen == whole.seen
            sys.stdout.write(f"rank {rank} {way} {kind} {'same' if same else 'DIFFERENT'}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
    os._exit(0)  # torch's own threads abort one interpreter shutdown in twelve
