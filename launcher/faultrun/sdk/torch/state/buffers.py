"""The model's buffers at each boundary: looked up where they live, by module and name, never by the tensor.

A forward pass changes buffers in place (batch norm), or puts another tensor where one was, as ``self.mean =
0.9 * self.mean + ...`` does; moving and casting a module do so, too. Those that ``state_dict`` leaves out
(``persistent=False``) are part of a step like all others.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import ne
from typing import Any

import torch

from faultrun.sdk.torch.state.rng import memory_at
from faultrun.sdk.torch.state.shards import is_dtensor, local_of
from faultrun.sdk.torch.state.trees import SMALL_BYTES, bytes_of

_Form = tuple[Any, Any]
"""Shape and type of a tensor."""

_Settings = tuple[list[Any], list[bool], list[Any], dict[int, Any]]
"""The modules of a boundary, whether each trains, the places of their hooks, and what lay there, by id."""

_SAMPLES = 32
"""Bytes of a large buffer that are looked at at each boundary."""

_OF_NEXT_PASS = ("require_forward_param_sync", "require_backward_grad_sync")

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""What the names begin with of a module's dictionaries of hooks around its passes."""


@dataclass(slots=True)
class _Kept:
    """One buffer as it was at the last boundary: ``held`` is the tensor that was there, ``copy`` its values.

    ``live`` is this rank's piece of it, at ``address`` (-1: unknown). ``version`` is -1 where writes
    are not counted, as those to ``one.data``. ``is_told``: it is saved, which large ones are not that no
    ``state_dict`` has and nothing changes.
    """

    held: Any
    live: Any
    copy: Any
    version: int
    address: int
    is_told: bool

    @property
    def has_changed(self) -> bool:
        """Whether a function has written to it since, as far as it counts that, or a sample tells."""
        return self.version < 0 or self.version != _version_of(self.live) or self.differs

    @property
    def differs(self) -> bool:
        """Whether bytes of all places of a number are not those of the copy."""
        if not self.is_bytes:
            return False
        stride = bytes_of(self.live) // _SAMPLES | 1
        return _memory_of(self.live)[::stride] != _memory_of(self.copy)[::stride]

    @property
    def has_moved(self) -> bool:
        """Whether it has got other memory (``one.data = ...``), or another shape in it (``one.resize_``)."""
        held = self.held
        return self.address >= 0 and (self.address != held.data_ptr() or held.shape != self.live.shape)

    @property
    def is_bytes(self) -> bool:
        """Whether its memory can be copied as such."""
        plain = self.address > 0 and self.live.device.type == "cpu"
        return bool(plain and self.live.is_contiguous() and self.copy.is_contiguous())


class NextPass:
    """Whether each DistributedDataParallel sends its buffers before the next pass, and averages behind it.

    A pass without gradients leaves that changed. Ranks that differ in it wait for each other for ever.
    """

    def __init__(self, ddps: Callable[[], Sequence[Any]]) -> None:
        self._ddps = ddps

    def now(self) -> list[bool]:
        """Tell both of each, one after the other."""
        return [getattr(one, name) for one in self._ddps() for name in _OF_NEXT_PASS]

    def put(self, then: Sequence[bool]) -> None:
        """Have both as they were; the rest as it is."""
        both = ((one, name) for one in self._ddps() for name in _OF_NEXT_PASS)
        for (one, name), value in zip(both, then, strict=False):
            setattr(one, name, value)


class Buffers:
    """Copies of a model's buffers, made at each boundary. Main thread, or another while that stands still.

    Large ones are copied when their version counter or a sample says that they changed. Small ones every
    time: batch norm's kernels write without counting, as what is done to ``one.data`` does. A large one that
    is seen to be written so, in the first boundary, the second, the fourth, is copied every time, too.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._kept: dict[str, _Kept] = {}
        self._first: dict[str, _Form] | None = None
        self._settings: _Settings = [], [], [], {}
        self._captures = 0
        self._find_modules()
        self._look()
        self._first = {name: _form_of(one.copy) for name, one in self._kept.items()}

    @property
    def copies(self) -> dict[str, Any]:
        """By name, as they were at the last boundary."""
        return {name: one.copy for name, one in self._kept.items() if one.is_told}

    def is_remade(self, name: str, tensor: Any) -> bool:
        """Whether it has another shape or type than when training began, or was not there then."""
        return self._first is not None and self._first.get(name) != _form_of(tensor)

    def at_first(self, name: str) -> Any:
        """A tensor of the shape and type that it had when training began; None for what was not there."""
        form = (self._first or {}).get(name)
        return None if form is None else torch.zeros(form[0], dtype=form[1])

    def now(self) -> dict[str, Any]:
        """By name, where they are at this moment."""
        found = {}
        for name, held, _ in self._living():
            kept = self._kept.get(name)
            if kept is None or kept.is_told or kept.held is not held or kept.has_changed:
                found[name] = local_of(held.detach())
        return found

    def capture(self) -> None:
        """A boundary: copy what may have changed since the last one."""
        if self._inside() != self._seen or any(one.has_moved for one in self._kept.values()):
            self._look()
        self.note_settings()
        for kept, live in self._moves:  # the quickest way for a few small tensors on the CPU
            kept[:] = live
        if self._small[0]:
            torch._foreach_copy_(*self._small)
        self._captures += 1
        looks = not self._captures & (self._captures - 1)
        for one in self._large:
            if looks and not one.has_changed and not same_values(one.copy, one.live):
                one.version = -1
            if one.has_changed:
                _copy_again(one)

    def writes(self) -> tuple[int, int]:
        """How often functions have written to all buffers, as far as they count that; how many are new."""
        versions = sum(_version_of(held) for _, held, _ in self._living())
        return versions, sum(map(ne, self._inside(), self._seen))

    def note_settings(self) -> None:
        """Keep whether each module trains, and its hooks, as the ones of the last boundary."""
        modes = [one.training for _, one in self._modules]
        hooks = {id(place): place.copy() for place in filter(None, self._hooks)}
        self._settings = self._modules, modes, self._hooks, hooks

    def put_settings(self) -> None:
        """Have each module train, or not, and call the hooks that it called, as at the last boundary."""
        modules, modes, places, hooks = self._settings
        for (_, one), mode in zip(modules, modes, strict=True):
            one.training = mode
        for place in places:
            if place != (then := hooks.get(id(place), {})):
                place.clear()
                place.update(then)

    def put_back(self) -> None:
        """Have the modules, the tensors and the values of the last boundary again."""
        for place, then in self._then:
            place.clear()
            place.update(then)
        for one in self._kept.values():
            if one.has_moved:
                one.held.data = one.live
            _fill(one.live, one.copy)

    def put(self, states: Mapping[str, Any], persistent: Container[str] = ()) -> None:
        """Give them these values, and these shapes and types; those that are not there yet are made.

        AttributeError: there is no such module.
        """
        for name, state in states.items():
            path, _, key = name.rpartition(".")
            module = self._model.get_submodule(path)
            held = module._buffers.get(key)
            if held is not None and _form_of(live := local_of(held.detach())) == _form_of(state):
                _fill(live, state)
                continue
            like = held if held is not None else next(self._model.parameters(), state)
            if key not in module._buffers and name not in persistent:
                module._non_persistent_buffers_set.add(key)
            module._buffers[key] = state.to(like.device, copy=True)

    def _find_modules(self) -> None:
        modules = self._model.named_modules(remove_duplicate=False)
        self._modules = [(f"{path}." if path else "", one) for path, one in modules]
        self._places = [place for _, one in self._modules for place in (one._modules, one._buffers)]
        held = [pair for _, one in self._modules for pair in vars(one).items()]
        self._hooks = [place for name, place in held if name.startswith(_HOOKS) and isinstance(place, dict)]

    def _inside(self) -> list[int]:
        """What lies in all modules. What was seen last is kept: no number of it means another one."""
        return [*map(id, chain.from_iterable(map(dict.values, self._places)))]

    def _living(self) -> Iterator[tuple[str, Any, bool]]:
        """Every buffer that there is now: name, tensor, whether ``state_dict`` leaves it out."""
        if self._inside() != self._seen:
            self._find_modules()
        for path, module in self._modules:
            for key, held in module._buffers.items():
                if isinstance(held, torch.Tensor):
                    yield path + key, held, key in module._non_persistent_buffers_set

    def _look(self) -> None:
        """Find and copy them anew."""
        before, self._kept, self._seen = self._kept, {}, []
        for name, held, is_hidden in self._living():
            old = before.get(name)
            if old is not None and old.held is held and not old.has_moved:
                if old.has_changed or bytes_of(old.live) <= SMALL_BYTES:
                    _copy_again(old)
                self._kept[name] = old
                continue
            is_told = self._first is not None or not is_hidden or bytes_of(local_of(held)) <= SMALL_BYTES
            self._kept[name] = _kept(held, old, is_told=is_told)
        self._seen = self._inside()
        self._then = [(place, dict(place)) for place in self._places]
        small = [one for one in self._kept.values() if bytes_of(one.live) <= SMALL_BYTES]
        self._large = [one for one in self._kept.values() if bytes_of(one.live) > SMALL_BYTES]
        self._moves = [(_memory_of(one.copy), _memory_of(one.live)) for one in small if one.is_bytes]
        others = [one for one in small if not one.is_bytes]
        self._small = [one.copy for one in others], [one.live for one in others]


def same_values(left: Any, right: Any) -> bool:
    """Whether both have the same shape, type and numbers, on whatever device."""
    return _form_of(left) == _form_of(right) and bool(torch.equal(left, right.to(left.device)))


def _kept(held: Any, old: _Kept | None, *, is_told: bool) -> _Kept:
    live = local_of(held.detach())
    if old is not None and _form_of(old.copy) == _form_of(live) and old.copy.device == live.device:
        copy = old.copy.copy_(live)
    else:
        copy = live.clone(memory_format=torch.preserve_format)
    is_plain = type(live) is torch.Tensor and live.layout == torch.strided and not is_dtensor(held)
    return _Kept(held, live, copy, _version_of(live), held.data_ptr() if is_plain else -1, is_told)


def _copy_again(one: _Kept) -> None:
    one.is_told |= one.has_changed
    one.copy.copy_(one.live)
    one.version = -1 if one.version < 0 else _version_of(one.live)


def _fill(live: Any, values: Any) -> None:
    """Nothing is written where nothing changes: a tensor that was expanded cannot be written to."""
    if not same_values(live, values):
        with torch.inference_mode(live.is_inference()), torch.no_grad():
            live.copy_(values)


def _form_of(tensor: Any) -> _Form:
    return tensor.shape, tensor.dtype


def _version_of(tensor: Any) -> int:
    """How often it was written to; -1 if it is not counted."""
    return -1 if tensor.is_inference() else tensor._version


def _memory_of(tensor: Any) -> memoryview:
    return memory_at(tensor.data_ptr(), bytes_of(tensor))
