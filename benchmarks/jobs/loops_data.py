"""What the trainings of ``loops_zoo`` read: rows that are known by their number, in orders of many kinds."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler

RANK, WORLD, WIDTH, BATCH, SHARE = int(os.environ["RANK"]), 2, 8, 4, 16


def row(number: int) -> tuple[int, torch.Tensor]:
    return number, torch.sin(torch.arange(WIDTH) * 0.3 + number)


class _Rows(Dataset[Any]):  # type: ignore[misc]
    def __len__(self) -> int:
        return SHARE * WORLD

    def __getitem__(self, number: int) -> tuple[int, torch.Tensor]:
        return row(number)


class _Stream(IterableDataset[Any]):  # type: ignore[misc]
    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[Any]:
        yield from (row(number * WORLD + RANK) for number in range(self.size))


class _OwnOrder(Sampler[int]):  # type: ignore[misc]
    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)

    def __iter__(self) -> Iterator[int]:
        yield from (int(one) * WORLD + RANK for one in self.rng.permutation(SHARE))

    def __len__(self) -> int:
        return SHARE


class _Counts(_OwnOrder):
    """Another order each time that it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.times = {"read": 0}

    def __iter__(self) -> Iterator[int]:
        self.times["read"] += 1
        self.rng = np.random.default_rng(self.times["read"])
        return super().__iter__()


class _Weighted(_OwnOrder):
    """Draws more often what the steps have found."""

    def __init__(self) -> None:
        self.weights = torch.ones(SHARE)

    def __iter__(self) -> Iterator[int]:
        yield from (int(one) * WORLD + RANK for one in torch.multinomial(self.weights, SHARE, True))


NOISE = np.random.default_rng(7 + RANK)


def _noise() -> float:
    return float(NOISE.normal())


class _NoisyRows(_Rows):
    def __init__(self, data: str) -> None:
        self.data = data

    def __getitem__(self, number: int) -> tuple[int, torch.Tensor]:
        more = torch.rand(WIDTH) if self.data == "ahead" else _noise()
        return number, row(number)[1] + 0.1 * more


class _Ahead:
    """Two loaders side by side, or one that has read the next batch before it gives one."""

    def __init__(self, data: str, *loaders: DataLoader[Any]) -> None:
        self.data, self.loaders = data, loaders

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        if self.data == "zip":
            yield from ((numbers, x + other) for (numbers, x), (_, other) in zip(*self.loaders, strict=True))
            return
        batches = iter(self.loaders[0])
        batch = next(batches)
        for following in batches:
            yield batch
            batch = following
        yield batch


def loader_of(data: str) -> Any:
    """What a training of ``loops_zoo`` reads."""
    if data in {"iterable", "infinite"}:
        return DataLoader(_Stream(SHARE if data == "iterable" else 1 << 30), BATCH)
    ranks, workers = (dist.get_world_size(), dist.get_rank()), int(data == "persistent")
    own = {"own sampler": _OwnOrder, "counts": _Counts, "weights": _Weighted}.get(data)
    rows = _NoisyRows(data) if data in {"noise", "ahead"} else _Rows()
    loaders = [
        DataLoader(
            rows,
            BATCH,
            sampler=DistributedSampler(rows, *ranks, seed=number) if own is None else own(),
            num_workers=workers,
            persistent_workers=bool(workers),
        )
        for number in range(2 if data == "zip" else 1)
    ]
    return _Ahead(data, *loaders) if data in {"zip", "ahead"} else loaders[0]
