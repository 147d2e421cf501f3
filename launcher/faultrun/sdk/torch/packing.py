"""A state as a small plan and large parts: for memory that other processes read, and for other ranks.

The plan is the state with a number in place of each tensor, as ``torch.save`` writes it and
``torch.load(weights_only=True)`` reads it; the parts are the tensors' bytes. Nothing is executed by reading.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from faultrun.sdk.snapshot import aligned
from faultrun.sdk.torch.rng import memory_at
from faultrun.sdk.torch.trees import map_tensors

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


def opened(plan: bytes) -> Any:
    """The state with a place for each tensor, which ``filled`` fills."""
    return torch.load(io.BytesIO(plan), weights_only=True)


def places(state: Any) -> list[Any]:
    """New tensors for all places, in order."""
    found = {place[_PLACE]: _empty(place) for place in _places(state)}
    return [found[number] for number in sorted(found)]


def filled(state: Any, tensors: Sequence[Any]) -> Any:
    """``state`` with the tensors in their places."""
    if isinstance(state, dict):
        if _PLACE in state:
            return tensors[state[_PLACE]]
        return {key: filled(one, tensors) for key, one in state.items()}
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


def _empty(place: dict[str, Any]) -> Any:
    return torch.empty(place["shape"], dtype=getattr(torch, place["dtype"]))


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
