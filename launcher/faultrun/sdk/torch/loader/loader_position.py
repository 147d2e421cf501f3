"""Where a loader stands, and how to come back to the same place with the same shuffling.

The order of an epoch follows from the random numbers at its start and from the epoch's number, so these are
kept and told; on the way back the loader is opened with them and the batches that are done are skipped: by
index where torch's own ``DataLoader`` has one, else by reading them. A class around a ``DataLoader`` has an
order of its own: only if it can be told the epoch can it be read again.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.loader.held_objects import is_open_iterator
from faultrun.sdk.torch.state.rng import current_rng

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


def reads_ahead(loader: Any) -> bool:
    """Whether it may have fetched the batch that comes next: a class of its own goes its own way."""
    return not _is_torchs(loader) and not isinstance(loader, list | tuple)


def check_positions(loader: Any) -> None:
    """FaultrunError for a loader that cannot be brought back to a place in an epoch."""
    name = type(loader).__name__
    if is_open_iterator(loader) or isinstance(loader, _BaseDataLoaderIter):
        raise FaultrunError(
            f"guard.batches cannot find a place in a {name} again",
            because="it is an iterator, which was opened before and is opened once",
            hint="give it the loader; of several, a class with set_epoch whose __iter__ opens all",
        )
    if _is_torchs(loader) or callable(getattr(loader, "set_epoch", None)) or _counts_its_epochs(loader):
        return
    inside = vars(loader).values() if hasattr(loader, "__dict__") else ()
    if any(issubclass(type(one), DataLoader) for one in (loader, *inside)):
        raise FaultrunError(
            f"guard.batches cannot find a place in a {name} again",
            because="it has a way of its own through a DataLoader, and cannot be told the epoch",
            hint="give guard.batches the DataLoader itself, or the class a set_epoch(epoch) method",
        )


def opened(loader: Any, *, refuses: bool = True) -> Iterator[Any]:
    """An iterator over all of ``loader``, drawn as any process would that opens it first in this epoch.

    A ``DataLoader`` with ``persistent_workers`` draws their seed in its first epoch only; the order of all
    others then comes one number earlier. FaultrunError, as batches are taken, for an order that is drawn as
    it goes on, unless nothing ``refuses`` it.
    """
    if _has_indices(loader):
        return _by_index(loader, 0, refuses=refuses)
    for one in _chain(loader):
        if issubclass(type(one), DataLoader):
            _draw_seed(one)
    return iter(loader)


def opened_after(
    loader: Any, done: int, before_last: Callable[[], object] = lambda: None, *, refuses: bool = True
) -> Iterator[Any]:
    """An iterator over ``loader`` of which ``done`` batches are consumed already.

    All random numbers that decide the order have been drawn on return; the caller may then set the generators
    to what they were at batch ``done``. ``before_last`` is called before the last of these is read, if it is.
    FaultrunError: it cannot be positioned; see ``opened``.
    """
    check_positions(loader)
    if _has_indices(loader):
        return _by_index(loader, done, refuses=refuses)
    iterator = opened(loader)
    for number in range(1, done + 1):
        if number == done:
            before_last()
        next(iterator, None)
    return iterator


def _by_index(loader: Any, done: int, *, refuses: bool) -> Iterator[Any]:
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    given = getattr(loader, name)
    order = _Order(given, done, refuses=refuses)
    _draw_seed(loader)
    if loader._iterator is not None:  # which is kept for all epochs, and knows its sampler
        loader._iterator._index_sampler = order
    object.__setattr__(loader, name, order)
    try:
        batches: Iterator[Any] = iter(loader)
    finally:
        object.__setattr__(loader, name, given)
    order.skip()
    return batches


def _draw_seed(loader: Any) -> None:
    """Open it like the first that does."""
    if vars(loader).get("_iterator") is not None:
        torch.empty((), dtype=torch.int64).random_(generator=loader.generator)


def _has_indices(loader: Any) -> bool:
    return _is_torchs(loader) and not isinstance(loader.dataset, IterableDataset)


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


class _Order:
    """What a sampler yields after the first ``done``; drawn from on demand, like the sampler itself."""

    def __init__(self, sampler: Iterable[Any], done: int, *, refuses: bool) -> None:
        self._sampler, self._done, self._refuses = sampler, done, refuses
        self._count = 0
        self._source: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        self._source = iter(self._sampler)
        return self

    def __next__(self) -> Any:
        self.skip()
        self._count += 1
        if not self._refuses or self._count == 1 or self._count & (self._count - 1):
            return next(self._source)
        before = _shared_numbers()  # in the second, the fourth, the eighth
        one = next(self._source)
        if _shared_numbers() != before:
            raise FaultrunError(
                "guard.batches cannot find a place in this loader again",
                because=f"its {type(_chain(self._sampler)[-1]).__name__} draws from the shared random"
                " numbers as it goes on",
                hint="draw the whole order first in __iter__, or from a generator of its own:"
                " torch.Generator, numpy's default_rng(seed), random.Random(seed)",
            )
        return one

    def skip(self) -> None:
        """Skip what is done: the sampler draws its random numbers now, and not one more than it had."""
        done, self._done = self._done, 0
        for _ in islice(self._source, done):
            pass


def _shared_numbers() -> bytes:
    rng = current_rng()
    return pickle.dumps((rng.cpu.numpy().tobytes(), rng.python, rng.numpy))
