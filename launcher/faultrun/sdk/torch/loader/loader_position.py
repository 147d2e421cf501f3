"""Where a loader stands, and how to come back to the same place with the same shuffling.

The order of an epoch follows from the random numbers at its start and from the epoch's number, so these are
kept and told; on the way back the loader is opened with them and the batches that are done are skipped: by
index where torch's own ``DataLoader`` has one, else by reading them. A class around a ``DataLoader`` has an
order of its own: only if it can be told the epoch can it be read again.
"""

import copy
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from faultrun.errors import FaultrunError

_INSIDE = ("base_dataloader", "_dataloader", "batch_sampler", "sampler")
"""Where accelerate, Fabric, loaders and batch samplers keep what they draw from."""


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell the epoch to every loader and sampler that wants to know it."""
    for one in _chain(loader):
        tell = getattr(one, "set_epoch", None)
        if callable(tell):
            tell(epoch)
        if _counts_its_epochs(one):
            one._num_iter_calls = epoch


def check_positions(loader: Any) -> None:
    """FaultrunError for a loader that cannot be brought back to a place in an epoch."""
    if _is_torchs(loader) or callable(getattr(loader, "set_epoch", None)) or _counts_its_epochs(loader):
        return
    inside = vars(loader).values() if hasattr(loader, "__dict__") else ()
    if any(issubclass(type(one), DataLoader) for one in (loader, *inside)):
        raise FaultrunError(
            f"guard.batches cannot find a place in a {type(loader).__name__} again",
            because="it has a way of its own through a DataLoader, and cannot be told the epoch",
            hint="give guard.batches the DataLoader itself, or the class a set_epoch(epoch) method",
        )


def opened(loader: Any) -> Iterator[Any]:
    """An iterator over all of ``loader``, drawn as any process would that opens it first in this epoch.

    A ``DataLoader`` with ``persistent_workers`` draws their seed in its first epoch only; the order of all
    others then comes one number earlier.
    """
    for one in _chain(loader):
        if issubclass(type(one), DataLoader) and vars(one).get("_iterator") is not None:
            torch.empty((), dtype=torch.int64).random_(generator=one.generator)
    return iter(loader)


def opened_after(loader: Any, done: int) -> Iterator[Any]:
    """An iterator over ``loader`` of which ``done`` batches are consumed already.

    All random numbers that decide the order have been drawn on return; the caller may then set the generators
    to what they were at batch ``done``. FaultrunError: it cannot be positioned.
    """
    check_positions(loader)
    if not _is_torchs(loader) or isinstance(loader.dataset, IterableDataset):
        iterator = opened(loader)
        for _ in islice(iterator, done):
            pass
        return iterator
    by_batch = loader.batch_sampler is not None
    rest = _Rest(loader.batch_sampler if by_batch else loader.sampler, done)
    shortened = copy.copy(loader)
    object.__setattr__(shortened, "batch_sampler" if by_batch else "sampler", rest)
    shortened._iterator = None  # one that is kept for all epochs knows the whole sampler
    batches: Iterator[Any] = iter(shortened)
    rest.draw()
    return batches


def _is_torchs(loader: Any) -> bool:
    """Whether it goes through its batches as ``DataLoader`` does. By type: accelerate's say they are one."""
    kind = type(loader)
    return issubclass(kind, DataLoader) and kind.__iter__ is DataLoader.__iter__


def _counts_its_epochs(loader: Any) -> bool:
    """Whether it is Fabric's, which tells its sampler how often it was opened."""
    return isinstance(getattr(loader, "_num_iter_calls", None), int)


def _chain(loader: Any) -> list[Any]:
    """The loader and all that it draws from, the outermost first."""
    chain = [loader]
    for one in chain:
        inside = (getattr(one, name, None) for name in _INSIDE)
        chain += [part for part in inside if part is not None and all(part is not known for known in chain)]
    return chain


class _Rest:
    """What a sampler yields after the first ``done``; drawn from on demand, like the sampler itself."""

    def __init__(self, sampler: Iterable[Any], done: int) -> None:
        self._sampler, self._done = sampler, done
        self._source: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        self._source = iter(self._sampler)
        return self

    def __next__(self) -> Any:
        self.draw()
        return next(self._source)

    def draw(self) -> None:
        """Skip what is done: the sampler draws its random numbers now, and not one more than it had."""
        done, self._done = self._done, 0
        for _ in islice(self._source, done):
            pass
