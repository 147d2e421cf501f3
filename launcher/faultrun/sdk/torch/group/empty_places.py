"""A process group with empty places: ranks keep their numbers and the world its size, its members are fewer.

Sums are those of the members, as if the missing had given zeros, and an average is that sum through the size
of the world. What a missing rank would have to give or to take raises ``NeedsAllRanks``. torch's own objects
see a group of the whole world; only the backend in it knows the members, by their number among them.
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist

from faultrun.sdk.stay.rank_places import RankPlaces

_NEEDS_ALL = (
    *("_allgather_base", "_reduce_scatter_base", "all_gather_single", "all_gather_single_coalesced"),
    *("all_to_all_single", "allgather_coalesced", "allgather_into_tensor_coalesced", "alltoall"),
    *("alltoall_base", "gather", "recv_anysource", "reduce_scatter", "reduce_scatter_single"),
    *("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced", "scatter"),
)
"""torch's names of what every rank gives another part to, or takes another part of."""


class NeedsAllRanks(RuntimeError):
    """A collective that cannot do without a rank whose place is empty."""


class ScriptMeetings:
    """What is seen of the collectives of a script that keeps it from training on. Any thread."""

    def __init__(self) -> None:
        self.in_attempt = False
        """Whether the script is in a step that can be taken back."""
        self.why = ""
        """What it has done that a world with an empty place could not; "" if nothing."""
        self.against_sum: Callable[[], str] = str
        """Told that the script sums up; says why that is no gradient of the step, of which those that live
        have all."""
        self.tell: Callable[[], object] = str
        """Tells the supervisor ``why`` at once."""
        self._looks = False
        self._ours = self._averages = 0

    def begin(self) -> None:
        """Training begins: look from here on, for what came before is done once."""
        self._looks = True

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """What meets in it is no business of the script's."""
        self._ours += 1
        try:
            yield
        finally:
            self._ours -= 1

    @contextlib.contextmanager
    def averages(self) -> Iterator[None]:
        """What is summed up in it is known to be gradients."""
        self._averages += 1
        try:
            yield
        finally:
            self._averages -= 1

    def sees(
        self, name: str, missing: tuple[int, ...], *, sums: bool = False, needs_all: bool = False
    ) -> None:
        """Note a collective by its name. NeedsAllRanks: without the ``missing`` it would be another."""
        if self._ours or not (self._looks or (needs_all and missing)):
            return
        against = self._against(name, sums=sums, needs_all=needs_all)
        if against and missing:
            self.refuse(against)
        self.why = self.why or against

    def refuse(self, why: str) -> None:
        """Have all that live wait for the missing from here on. NeedsAllRanks."""
        self.why = self.why or why
        self.tell()
        raise NeedsAllRanks(f"{why}, and a place in the process group is empty")

    def _against(self, name: str, *, sums: bool, needs_all: bool) -> str:
        if needs_all:
            return f"its steps call {name}, which takes a part of every rank"
        if not sums:
            return ""  # those that live have all of it
        if not self.in_attempt:
            return f"its ranks meet outside of guard.attempt() ({name})"
        against = "" if self._averages else self.against_sum()
        return against and f"its steps call {name} {against}"


class GroupOfMembers(dist.ProcessGroup):  # type: ignore[misc]  # torch has no types here
    """The default group of a script whose ranks train on; ``places`` and ``meetings`` are set from outside.

    ``plain`` is torch's own with the same backends. Never ``super()``: that calls a backend while it has
    Python's lock, for which the thread that ends its collectives waits with one of the backend's.
    """

    places = RankPlaces(1)
    meetings = ScriptMeetings()

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.plain = dist.ProcessGroup(store, rank, size)

    def _register_backend(self, *what: Any) -> None:
        super()._register_backend(*what)
        self.plain._register_backend(*what)

    def _set_default_backend(self, *what: Any) -> None:
        super()._set_default_backend(*what)
        self.plain._set_default_backend(*what)

    def allreduce(self, tensors: Any, *how: Any) -> Any:
        """Sum, or what is asked for, of the members."""
        self._meets("all_reduce", sums=True)
        return self.plain.allreduce(tensors, *self._summed(tensors, *how))

    def allreduce_coalesced(self, tensors: Any, *how: Any) -> Any:
        """Sum several, like ``allreduce``."""
        self._meets("all_reduce", sums=True)
        return self.plain.allreduce_coalesced(tensors, *self._summed(tensors, *how))

    def reduce(self, tensors: Any, options: Any) -> Any:
        """Sum for a rank that is there."""
        self._meets("reduce", sums=True)
        options.rootRank = self._number("reduce", options.rootRank)
        return self.plain.reduce(tensors, *self._summed(tensors, options))

    def broadcast(self, tensors: Any, options: Any) -> Any:
        """Take from a rank that is there."""
        self._meets("broadcast")
        options.rootRank = self._number("broadcast", options.rootRank)
        return self.plain.broadcast(tensors, options)

    def barrier(self, *how: Any, **named: Any) -> Any:
        """Wait for the members."""
        self._meets("barrier")
        return self.plain.barrier(*how, **named)

    def allgather(self, outputs: Any, inputs: Any, *how: Any) -> Any:
        """Gather from the members where the SDK itself asks: what the missing would give stays as it is."""
        self._meets("all_gather", needs_all=True)
        members = self.places.members
        return self.plain.allgather([[one[rank] for rank in members] for one in outputs], inputs, *how)

    def send(self, tensors: Any, to: int, tag: int = 0) -> Any:
        """Give to a rank that is there."""
        self._meets("send")
        return self.plain.send(tensors, self._number("send", to), tag)

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Any:
        """Take from a rank that is there."""
        self._meets("recv")
        return self.plain.recv(tensors, self._number("recv", source), tag)

    def _meets(self, name: str, **how: bool) -> None:
        self.meetings.sees(name, self.places.missing, **how)

    def _number(self, name: str, rank: int) -> int:
        if rank in self.places.missing:
            self.meetings.refuse(f"its steps call {name}, which needs rank {rank}")
        return self.places.number(rank)

    def _summed(self, tensors: Any, options: Any = None, *more: Any) -> tuple[Any, ...]:
        """What to ask the backend for: its average would be through the number of members."""
        if options is None:
            return ()
        if self.places.missing and getattr(options, "reduceOp", None) == dist.ReduceOp.AVG:
            for one in tensors:
                one.div_(self.places.world)  # of whole numbers torch refuses it
            options.reduceOp = dist.ReduceOp.SUM
        return (options, *more)


def _needing_all(name: str) -> Any:
    def call(self: Any, *what: Any, **how: Any) -> Any:
        self._meets(name, needs_all=True)
        return getattr(self.plain, name)(*what, **how)

    return call


for _name in _NEEDS_ALL:
    if hasattr(dist.ProcessGroup, _name):
        setattr(GroupOfMembers, _name, _needing_all(_name))


@functools.cache
def keep_compiler_out() -> None:
    """Have torch's compiler, once it is there, not look into the group: it refuses one with members."""
    if (dynamo := sys.modules.get("torch._dynamo")) is not None:
        for name, call in [*vars(GroupOfMembers).items()]:
            if inspect.isfunction(call) and not name.startswith("__"):
                setattr(GroupOfMembers, name, dynamo.disable(call))


@contextlib.contextmanager
def with_places() -> Iterator[None]:
    """The group that torch makes in it is one of members."""
    c10d: Any = dist.distributed_c10d
    c10d.ProcessGroup, plain = GroupOfMembers, c10d.ProcessGroup
    try:
        yield
    finally:
        c10d.ProcessGroup = plain


def why_no_places() -> str:
    """Why this torch has no such group; "" when it has."""
    try:
        GroupOfMembers(dist.HashStore(), 0, 1)
    except TypeError:
        return "this version of torch makes no process group that has empty places"
    return ""
