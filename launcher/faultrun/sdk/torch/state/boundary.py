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
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.loader.held_objects import is_of_library
from faultrun.sdk.torch.state.rng import Rng
from faultrun.sdk.torch.state.shards import ModuleState, is_spread, meshes_of, packed, unpacked
from faultrun.sdk.torch.state.trees import (
    SMALL_BYTES,
    bytes_in,
    bytes_of,
    copied,
    from_bytes,
    is_plain,
    map_tensors,
    same,
    to_bytes,
)
from faultrun.sdk.worker.save_files import Position
from faultrun.sdk.worker.training_stages import told

_LOOK_S = 0.002
_SOON = 3
"""Boundaries: a step has ended."""

NOT_GIVEN = "faultrun."
"""What the names of objects begin with that the script has not given, and an earlier save need not have."""

EXTRA = f"{NOT_GIVEN}extra state of modules"
"""The name of what the model's own state has, too."""

_Mark = tuple[int, int]

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
    optimizer since the start, ``trained`` which parameters are not frozen, ``next_pass`` is a ``NextPass``.
    ``passage`` is None where the device is never behind, ``buffers`` where they are the copies of the newest
    boundary.
    """

    position: Position
    rng: int
    groups: list[list[dict[str, Any]]]
    objects: dict[str, Any]
    updates: tuple[int, ...]
    trained: list[bool]
    next_pass: list[bool]
    epoch_rng: Rng | None = None
    passage: Passage | None = None
    buffers: dict[str, Any] | None = None


class Objects:
    """All with a ``state_dict`` besides model and optimizers. Any thread, while the main thread stands still.

    Every boundary has copies of a small one's tensors; of a large one there is one copy, of the newest.
    """

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._objects = dict(objects)
        self._readers = {name: _reader_of(one) for name, one in objects.items()}
        self.are_plain = False
        """Whether saves hold plain values only."""
        self._copies: dict[str, list[Any]] = {}
        self._captures = 0
        self._seen: dict[str, tuple[Any, list[_Mark | None]]] = {}
        """The states as they were last copied, kept so that no other tensor is taken for one of theirs."""
        self._own = {
            name: one
            for name, one in objects.items()
            if getattr(one, "is_of_rank", not is_of_library(type(one)))
        }

    def add(self, name: str, one: Any) -> None:
        """One more, before the first boundary; ``name`` begins as what is hidden."""
        self._objects[name], self._readers[name] = one, _reader_of(one)

    @property
    def modules(self) -> list[tuple[str, torch.nn.Module]]:
        """Those that are modules, such as a criterion or an average of the model."""
        return [(name, one) for name, one in self._objects.items() if isinstance(one, torch.nn.Module)]

    def own_states(self) -> dict[str, Any]:
        """States of the script's that need not be alike on all ranks. Main thread."""
        return {name: one.state_dict() for name, one in self._own.items() if not name.startswith(NOT_GIVEN)}

    @property
    def large(self) -> frozenset[str]:
        """Names of which the newest boundary alone has a copy."""
        return frozenset(self._copies)

    def now(self) -> dict[str, Any]:
        """Their states, where they are."""
        return {name: _state_of(one, self._readers[name]) for name, one in self._objects.items()}

    def capture(self) -> dict[str, Any]:
        """Copies of the states. FaultrunError: there is no room for one."""
        states = self.now()
        self._captures += 1
        if self._captures == _SOON:
            given = (name for name in states if not name.startswith(NOT_GIVEN))
            empty = (name for name in given if states[name] == {})
            for name in (one for one in empty if f"{NOT_GIVEN}attributes of {one}" not in self._objects):
                told(f"nothing of objects[{name!r}] is kept: its state_dict is empty")
        return {name: self._copied(name, state) for name, state in states.items()}

    def _copied(self, name: str, state: Any) -> Any:
        kept, new, marks = iter(self._copies.pop(name, ())), [], []

        def copy(tensor: Any) -> Any:
            old, tensor = next(kept, None), tensor.detach()
            if old is None or (old.shape, old.dtype, old.device) != (
                tensor.shape,
                tensor.dtype,
                tensor.device,
            ):
                old = tensor.clone()
            else:
                old.copy_(tensor)
            new.append(old)
            marks.append(_mark_of(tensor))
            return old

        def other(one: Any) -> Any:
            if not self.are_plain or is_plain(one):
                return deepcopy(one)
            because = (
                f"its state has a {type(one).__name__}, which torch.load(weights_only=True) does not read"
            )
            hint = "let state_dict return numbers, words, tensors, and lists and dicts of these"
            raise FaultrunError(f"objects[{name!r}] cannot be saved", because=because, hint=hint)

        try:
            found = map_tensors(state, copy, other)
        except (MemoryError, RuntimeError) as error:
            size_mib = bytes_in(state) >> 20
            because = (
                f"there is no room for a copy of its {size_mib} MiB, which every step may change: {error}"
            )
            hint = "leave it out of objects, and save it with your own checkpoints"
            raise FaultrunError(
                f"objects[{name!r}] cannot be protected", because=because, hint=hint
            ) from error
        if sum(map(bytes_of, new)) > SMALL_BYTES:
            self._copies[name] = new
        self._seen[name] = state, marks
        return found

    def have_changed(self, last: Mapping[str, Any]) -> bool:
        """Whether any has since it was copied as ``last``; of what is large, as far as torch counts that."""

        def alike(then: Any, now: Any) -> bool:
            mark = next(marks)
            return bool(torch.equal(then, now)) if mark is None else mark == _mark_of(now)

        for name, state in self.now().items():
            marks = iter(self._seen[name][1])
            if not same(last[name], state, alike):
                return True
        return False

    def have_skipped(self, last: Mapping[str, Any]) -> bool:
        """Whether a GradScaler has found gradients worth nothing since ``last``, and changed its scale."""
        now = self.now()
        return any(
            not last or not same(with_numbers(last[name]), with_numbers(now[name]))
            for name, one in self._objects.items()
            if hasattr(one, "_growth_tracker")
        )

    def noted(self) -> bytes:
        """The states of the script's own small objects, which need not be alike on all ranks."""
        parts = []
        for name, one in self._own.items():
            if name not in self._copies and (content := to_bytes([name, one.state_dict()])):
                parts.append(content)
        return (to_bytes(parts) or b"") if parts else b""

    def put_noted(self, content: bytes) -> list[str]:
        """Put back what ``noted`` returned; the names of what may be this rank's own and is not in it."""
        states = dict(map(from_bytes, from_bytes(content))) if content else {}
        for name in states.keys() & self._own.keys():
            self._own[name].load_state_dict(states[name])
        return [
            name
            for name, one in self._objects.items()
            if name not in states and (name in self._own or _averages(one))
        ]

    def meshes(self, name: str) -> tuple[Any, ...]:
        """Over which the state of this one is spread now."""
        return meshes_of(self._readers[name]())

    def states(self) -> dict[str, Any]:
        """All states as their owners tell them, DTensors too. Main thread only."""
        return {name: one.state_dict() for name, one in self._objects.items() if name != EXTRA}

    def check(self, states: Mapping[str, Any]) -> None:
        """KeyError when one of the script's is missing."""
        for name in self._objects:
            if name not in states and not name.startswith(NOT_GIVEN):
                raise KeyError(name)

    def load(self, states: Mapping[str, Any]) -> None:
        """Put every state back. KeyError as from ``check``."""
        self.check(states)
        self.load_some(states)

    def load_some(self, states: Mapping[str, Any]) -> None:
        """Put these states back."""
        for name, one in self._objects.items():
            if name in states:
                if isinstance(one, torch.nn.Module):
                    _make_room(one, states[name])
                one.load_state_dict(states[name])
                if hasattr(one, "_growth_tracker"):
                    one._per_optimizer_states.clear()  # whose gradients it has unscaled in the step under way

    def put_back(self, states: Mapping[str, Any]) -> None:
        """Put back what ``capture`` returned."""
        self.load({name: unpacked(copied(one), self.meshes(name)) for name, one in states.items()})


def _make_room(module: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Have buffers of the shapes in ``state``: some grow, and a module loads none of another shape."""
    for path, part in module.named_modules():
        for key, held in part._buffers.items():
            saved = state.get(f"{path}.{key}" if path else key)
            if held is not None and isinstance(saved, torch.Tensor) and saved.shape != held.shape:
                part._buffers[key] = held.new_empty(saved.shape)


def _averages(one: Any) -> bool:
    """Whether it is a module with buffers of its own, which may be averages of what this rank has seen."""
    buffers = one.buffers() if isinstance(one, torch.nn.Module) else ()
    return any(each.is_floating_point() for each in buffers)


def passes(mark: DeviceMark, timeout_s: float) -> bool:
    """Whether the device comes to ``mark`` in time."""
    until_s = time.monotonic() + timeout_s
    while not mark():
        if time.monotonic() >= until_s:
            return False
        time.sleep(_LOOK_S)
    return True


def _reader_of(one: Any) -> Callable[[], Any]:
    """A sharded module's hooks are not for other threads; whatever else is asked itself."""
    if isinstance(one, torch.nn.Module) and is_spread(one):
        return ModuleState(one).read
    reader: Callable[[], Any] = one.state_dict
    return reader


def _state_of(one: Any, read: Callable[[], Any]) -> Any:
    scale = getattr(one, "_scale", None)
    if isinstance(scale, torch.Tensor) and scale.is_cuda and hasattr(one, "_growth_tracker"):
        # GradScaler.state_dict without its wait for the device: numbers are read when they are saved
        return {
            "scale": scale,
            "growth_factor": one.get_growth_factor(),
            "backoff_factor": one.get_backoff_factor(),
            "growth_interval": one.get_growth_interval(),
            "_growth_tracker": one._growth_tracker,
        }
    return packed(read())


def with_numbers(state: Any) -> Any:
    """``GradScaler`` wants numbers where a tensor was captured without waiting for the device."""
    if isinstance(state, dict) and "_growth_tracker" in state:
        return map_tensors(state, lambda tensor: tensor.item())
    return state


def _mark_of(tensor: Any) -> _Mark | None:
    """Where it is and how often it was written to; None where its numbers are compared."""
    if tensor.device.type == "cpu" and bytes_of(tensor) <= SMALL_BYTES:
        return None
    return tensor.data_ptr(), -1 if tensor.is_inference() else tensor._version


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
