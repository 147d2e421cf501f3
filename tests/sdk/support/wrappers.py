"""Wrappers with the structure of those of accelerate 1.15 and Lightning Fabric 2.6, and some of nobody."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset


class AcceleratedOptimizer(torch.optim.Optimizer):  # type: ignore[misc]
    """Says that it is an optimizer, and never initializes one."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> Any:
        return self.optimizer.param_groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> Any:
        return self.optimizer.state_dict()

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


class FabricOptimizer:
    """Takes the class of what it wraps, too."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        kind = type(optimizer)
        self.__class__ = type("Fabric" + kind.__name__, (type(self), kind), {})

    @property
    def optimizer(self) -> Any:
        return self._optimizer

    def state_dict(self) -> Any:
        return self._optimizer.state_dict()

    def step(self, closure: Any = None) -> Any:
        return self._optimizer.step(*(() if closure is None else (closure,)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


class Lookahead(torch.optim.Optimizer):  # type: ignore[misc]
    """Has slow weights of its own."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer.param_groups, {})
        self.optimizer = optimizer

    def state_dict(self) -> Any:
        return {**self.optimizer.state_dict(), "slow": [1.0]}

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


class FabricModule(torch.nn.Module):  # type: ignore[misc]
    """The user's module, and what runs in its place."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._forward_module, self._original_module = module, module

    def forward(self, value: Any) -> Any:
        return self._forward_module(value)


class DataLoaderShard:
    """Goes through a loader that it keeps, one batch ahead; its epoch is a count of its own."""

    def __init__(self, loader: Any) -> None:
        self.base_dataloader, self.iteration = loader, 0

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.base_dataloader.__class__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base_dataloader, name)

    def __iter__(self) -> Iterator[Any]:
        self.set_epoch(self.iteration)
        batches = iter(self.base_dataloader)
        batch = next(batches)
        for following in batches:
            yield batch
            batch = following
        yield batch
        self.iteration += 1

    def set_epoch(self, epoch: int) -> None:
        self.iteration = epoch
        tell = getattr(self.base_dataloader.sampler, "set_epoch", None)
        if tell is not None:
            tell(epoch)


class FabricDataLoader:
    """Tells the sampler how often it was opened."""

    def __init__(self, loader: Any) -> None:
        self.__dict__.update(loader.__dict__)
        self._dataloader, self._num_iter_calls = loader, 0

    def __iter__(self) -> Iterator[Any]:
        self._dataloader.sampler.set_epoch(self._num_iter_calls)
        self._num_iter_calls += 1
        yield from iter(self._dataloader)


class Repeating(DataLoader):  # type: ignore[misc]
    """A loader that goes on where its last epoch ended, as some do to keep their processes."""

    def __iter__(self) -> Any:
        return super().__iter__()


class Prefetching:
    """Nobody can tell it an epoch."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


class ByEpoch(torch.utils.data.Sampler[int]):  # type: ignore[misc]
    """Shuffles by the epoch that it is told."""

    def __init__(self, size: int) -> None:
        self.size, self.epoch = size, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = torch.Generator().manual_seed(self.epoch)
        return iter(torch.randperm(self.size, generator=order).tolist())

    def __len__(self) -> int:
        return self.size


def numbers() -> Any:
    return TensorDataset(torch.arange(24))


def by_epoch() -> Any:
    return DataLoader(numbers(), batch_size=2, sampler=ByEpoch(24))


def by_a_generator_of_the_sampler() -> Any:
    sampler = RandomSampler(numbers(), generator=torch.Generator().manual_seed(5))
    return DataLoader(numbers(), batch_size=2, sampler=sampler)


def accelerated() -> Any:
    return DataLoaderShard(by_epoch())


def accelerated_with_a_generator() -> Any:
    return DataLoaderShard(by_a_generator_of_the_sampler())


def by_fabric() -> Any:
    return FabricDataLoader(by_epoch())
