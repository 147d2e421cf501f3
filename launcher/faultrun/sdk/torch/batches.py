"""Where a loader stands, and how to come back to the same place with the same shuffling.

The order of an epoch follows from the random numbers at its start, so these
are kept; on the way back the loader is opened with them and the batches that
are done are skipped: by index where there is an index, else by reading them.
"""

import copy
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset


def generator_of(loader: Any) -> Any:
    """The loader's own random generator; None when it uses torch's."""
    return getattr(loader, "generator", None)


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell the epoch to every sampler that wants to know it."""
    sampler = getattr(loader, "sampler", None)
    batch_sampler = getattr(loader, "batch_sampler", None)
    for one in (sampler, batch_sampler, getattr(batch_sampler, "sampler", None)):
        tell = getattr(one, "set_epoch", None)
        if tell is not None:
            tell(epoch)


def opened_after(loader: Any, done: int) -> Iterator[Any]:
    """An iterator over ``loader`` of which ``done`` batches are consumed already.

    All random numbers that decide the order have been drawn on return; the
    caller may then set the generators to what they were at batch ``done``.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        iterator: Iterator[Any] = iter(loader)
        for _ in islice(iterator, done):
            pass
        return iterator
    by_batch = loader.batch_sampler is not None
    rest = _Rest(loader.batch_sampler if by_batch else loader.sampler, done)
    shortened = copy.copy(loader)
    object.__setattr__(shortened, "batch_sampler" if by_batch else "sampler", rest)
    batches: Iterator[Any] = iter(shortened)
    rest.draw()
    return batches


class _Rest:
    """What a sampler yields after the first ``done``; drawn from on demand, like the sampler itself."""

    def __init__(self, sampler: Iterable[Any], done: int) -> None:
        self._sampler = sampler
        self._done = done
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
