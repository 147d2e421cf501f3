"""The batches of a rank in a world that has become smaller: the same steps of the same samples, in parts."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session
from faultrun.sdk.stay.batch_shares import Part, Sharing
from faultrun.sdk.torch.state.buffers import same_values
from faultrun.sdk.torch.state.shards import local_of

_LOOKED_AT = 16
_FIRST = 8
"""Steps in which each gradient is looked at that is added to, and in those that are powers of two."""
_DROPS = "its steps drop the gradients of their earlier parts"
_LEAVES = "its steps add to gradients that the step before has left"
_HINT = "DataLoader(dataset, batch_size=..., sampler=DistributedSampler(dataset)), or no --min_worker_num"


class InParts:
    """Keeps the weight of the batch that is worked on, where ranks may be fewer than the run began with."""

    def __init__(self) -> None:
        self.weight = 1.0
        """What ``Guard.weight`` returns."""
        self.accumulating = False
        """What ``Guard.accumulating`` returns."""
        self.asked: set[str] = set()
        """Which of both the script has asked for."""
        self.has_gradients = False
        """Whether a backward pass of the part under way has begun, and no update behind it."""
        self.is_given = False
        """Whether the script has it, and what is read now is read by the script itself."""
        self._added = False
        """Whether there are gradients of parts of a step that goes on."""
        self._held: list[_Held] = []
        """Those as the last part ended."""
        self._steps = 0
        self._looks = self._keeps_world = False
        self._come: set[int] = set()
        """The parameters whose gradients have come in this step, where that is looked at."""
        self._early = ""
        """What the script has done with gradients of the part that wants all of them to be there."""
        self._averaged: set[Any] = set()
        self._parameters: list[Any] = []
        self._lost: Callable[[str], object] = str

    def end(self) -> None:
        """No step in parts is under way."""
        self.weight, self.accumulating = 1.0, False
        self._added, self._held = False, []
        self._averaged.clear()

    def watch(
        self, optimizers: Iterable[Any], lost: Callable[[str], object], *, keeps_world: bool = False
    ) -> None:
        """Watch when gradients come, and call ``lost``, with why, where a step in parts would be another.

        An optimizer's ``zero_grad``, which many loops begin a step with, does nothing between two parts.
        Where ``keeps_world`` an average is the sum of those that live through the size of the whole world:
        what was averaged in the step before, and is left, would become less.
        """
        if self._parameters:
            return
        self._lost, self._keeps_world = lost, keeps_world
        for one in optimizers:
            one.zero_grad = partial(self._zero, one.zero_grad)
            self._parameters += [each for group in one.param_groups for each in group["params"]]
        for each in self._parameters:
            if each.requires_grad:
                each.register_hook(partial(self._comes, each))

    def begins(self) -> None:
        """A part begins, or a step of one part."""
        self.has_gradients, self._early = False, ""
        if not self._added:
            self._steps += 1
            is_soon = self._steps < _FIRST or not self._steps & (self._steps - 1)
            self._looks = self._keeps_world and (self.accumulating or is_soon)
            self._come.clear()

    @contextmanager
    def given(self) -> Iterator[None]:
        """The script has the part, until it asks for more or leaves its loop."""
        self.is_given = True
        try:
            yield
        finally:
            self.is_given = False

    def ends(self) -> None:
        """A part has ended, and more of its step follow."""
        self._added = bool(self._parameters)
        self._held = [_Held.of(one) for one in self._parameters if one.grad is not None]
        if self.has_gradients and not self._held:
            self._lost(_DROPS)

    def updated(self) -> None:
        """An optimizer has stepped."""
        self.has_gradients = self._added = False
        self._early = ""
        self._averaged.clear()

    def sums(self) -> None:
        """The script sums up gradients by hand: what comes behind that would be added to sums."""
        self._early = "its steps sum gradients up before all of them are there"

    def averages(self, what: Any) -> None:
        """The gradients of a ``DistributedDataParallel`` are averaged over the ranks, for the next update.

        Those that were averaged before, and are in them, would be averaged again.
        """
        if what in self._averaged:
            self._lost("its steps average the gradients of a DistributedDataParallel more than once")
        self._averaged.add(what)

    def _zero(self, zero_grad: Callable[..., None], *how: Any, **named: Any) -> None:
        self._early = "its steps drop gradients between two backward passes" if self.has_gradients else ""
        if not self._added or (self.has_gradients and not self.accumulating):
            zero_grad(*how, **named)
            self._averaged.clear()

    def _comes(self, parameter: Any, _: Any) -> None:
        if self._looks and id(parameter) not in self._come:
            self._come.add(id(parameter))
            if parameter.grad is not None and not _is_zero(parameter.grad):
                self._lost(_LEAVES)
        if self._early:
            why, self._early = self._early, ""
            self._lost(why)
        if self.has_gradients:
            return
        self.has_gradients = True
        self._added |= self.accumulating
        held, self._held = self._held, []
        if not all(one.is_there for one in held):
            self._lost(_DROPS)

    def check_update(self) -> None:
        """FaultrunError for an update in the middle of a step: it would be another training."""
        if self.accumulating:
            raise FaultrunError(
                "the optimizer was to step before the global batch was complete",
                because="ranks were left out, and this one does a step in several parts (guard.accumulating)",
                hint="loss * guard.weight, and `if not guard.accumulating:` before optimizer.step, zero_grad",
            )


@dataclass(frozen=True, slots=True)
class _Held:
    """A gradient, and copies of some numbers: a script may write to its ``data``, which torch does not count.

    They are from all over it, and one is not zero if any is not: that of a table is zero almost everywhere.
    """

    parameter: Any
    gradient: Any
    size: int
    places: Any
    numbers: Any

    @staticmethod
    def of(parameter: Any) -> "_Held":
        """The one that this parameter has."""
        flat = _numbers_of(parameter.grad)
        places = torch.arange(0, len(flat), max(1, len(flat) // _LOOKED_AT), device=flat.device)
        if len(flat) and not flat[places].any():
            places = flat.abs().argmax()[None]
        return _Held(parameter, parameter.grad, len(flat), places, flat[places].nan_to_num(nan=1.0))

    @property
    def is_there(self) -> bool:
        """Whether the parameter still has it, as it was."""
        if self.parameter.grad is not self.gradient:
            return False
        flat = _numbers_of(self.gradient)
        return len(flat) == self.size and same_values(flat[self.places].nan_to_num(nan=1.0), self.numbers)


def _numbers_of(gradient: Any) -> Any:
    one = local_of(gradient.detach())
    return (one._values() if one.is_sparse else one).reshape(-1)


def _is_zero(gradient: Any) -> bool:
    """Whether all of it is; a device that records a graph may not be waited for, and is not asked."""
    if gradient.is_cuda and torch.cuda.is_current_stream_capturing():
        return True
    return not bool(_numbers_of(gradient).any())


def lost_parts(_: str) -> None:
    """Refuse to go on with the last part of a step alone. FaultrunError."""
    raise FaultrunError(
        "gradients of a step were dropped before its global batch was complete",
        because="ranks were left out, and this one does a step in several parts (guard.accumulating)",
        hint="optimizer.zero_grad(), or drop them behind optimizer.step() alone",
    )


def sharing_of(session: Session) -> Sharing | None:
    """How this rank shares the work of those that were left out; None when all are there."""
    full, world = session.full_world_size, session.world_size
    return Sharing(full=full, world=world, rank=session.rank) if full > world else None


def why_no_shares(loader: Any) -> str:
    """Why its epoch cannot be shared out to fewer ranks; "" when it can."""
    kind = type(loader)
    if not (issubclass(kind, DataLoader) and kind.__iter__ is DataLoader.__iter__):
        return f"a {kind.__name__} goes through its samples in a way of its own"
    if not isinstance(loader.sampler, DistributedSampler):
        return f"its sampler is a {type(loader.sampler).__name__}, which does not say what all ranks read"
    if type(loader.sampler).__iter__ is not DistributedSampler.__iter__:
        return f"a {type(loader.sampler).__name__} shares out what ranks read in a way of its own"
    if loader.sampler.num_samples != _samples_of(loader.sampler, loader.sampler.num_replicas):
        return "its sampler has another number of samples (num_samples) than its dataset gives a rank"
    return "" if type(loader.batch_sampler) is BatchSampler else "it makes no batches of one size"


def check_shares(loader: Any) -> None:
    """FaultrunError for a loader whose epoch could not be shared out to fewer ranks."""
    if because := why_no_shares(loader):
        raise FaultrunError(
            "guard.batches cannot go on with fewer ranks (--min_worker_num, --nnodes=MIN:MAX)",
            because=because,
            hint=_HINT,
        )


def shared_out(loader: Any, sharing: Sharing, done: int) -> Iterator[tuple[Any, Part, bool]]:
    """The batches of this rank after ``done`` steps, each with its part and whether its step goes on.

    All random numbers that opening a loader takes have been drawn on return.
    """
    order, batch = whole_order(loader.sampler, sharing.full), loader.batch_size
    steps = range(done, sharing.steps(len(order), batch, drop_last=loader.drop_last))
    shares = Shares(order, sharing, batch, steps)
    shortened = copy.copy(loader)
    object.__setattr__(shortened, "batch_sampler", shares)
    loaded = iter(shortened)
    return ((next(loaded), part, more) for part, more in shares.parts())


def whole_order(sampler: Any, full: int) -> list[int]:
    """What ``full`` ranks would read of this epoch, in the order in which they would."""
    one = copy.copy(sampler)
    one.num_replicas, one.rank = 1, 0
    one.num_samples = one.total_size = _samples_of(sampler, full) * full
    return list(one)


def _samples_of(sampler: Any, ranks: int) -> int:
    """How many of an epoch each of so many ranks reads, as torch counts them."""
    size = len(sampler.dataset)
    left_over = sampler.drop_last and size % ranks
    return max(0, math.ceil((size - ranks) / ranks) if left_over else math.ceil(size / ranks))


class Shares:
    """A batch sampler: the indices of each part."""

    def __init__(self, order: Sequence[int], sharing: Sharing, batch: int, steps: range) -> None:
        self._order, self._sharing, self._batch = order, sharing, batch
        self._steps = steps

    def parts(self) -> Iterator[tuple[Part, bool]]:
        """Each part, and whether more belong to its step."""
        for step in self._steps:
            *others, last = self._sharing.share(step, len(self._order), self._batch)
            yield from ((one, True) for one in others)
            yield last, False

    def __iter__(self) -> Iterator[list[int]]:
        for part, _ in self.parts():
            yield [self._order[position] for position in part.positions]

    def __len__(self) -> int:
        return len(self._steps) * self._sharing.parts
