"""What is written down at the end of every step, because it may change before the next update.

Parameters and optimizer state change only inside ``optimizer.step()`` and
are read live, so that there is no copy of them. All else that makes up a
step is small: hyperparameters, schedulers and the like, random numbers,
where the data stand, and the buffers that a forward pass changes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.optim.lr_scheduler import LRScheduler

from faultrun.sdk.torch.engine import memory_at
from faultrun.sdk.torch.fence import Fence, map_tensors
from faultrun.sdk.torch.recorder import Position

_NONE: dict[str, int] = {}

SMALL_BYTES = 1 << 16
"""An object whose ``state_dict`` has no more tensor bytes than this is captured at every step."""


class Boundary(NamedTuple):
    """The end of one step.

    ``rng`` is its slot in the recorder; ``groups`` are each optimizer's, with
    their hyperparameters; ``updates`` counts the updates of each optimizer since the start.
    """

    position: Position
    rng: int
    groups: list[list[dict[str, Any]]]
    objects: dict[str, Any]
    versions: dict[str, int]
    updates: tuple[int, ...]


@dataclass(slots=True)
class Passage:
    """Where a boundary lies in what the device does: ``done`` is its end, ``left`` the next update begins."""

    done: Fence
    left: Fence | None = None


class Objects:
    """All with a ``state_dict`` besides model and optimizers: the small captured, the large read live."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._objects = dict(objects)
        small = {name for name, one in objects.items() if _tensor_bytes(one.state_dict()) <= SMALL_BYTES}
        self._small = [(name, one, _copier(one)) for name, one in objects.items() if name in small]
        self._large = [(name, one) for name, one in objects.items() if name not in small]

    def capture(self) -> dict[str, Any]:
        """Copies of the small ones' states; ``finished`` makes them what ``state_dict`` returns."""
        return {name: copy(one) for name, one, copy in self._small}

    def versions(self) -> dict[str, int]:
        """For each large one, a number that grows when a tensor of it is changed in place."""
        return {name: _version(one.state_dict()) for name, one in self._large} if self._large else _NONE

    def live(self) -> dict[str, Any]:
        """The large ones' states as they are."""
        return {name: one.state_dict() for name, one in self._large}

    def load(self, states: Mapping[str, Any]) -> None:
        """Put every state back. KeyError when one is missing."""
        for name, one in self._objects.items():
            one.load_state_dict(states[name])


class Buffers:
    """Copies of the model's persistent buffers: a forward pass changes some of them (batch norm).

    Large ones are copied when their version counter says that they changed.
    Small ones every time: batch norm's kernels write without counting.
    """

    def __init__(self, model: Any) -> None:
        kept = model.state_dict(keep_vars=True)
        live = {name: one.detach() for name, one in model.named_buffers() if kept.get(name) is one}
        self._copies = {name: one.clone(memory_format=torch.preserve_format) for name, one in live.items()}
        pairs = [(one, self._copies[name]) for name, one in live.items()]
        self._small = [pair for pair in pairs if _bytes_of(pair[0]) <= SMALL_BYTES]
        self._large = [pair for pair in pairs if _bytes_of(pair[0]) > SMALL_BYTES]
        self._seen = [one._version for one, _ in self._large]
        on_cpu = all(one.device.type == "cpu" and one.is_contiguous() for one, _ in self._small)
        self._moves = [(_memory_of(copy), _memory_of(one)) for one, copy in self._small if on_cpu]
        self._copy_small = self._move if on_cpu else self._copy

    def capture(self) -> None:
        """Copy what may have changed since."""
        if self._small:
            self._copy_small()
        if not self._large:
            return
        for number, (one, copy) in enumerate(self._large):
            if one._version != self._seen[number]:
                copy.copy_(one)
                self._seen[number] = one._version

    def copies(self) -> dict[str, Any]:
        """By name, as they were at the last capture."""
        return self._copies

    def _move(self) -> None:
        """The quickest way for a few small tensors on the CPU; ``_small`` keeps their memory where it is."""
        for copy, live in self._moves:
            copy[:] = live

    def _copy(self) -> None:
        torch._foreach_copy_([copy for _, copy in self._small], [one for one, _ in self._small])


def groups_of(optimizer: Any) -> list[dict[str, Any]]:
    """The groups with their hyperparameters: a scheduler may change them before the next update."""
    return [group.copy() for group in optimizer.param_groups]


def finished(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Captured states as ``state_dict`` would have returned them."""
    return {
        name: {key: value for key, value in state.fields.items() if key != "optimizer"}
        if isinstance(state, _SchedulerState)
        else state
        for name, state in objects.items()
    }


def nothing_is_missing(before: Boundary | None, last: Boundary, now: Boundary) -> bool:
    """Whether all that moved in the last whole step has moved again since: then this step is whole too.

    ``now`` is taken after an update, before the script said that the step is
    complete. A step of which no earlier one is known counts only if there is
    a single optimizer and nothing else to move.
    """
    if before is None:
        return now.updates == (last.updates[0] + 1,) if len(now.updates) == 1 and not now.objects else False
    before, last, now = (one._replace(objects=finished(one.objects)) for one in (before, last, now))
    usual = [b - a for a, b in zip(before.updates, last.updates, strict=True)]
    since = [b - a for a, b in zip(last.updates, now.updates, strict=True)]
    if usual != since:
        return False
    for name, state in last.objects.items():
        if not same(before.objects[name], state) and same(state, now.objects[name]):
            return False
    return all(
        before.versions[name] == version or version != now.versions[name]
        for name, version in last.versions.items()
    )


def same(left: Any, right: Any) -> bool:
    """Deep equality that knows tensors."""
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        both = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
        return both and bool(torch.equal(left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(one, right[key]) for key, one in left.items())
    if isinstance(left, Sequence) and isinstance(right, Sequence) and not isinstance(left, str):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


class _SchedulerState(NamedTuple):
    """All that a scheduler's object holds, its optimizer too."""

    fields: dict[str, Any]


def _copier(one: Any) -> Callable[[Any], Any]:
    """How to copy the state of ``one``: in no time, if it is of the usual kind."""
    if type(one).__module__.startswith("torch.optim.") and type(one).state_dict is LRScheduler.state_dict:
        return _copied_scheduler
    return _frozen_state


def _copied_scheduler(one: Any) -> Any:
    """Torch's own schedulers replace what they change, and their ``state_dict`` is their ``__dict__``."""
    return _SchedulerState(one.__dict__.copy())


def _frozen_state(one: Any) -> Any:
    scale = getattr(one, "_scale", None)
    if isinstance(scale, torch.Tensor) and scale.is_cuda and hasattr(one, "_growth_tracker"):
        return _frozen_scaler(one, scale)
    return map_tensors(one.state_dict(), lambda tensor: tensor.detach().clone())


def _frozen_scaler(scaler: Any, scale: Any) -> dict[str, Any]:
    """``GradScaler.state_dict`` without its wait for the device: numbers are read when they are saved."""
    return {
        "scale": scale.detach().clone(),
        "growth_factor": scaler.get_growth_factor(),
        "backoff_factor": scaler.get_backoff_factor(),
        "growth_interval": scaler.get_growth_interval(),
        "_growth_tracker": scaler._growth_tracker.detach().clone(),
    }


def _memory_of(tensor: Any) -> memoryview:
    return memory_at(tensor.data_ptr(), _bytes_of(tensor))


def _bytes_of(tensor: Any) -> int:
    size_bytes: int = tensor.numel() * tensor.element_size()
    return size_bytes


def _tensor_bytes(state: Any) -> int:
    total = 0

    def count(tensor: Any) -> Any:
        nonlocal total
        total += _bytes_of(tensor)
        return tensor

    map_tensors(state, count)
    return total


def _version(state: Any) -> int:
    total = 0

    def count(tensor: Any) -> Any:
        nonlocal total
        total += tensor._version
        return tensor

    map_tensors(state, count)
    return total
