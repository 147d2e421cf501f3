"""The samples of ranks whose places are empty: each step this rank reads its share of them, as further parts.

Its own batches come from its own loader, which goes on as if nothing had happened. What the missing would
have read follows from the sampler alone, which every rank has.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

from faultrun.sdk.stay.batch_shares import Sharing
from faultrun.sdk.stay.rank_places import RankPlaces
from faultrun.sdk.torch.loader.batch_shares import Shares, whole_order

T = TypeVar("T")

_HERE = {"num_workers": 0, "timeout": 0, "prefetch_factor": None}
"""What a ``DataLoader`` has that starts no processes."""


class MissingSamples:
    """Reads this rank's share of what the missing ranks of ``places`` would have read. Main thread."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self.places = RankPlaces(0)
        self._sampler: tuple[Any, Any] = None, None
        self._order: tuple[Any, list[int]] = None, []
        """Which epoch of which loader, and what all ranks read in it."""
        self._next: tuple[Any, ...] = ()
        """What ``_loaded`` reads next: for whom, of which epoch of which loader, at which step."""
        self._loaded: Iterator[Any] | None = None
        """None: to be opened."""
        self.cannot: Callable[[str], object] = str
        """Has all ranks wait, for this reason."""
        self._over: Iterator[Any] | None = None
        """What is not needed any more: its processes end, and are not waited for."""

    def opens(self, loader: Any, epoch: int) -> None:
        """An epoch begins, with what the loader's sampler says now: the script may tell it of the next."""
        self._sampler = (id(loader), epoch), copy.copy(getattr(loader, "sampler", None))

    def parts(self, own: Any, loader: Any, epoch: int, step: int) -> Iterator[tuple[Any, float, bool]]:
        """This rank's parts of the epoch's ``step`` (from 0), each with its weight and whether more follow.

        The first is its ``own`` batch. That is given once what follows was read: it may not be to be had.
        """
        members, missing = self.places.members, self.places.missing
        if not missing:
            self._over, self._loaded = self._loaded, None
            yield own, 1.0, False
            return
        sharing = Sharing(full=len(missing), world=len(members), rank=self.places.number(self._rank))
        order = _OrderOfMissing(self._whole_order(loader, epoch), self.places)
        what = self.places, id(loader), epoch
        loaded = self._reads(lambda: self._from(what, step, loader, order, sharing))
        shares = sharing.share(step, len(order), loader.batch_size)
        batches = [self._reads(lambda: next(loaded)) for _ in shares]
        yield own, 1.0, True
        for number, (part, batch) in enumerate(zip(shares, batches, strict=True), start=1):
            # Gradients are averaged through the whole world, and its batches are of one size.
            yield batch, part.weight * len(missing) / len(members), number < len(shares)

    def _reads(self, read: Callable[[], T]) -> T:
        """What ``read`` returns. NeedsAllRanks where it fails: a loader of the missing rank might not."""
        try:
            return read()
        except Exception as error:
            self.cannot(f"its loader cannot read for another rank ({type(error).__name__}: {error})")
            raise

    def _whole_order(self, loader: Any, epoch: int) -> list[int]:
        if self._order[0] != (id(loader), epoch):
            sampler = self._sampler[1] if self._sampler[0] == (id(loader), epoch) else loader.sampler
            self._order = (id(loader), epoch), whole_order(sampler, self.places.world)
        return self._order[1]

    def _from(
        self, what: tuple[Any, ...], step: int, loader: Any, order: "_OrderOfMissing", sharing: Sharing
    ) -> Iterator[Any]:
        """What reads the parts of ``step``. The first is read in this process: no other need start first."""
        goes_on = self._next == (*what, step)
        self._next = (*what, step + 1)
        self._over = None if goes_on else self._loaded
        if goes_on and self._loaded is not None:
            return self._loaded
        here = not goes_on and loader.num_workers > 0 and loader.worker_init_fn is None
        last = sharing.steps(len(order), loader.batch_size, drop_last=loader.drop_last)
        steps = range(step, step + 1 if here else last)
        shares = Shares(order, sharing, loader.batch_size, steps)
        loaded = _reading(loader, shares, _HERE if here else {})
        self._loaded = None if here else loaded
        return loaded


class _OrderOfMissing(Sequence[int]):
    """What the missing ranks would read of the ``whole`` order, in a world of their own."""

    def __init__(self, whole: list[int], places: RankPlaces) -> None:
        self._whole, self._world, self._missing = whole, places.world, places.missing

    def __len__(self) -> int:
        return len(self._whole) // self._world * len(self._missing)

    def __getitem__(self, at: Any) -> Any:
        batch, number = divmod(at, len(self._missing))
        return self._whole[batch * self._world + self._missing[number]]


def _reading(loader: Any, shares: Shares, how: Mapping[str, Any]) -> Iterator[Any]:
    """Another iterator over ``loader``, of these shares; it draws nothing that others draw, too."""
    one, numbers = copy.copy(loader), torch.Generator()
    numbers.seed()
    own = {"batch_sampler": shares, "generator": numbers, "persistent_workers": False, "_iterator": None}
    for name, value in {**own, **how}.items():
        object.__setattr__(one, name, value)
    return iter(one)
