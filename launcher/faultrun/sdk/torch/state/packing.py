"""A state as a small plan and large parts: for memory that other processes read, and for other ranks.

The plan is the state with a number in place of each tensor, as ``torch.save`` writes it and
``torch.load(weights_only=True)`` reads it; the parts are the tensors' bytes. Nothing is executed by reading.

``pickled`` is what a file of ``torch.save`` says of its tensors: with the parts beside it a program without
torch can write one (``sdk.snapshots.to_files``).
"""

import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from faultrun.sdk.snapshots.buffer import aligned
from faultrun.sdk.torch.state.rng import memory_at
from faultrun.sdk.torch.state.trees import map_tensors, with_values

_PLACE = "faultrun_tensor"


@dataclass(frozen=True, slots=True)
class Packed:
    """``plan`` and the tensors that it names, contiguous and on the CPU, in its order."""

    plan: bytes
    tensors: tuple[Any, ...]

    def parts(self) -> list[memoryview]:
        """The tensors' bytes, where they lie: keep ``self`` as long."""
        return [
            memory_at(one.data_ptr(), one.nbytes) if one.nbytes else memoryview(b"") for one in self.tensors
        ]


def pack(state: Any) -> Packed:
    """``state``, of plain containers, numbers and tensors. Tensors on the CPU are not copied."""
    tensors: list[Any] = []

    def place(tensor: Any) -> dict[str, Any]:
        one = tensor.detach().to("cpu")
        tensors.append(one if one.is_contiguous() else one.contiguous())
        dtype = str(one.dtype).removeprefix("torch.")
        return {_PLACE: len(tensors) - 1, "dtype": dtype, "shape": tuple(one.shape)}

    content = io.BytesIO()
    torch.save(map_tensors(state, place), content)
    return Packed(content.getvalue(), tuple(tensors))


def pickled(state: Any) -> bytes:
    """``data.pkl`` of a file of ``torch.save`` whose storages are the parts of ``pack(state)``, by number."""
    content, number = io.BytesIO(), 0

    def stand_in(tensor: Any) -> _Tensor:
        nonlocal number
        one = _Tensor(number, tensor.dtype, tuple(tensor.shape))
        number += 1
        return one

    _Pickler(content, protocol=2).dump(map_tensors(state, stand_in))
    return content.getvalue()


def opened(plan: bytes) -> Any:
    """The state with a place for each tensor, which ``filled`` fills."""
    return torch.load(io.BytesIO(plan), weights_only=True)


def places(state: Any) -> list[Any]:
    """New tensors for all places, in order."""
    found = {at[_PLACE]: torch.empty(at["shape"], dtype=getattr(torch, at["dtype"])) for at in _places(state)}
    return [found[number] for number in sorted(found)]


def filled(state: Any, tensors: Sequence[Any]) -> Any:
    """``state`` with the tensors in their places."""
    if isinstance(state, dict):
        if _PLACE in state:
            return tensors[state[_PLACE]]
        return with_values(state, lambda one: filled(one, tensors))
    if type(state) in (list, tuple):
        return type(state)(filled(one, tensors) for one in state)
    return state


def unpacked_from(plan: bytes, parts: memoryview) -> Any:
    """What ``pack`` packed, with copies of the tensors."""
    state, at = opened(plan), 0
    tensors = places(state)
    for one in tensors:
        if one.nbytes:
            memory_at(one.data_ptr(), one.nbytes)[:] = parts[at : at + one.nbytes]
        at += aligned(one.nbytes)
    return filled(state, tensors)


@dataclass(frozen=True, slots=True)
class _Tensor:
    number: int
    dtype: Any
    shape: tuple[int, ...]

    @property
    def stride(self) -> tuple[int, ...]:
        """Strides of contiguous memory, in elements."""
        strides = [1]
        for length in reversed(self.shape[1:]):
            strides.insert(0, strides[0] * max(length, 1))
        return tuple(strides[: len(self.shape)])


@dataclass(frozen=True, slots=True)
class _Storage:
    tensor: _Tensor


class _Pickler(pickle.Pickler):
    """Pickles a tensor of any type as ``torch.save`` does, in a storage of its own."""

    def reducer_override(self, one: Any) -> Any:
        if type(one) is not _Tensor:
            return NotImplemented
        hooks: OrderedDict[str, Any] = OrderedDict()
        fields = _Storage(one), 0, one.shape, one.stride, False, hooks, one.dtype
        return torch._utils._rebuild_tensor_v3, fields

    def persistent_id(self, one: Any) -> Any:
        if type(one) is not _Storage:
            return None
        size_bytes = math.prod(one.tensor.shape) * one.tensor.dtype.itemsize
        return "storage", torch.UntypedStorage, str(one.tensor.number), "cpu", size_bytes


def _places(state: Any) -> Iterator[dict[str, Any]]:
    if isinstance(state, dict):
        if _PLACE in state:
            yield state
            return
        for one in state.values():
            yield from _places(one)
    elif type(state) in (list, tuple):
        for one in state:
            yield from _places(one)
