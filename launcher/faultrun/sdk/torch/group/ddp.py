"""Every DistributedDataParallel stays the same object while process groups come and go.

The Reducer of each is given a communication hook that averages over whatever group of all ranks there is now,
and a process group of its own that does nothing: what it would say there (who has which buckets) is settled
by its canonical layout instead. The hook swallows the error of a broken group, so that the backward pass ends
and the Reducer can be used again; an update first asks for ``failed``.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from faultrun.errors import FaultrunError
from faultrun.sdk.stay.rank_places import RankPlaces
from faultrun.sdk.torch.group.process_group import idle_group

_REFUSED = {
    "find_unused_parameters": "find_unused_parameters=True",
    "static_graph": "static_graph=True",
    "mixed_precision": "mixed_precision=",
    "_use_python_reducer": "torch.compile's python reducer",
    "_delay_all_reduce_params": "delay_all_reduce_named_params=",
}


_JOIN = "join(divide_by_initial_world_size=False)"

_LEAVES_BY = ("_update_process_group", "_reset_state")


Bucket = tuple[int, ...]
"""The parameters of one bucket, by their number in the model, in the order of their gradients."""

Layout = tuple[Bucket, ...]
"""The buckets in the order in which they are reduced."""


def why_not_all(ddps: Iterable[Any], optimizers: Iterable[Any]) -> str:
    """Why ranks that all hold the same cannot stay, DistributedDataParallel or not; "" when they can."""
    if any("ZeroRedundancy" in type(one).__name__ for one in optimizers):
        return "ZeroRedundancyOptimizer keeps another part of its state on every rank"
    return next((why for one in ddps if (why := why_not(one))), "")


def why_not(ddp: Any) -> str:
    """Why it cannot stay; "" when it can."""
    for name, words in _REFUSED.items():
        if getattr(ddp, name, None):
            return f"DistributedDataParallel with {words}"
    if _divides_by_those_left(ddp):
        return f"DistributedDataParallel with {_JOIN}"
    if ddp._comm_hooks or ddp._get_ddp_logging_data().get("comm_hook", ""):
        return "DistributedDataParallel has a communication hook of its own"
    if not all(hasattr(ddp.reducer, name) for name in _LEAVES_BY) or not _has_idle_groups():
        return f"torch {torch.__version__} cannot give DistributedDataParallel another process group"
    if any(hasattr(one, "_in_backward_optimizers") for one in ddp.parameters()):
        return "DistributedDataParallel has optimizers inside of its backward pass"
    if any(getattr(one, "sparse", False) for one in ddp.modules()):
        return "DistributedDataParallel has sparse gradients"
    if dist.get_world_size(ddp.process_group) != dist.get_world_size():
        return "DistributedDataParallel is not over all ranks"
    return ""


class Averaging:
    """The hooks of all the DistributedDataParallel that a script has made, in the order in which it did.

    ``before_first()``: the gradients of one have not left yet. ``adds_up()``: they are not to leave in this
    pass, for more are added to them.
    """

    def __init__(self, before_first: Callable[[], None], adds_up: Callable[[], object] = bool) -> None:
        self._before_first, self.adds_up = before_first, adds_up
        self.places: Callable[[], RankPlaces] | None = None
        """Tells which ranks there are; None where none is ever missing."""
        self.meets: Callable[[], AbstractContextManager[None]] = nullcontext
        """Around what ranks say to each other of gradients."""
        self.averages: Callable[[Any], object] = bool
        """Told which one averages. RuntimeError where it must not."""
        self._hooks: list[_Hook] = []
        self.under_way: set[_Hook] = set()
        self.in_group = False
        self.has_begun = False
        """Whether a gradient has ever come."""
        self.overlaps = False
        """Whether one began while another's gradients were still coming: no rank could keep their order."""
        self.failed: Exception | None = None
        """What has kept the gradients of this step from being averaged."""

    def hook(self, ddps: Iterable[Any], *, in_group: bool) -> None:
        """Average from here on, once ``in_group``."""
        self.in_group = in_group
        self._hooks = [_Hook(one, self) for one in ddps]

    def has(self, ddp: Any) -> bool:
        """Whether it averages its gradients."""
        return any(one.ddp is ddp for one in self._hooks)

    @property
    def layouts(self) -> list[Layout | None]:
        """Those in which all ranks add up their gradients now; None before the first backward pass."""
        return [one.layout for one in self._hooks]

    @property
    def arranges(self) -> bool:
        """Whether one has run once: it arranges its buckets as it runs again, together with all ranks."""
        return any(one.arranges for one in self._hooks)

    def leaves(self, *, interrupted: bool) -> None:
        """The group is broken. ``interrupted``: a backward pass may have been left in its middle."""
        self.in_group = False
        self.under_way.clear()
        for one in self._hooks:
            one.leaves(interrupted=interrupted)

    def enters(self, layouts: Sequence[Layout | None]) -> None:
        """There is a new group, which adds up in these layouts."""
        for one, layout in zip(self._hooks, layouts, strict=False):
            one.enters(layout)
        self.in_group, self.failed = True, None

    def begins(self, one: "_Hook") -> None:
        """The first gradients of a backward pass have come."""
        self.has_begun = True
        self.overlaps |= not self.under_way <= {one}
        self.under_way.add(one)
        if self.in_group and self.failed is None and not self.adds_up():
            self._before_first()
            try:
                self.averages(one)
            except RuntimeError as error:
                self.failed = error


class _Hook:
    """The hook of one DistributedDataParallel. ``all_``: what holds for all of them."""

    def __init__(self, ddp: Any, all_: Averaging) -> None:
        self.ddp, self._all = ddp, all_
        self._number = {id(one): number for number, one in enumerate(ddp.module.parameters())}
        self._place = dist.get_rank(), dist.get_world_size()
        self._canonical: Layout | None = None
        self._matching = Matching(None)
        self._held: list[tuple[Any, list[Any], Any]] = []
        self._last: Layout | None = None
        self._passes = 0
        # torch looks at the annotations of a hook, and wants none or its own
        ddp.register_comm_hook(None, lambda _state, bucket: self._hook(bucket))
        self._sync_buffers = ddp._sync_module_buffers
        if all_.places is not None:
            ddp._sync_module_buffers = self._sync_from_a_member
        if not all_.in_group:
            self._isolate()

    @property
    def layout(self) -> Layout | None:
        return self._canonical or self._last

    @property
    def arranges(self) -> bool:
        return self._canonical is None and self._passes == 1

    def leaves(self, *, interrupted: bool) -> None:
        self._canonical = self.layout
        self.ddp.process_group = None
        self._isolate()
        if interrupted:
            self.ddp.reducer._reset_state()

    def enters(self, layout: Layout | None) -> None:
        """With no layout yet all ranks arrange the buckets together, in the group that there is now."""
        self._canonical = layout
        self.ddp.process_group = dist.group.WORLD
        if layout is None:
            self.ddp.reducer._update_process_group(dist.group.WORLD)

    def _sync_from_a_member(self, rank: int) -> None:
        """Have the buffers of the first rank that is there: rank 0 has given its own to all before."""
        assert self._all.places is not None, "where no place is empty torch's own method is called"
        self._sync_buffers(max(rank, self._all.places().members[0]))

    def _isolate(self) -> None:
        """Whatever the Reducer itself says to its group from now on, is not heard."""
        self.ddp.reducer._update_process_group(idle_group(*self._place))

    def _hook(self, bucket: Any) -> Any:
        if bucket.index() == 0:
            _check_join(self.ddp)
            self._matching, self._held = Matching(self._canonical), []
            self._all.begins(self)
        numbers = [self._number[id(one)] for one in bucket.parameters()]
        flat, at_once = bucket.buffer(), self._matching.comes(numbers)
        if self._all.failed is not None or not self._all.in_group or self._all.adds_up():
            done = _settled(flat)
        elif at_once:
            done = self._averaged(flat)
        else:
            done = torch.futures.Future()
            self._held.append((flat, list(zip(numbers, bucket.gradients(), strict=True)), done))
        if bucket.is_last():
            self._last, self._passes = self._matching.layout, self._passes + 1
            self._average_held()
            self._all.under_way.discard(self)
        return done

    def _averaged(self, flat: Any) -> Any:
        """Average like DistributedDataParallel: multiply by 1/n, then add up; bit for bit the same."""
        try:
            flat.mul_(1.0 / dist.get_world_size())
            with self._all.meets():
                work = dist.all_reduce(flat, async_op=True)
            return work.get_future().then(lambda future: self._noticed(future, flat))
        except RuntimeError as error:
            self._fail(error)
            return _settled(flat)

    def _noticed(self, future: Any, flat: Any) -> Any:
        try:
            future.wait()
        except RuntimeError as error:
            self._fail(error)
        return flat

    def _average_held(self) -> None:
        """Own buckets lie differently: put together those that the others reduce; take them apart again."""
        held, self._held = self._held, []
        if not held:
            return
        gradient = dict(pair for _, pairs, _ in held for pair in pairs)
        try:
            for bucket in self._matching.left():
                pieces = [gradient[number] for number in bucket]
                flat = torch.cat([piece.reshape(-1) for piece in pieces])
                self._averaged(flat).wait()
                for piece, sums in zip(pieces, flat.split([piece.numel() for piece in pieces]), strict=True):
                    piece.copy_(sums.view_as(piece))
        except (RuntimeError, ValueError, KeyError) as error:
            self._fail(error)
        for flat, _, done in held:
            done.set_result(flat)

    def _fail(self, error: Exception) -> None:
        if self._all.failed is None:
            self._all.failed = error


def _divides_by_those_left(ddp: Any) -> bool:
    """Whether gradients are divided by the number of ranks that still have inputs, which no hook is told."""
    config = getattr(ddp, "_join_config", None)
    return getattr(config, "enable", False) and not getattr(ddp, "_divide_by_initial_world_size", True)


def _check_join(ddp: Any) -> None:
    if _divides_by_those_left(ddp):
        raise FaultrunError(
            f"{_JOIN} cannot be entered in a training whose ranks may stay",
            because="gradients are averaged over all ranks there",
            hint="enter it before the first step, or make the group by torch.distributed.init_process_group",
        )


def _has_idle_groups() -> bool:
    try:
        idle_group(0, 1)
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return False
    return True


def _settled(flat: Any) -> Any:
    done = torch.futures.Future()
    done.set_result(flat)
    return done


class Matching:
    """One backward pass: which buckets may be reduced as they come, and what is left to be put together.

    ``canonical`` is None where the own layout is that of all.
    """

    def __init__(self, canonical: Layout | None) -> None:
        self._canonical = canonical
        self._own: list[Bucket] = []
        self._as_it_comes = 0

    def comes(self, bucket: Sequence[int]) -> bool:
        """The next bucket is there; whether to reduce it at once. False for all others, once false."""
        own, place = tuple(bucket), len(self._own)
        self._own.append(own)
        if self._as_it_comes < place:
            return False
        if self._canonical is not None and self._canonical[place : place + 1] != (own,):
            return False
        self._as_it_comes += 1
        return True

    @property
    def layout(self) -> Layout:
        """The own one, as far as it has come."""
        return tuple(self._own)

    def left(self) -> Layout:
        """The canonical buckets that are still to be reduced, once the last own one has come.

        ValueError: these are not the gradients that the others reduce.
        """
        if self._canonical is None:
            return ()
        rest, held = self._canonical[self._as_it_comes :], self._own[self._as_it_comes :]
        if sorted(one for bucket in rest for one in bucket) != sorted(one for own in held for one in own):
            raise ValueError("this rank has gradients for other parameters than its peers")
        return rest
