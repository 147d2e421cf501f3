"""What is written down at the end of every step, because it may change before the next update.

Parameters and optimizer state change only inside ``optimizer.step()`` and are read live, so that there is no
copy of them. All else that makes up a step is small: hyperparameters, schedulers and the like, random
numbers, where the data stand, and the buffers that a forward pass changes.

A CUDA program runs ahead of its device: ``optimizer.step()`` returns although
the gradients it uses hang in a collective for ever. What the device has
really done is told by events that were recorded along the way (``DeviceMark``).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from faultrun.sdk.torch.state.rng import Rng
from faultrun.sdk.torch.state.shards import ModuleState, is_dtensor, is_spread, meshes_of, packed
from faultrun.sdk.torch.state.trees import SMALL_BYTES, bytes_of, copied, map_tensors, same
from faultrun.sdk.worker.save_files import Position

_LOOK_S = 0.002

DeviceMark = Callable[[], bool]
"""Whether the device has come past this place of the program. Never waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Where the parameters are. The program may be ``ahead`` by so many steps and still be saved.

    ``mark`` puts up a mark at the place that the program has reached now; None when the device is never
    behind. ``to_host`` returns a state with all tensors on the CPU; ``rng`` asks for the state of the
    device's random numbers, None when there are none but the CPU's.
    """

    mark: Callable[[], DeviceMark] | None
    ahead: int
    to_host: Callable[[Any], Any]
    rng: Callable[[], Any] | None = None


@dataclass(slots=True)
class Passage:
    """Where a boundary lies in what the device does: ``done`` is its end, ``left`` the next update begins."""

    done: DeviceMark
    left: DeviceMark | None = None


class Boundary(NamedTuple):
    """The end of one step.

    ``rng`` is its slot in the recorder, ``epoch_rng`` are the random numbers of its epoch's beginning;
    ``groups`` are each optimizer's, with their hyperparameters; ``updates`` counts the updates of each
    optimizer since the start, ``trained`` which parameters are not frozen.
    ``passage`` is None where the device is never behind, ``buffers`` where they are the copies of the newest
    boundary.
    """

    position: Position
    rng: int
    groups: list[list[dict[str, Any]]]
    objects: dict[str, Any]
    versions: dict[str, int]
    updates: tuple[int, ...]
    trained: list[bool]
    epoch_rng: Rng | None = None
    passage: Passage | None = None
    buffers: dict[str, Any] | None = None

    def says_the_same(self, other: "Boundary") -> bool:
        """Whether hyperparameters and objects are the same there."""
        ours, theirs = (
            [
                {name: one for name, one in group.items() if name != "params"}
                for each in groups
                for group in each
            ]
            for groups in (self.groups, other.groups)
        )
        return same(ours, theirs) and same(self.objects, other.objects)


class Objects:
    """All with a ``state_dict`` besides model and optimizers: the small captured, the large read live."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._objects = dict(objects)
        self._readers = {name: _reader_of(one) for name, one in objects.items()}
        states = {name: read() for name, read in self._readers.items()}
        large = {name for name, state in states.items() if _total(packed(state), bytes_of) > SMALL_BYTES}
        self._small = {name: one for name, one in objects.items() if name not in large}
        self._large = {name: read for name, read in self._readers.items() if name in large}
        self.uncounted = frozenset(name for name in large if _total(states[name], is_dtensor))
        """The large ones with DTensors, whose versions stay when ``torch._foreach`` functions change them."""

    @property
    def has_scaler(self) -> bool:
        """Whether one of them may find gradients to be worth nothing."""
        return any(hasattr(one, "_growth_tracker") for one in self._objects.values())

    def capture(self) -> dict[str, Any]:
        """Copies of the small ones' states."""
        return {name: _frozen_state(one, self._readers[name]) for name, one in self._small.items()}

    def versions(self) -> dict[str, int]:
        """For each large one, a number that grows when a tensor of it is changed in place."""
        return {name: _total(read(), _version_of) for name, read in self._large.items()}

    def live(self) -> dict[str, Any]:
        """The large ones' states as they are."""
        return {name: packed(read()) for name, read in self._large.items()}

    def meshes(self, name: str) -> tuple[Any, ...]:
        """Over which the state of this one is spread now."""
        return meshes_of(self._readers[name]())

    def states(self) -> dict[str, Any]:
        """All states as their owners tell them, DTensors too. Main thread only."""
        return {name: one.state_dict() for name, one in self._objects.items()}

    def load(self, states: Mapping[str, Any]) -> None:
        """Put every state back. KeyError when one is missing."""
        for name, one in self._objects.items():
            one.load_state_dict(states[name])

    def load_small(self, states: Mapping[str, Any]) -> None:
        """Put back what ``capture`` returned."""
        for name, one in self._small.items():
            one.load_state_dict(copied(states[name]))


def passes(mark: DeviceMark, timeout_s: float) -> bool:
    """Whether the device comes to ``mark`` in time."""
    until_s = time.monotonic() + timeout_s
    while not mark():
        if time.monotonic() >= until_s:
            return False
        time.sleep(_LOOK_S)
    return True


def nothing_is_missing(
    before: Boundary | None, last: Boundary, now: Boundary, uncounted: frozenset[str] = frozenset()
) -> bool:
    """Whether all that moved in the last whole step has moved again since: then this step is whole too.

    ``now`` is taken after an update, before the script said that the step is
    complete. A step of which no earlier one is known counts only if there is
    a single optimizer and nothing else to move. An object that is ``uncounted`` must be seen to move.
    """
    if before is None:
        return now.updates == (last.updates[0] + 1,) if len(now.updates) == 1 and not now.objects else False
    usual = [b - a for a, b in zip(before.updates, last.updates, strict=True)]
    since = [b - a for a, b in zip(last.updates, now.updates, strict=True)]
    if usual != since:
        return False
    for name, state in last.objects.items():
        if not same(before.objects[name], state) and same(state, now.objects[name]):
            return False
    return all(
        version != now.versions[name] or (before.versions[name] == version and name not in uncounted)
        for name, version in last.versions.items()
    )


def _reader_of(one: Any) -> Callable[[], Any]:
    """A sharded module's hooks are not for other threads; whatever else is asked itself."""
    if isinstance(one, torch.nn.Module) and is_spread(one):
        return ModuleState(one).read
    reader: Callable[[], Any] = one.state_dict
    return reader


def _frozen_state(one: Any, read: Callable[[], Any]) -> Any:
    scale = getattr(one, "_scale", None)
    if isinstance(scale, torch.Tensor) and scale.is_cuda and hasattr(one, "_growth_tracker"):
        # GradScaler.state_dict without its wait for the device: numbers are read when they are saved
        return {
            "scale": scale.detach().clone(),
            "growth_factor": one.get_growth_factor(),
            "backoff_factor": one.get_backoff_factor(),
            "growth_interval": one.get_growth_interval(),
            "_growth_tracker": one._growth_tracker.detach().clone(),
        }
    return copied(packed(read()))


def _version_of(tensor: Any) -> int:
    version: int = tensor._version
    return version


def _total(state: Any, number_of: Callable[[Any], int]) -> int:
    numbers: list[int] = []
    map_tensors(state, lambda tensor: numbers.append(number_of(tensor)))
    return sum(numbers)


def device_of(model: Any) -> Device:
    """The device of the model's first parameter; the CPU for a model without any."""
    first = next(iter(model.parameters()), None)
    if first is None or first.device.type != "cuda":
        return Device(mark=None, ahead=2, to_host=lambda state: state)
    device = first.device
    return Device(
        mark=_cuda_mark,
        ahead=64,
        to_host=lambda state: _from_cuda(state, device),
        rng=lambda: torch.cuda.get_rng_state(device),
    )


def _cuda_mark() -> DeviceMark:
    event = torch.cuda.Event()
    event.record()
    passed: DeviceMark = event.query
    return passed


def _from_cuda(state: Any, device: Any) -> Any:
    """On a stream of our own: the default one may be blocked behind the collective that hangs.

    Into pageable memory, for pinning memory waits for the device.
    """
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        moved = map_tensors(state, lambda tensor: tensor.to("cpu") if tensor.is_cuda else tensor)
    stream.synchronize()
    return moved
