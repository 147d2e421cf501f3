"""States as nested containers of tensors: changed, copied and compared."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

SMALL_BYTES = 1 << 16
"""What has no more tensor bytes than this is copied at every step."""

_LEAVES = frozenset({int, float, bool, str, type(None)})


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with ``change`` applied to every tensor in it; containers are new, of the same kinds."""
    if type(value) in _LEAVES:
        return value
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) is dict:
        return {key: map_tensors(one, change) for key, one in value.items()}
    if isinstance(value, dict):
        new = copy.copy(value)  # a Counter made of pairs would count them
        for key, one in value.items():
            new[key] = map_tensors(one, change)
        return new
    if type(value) in (list, tuple):
        return type(value)(map_tensors(one, change) for one in value)
    return value


def copied(state: Any) -> Any:
    """A copy that the main thread cannot change any more."""
    return map_tensors(state, lambda tensor: tensor.detach().clone())


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


def bytes_of(tensor: Any) -> int:
    """Of its elements."""
    size_bytes: int = tensor.numel() * tensor.element_size()
    return size_bytes
