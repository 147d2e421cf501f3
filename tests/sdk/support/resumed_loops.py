"""Loops over loaders that draw from generators of their own: broken off, saved, and gone on with."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from faultrun.sdk.torch.guard import Guard
from sdk.support.protected import protected

SIZE = 12

GENERATORS: dict[str, Callable[[], Any]] = {
    "default_rng": lambda: np.random.default_rng(5),
    "philox": lambda: np.random.Generator(np.random.Philox(5)),
    "sfc": lambda: np.random.Generator(np.random.SFC64(5)),
    "mt": lambda: np.random.Generator(np.random.MT19937(5)),
    "RandomState": lambda: np.random.RandomState(5),
    "Random": lambda: random.Random(5),
    "torch": lambda: torch.Generator().manual_seed(5),
}


def order_from(generator: Any, size: int = SIZE) -> list[int]:
    """A new order."""
    if isinstance(generator, torch.Generator):
        return [int(one) for one in torch.randperm(size, generator=generator)]
    if isinstance(generator, random.Random):
        return generator.sample(range(size), size)
    return [int(one) for one in generator.permutation(size)]


def number_from(generator: Any) -> float:
    if isinstance(generator, torch.Generator):
        return float(torch.rand(1, generator=generator))
    return float(generator.random()) if hasattr(generator, "random") else float(generator.rand())


class Transformed(Dataset):  # type: ignore[misc]
    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __getitem__(self, index: int) -> float:
        value = float(index)
        for one in self.transforms:
            value = one(value)
        return value

    def __len__(self) -> int:
        return SIZE


def guarded(directory: Path) -> Guard:
    net = nn.Linear(1, 1)
    return protected(directory, torch.optim.SGD(net.parameters(), lr=0.1), net=net)


def trained(guard: Guard, loader: Any, stop_after: int | None = None) -> list[str]:
    seen: list[str] = []
    for epoch in range(guard.epoch, 4):
        for batch in guard.batches(loader, epoch):
            seen.append(f"{epoch} {batch}")
            guard.step()
            if guard.global_step == stop_after:
                return seen
    return seen


def assert_goes_on(make: Callable[[], Any], directory: Path, stop_after: int) -> None:
    def anew() -> Any:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        return make()

    whole = trained(guarded(directory), anew())
    first = guarded(directory)
    began = trained(first, anew(), stop_after)
    saved = first.save(directory / "saved.pt")
    second, loader = guarded(directory), anew()
    second.load(torch.load(saved.path, weights_only=True))
    assert began + trained(second, loader) == whole
