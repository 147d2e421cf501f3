"""States as nested containers of tensors: changed, copied and compared."""

import copy
import marshal
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

SMALL_BYTES = 1 << 16
"""What has no more tensor bytes than this is copied at every step."""

_LEAVES = frozenset({int, float, bool, str, type(None)})
_READ = (bytes, bytearray, torch.dtype, torch.device, torch.Size)


def map_tensors(
    value: Any, change: Callable[[Any], Any], other: Callable[[Any], Any] = lambda one: one
) -> Any:
    """``value`` with ``change`` applied to every tensor in it; containers are new, of the same kinds.

    ``other`` is applied to what is neither a tensor nor a container, nor a plain number or word.
    """
    kind = type(value)
    if kind in _LEAVES:
        return value
    if kind is dict:
        return {
            key: one if type(one) in _LEAVES else map_tensors(one, change, other)
            for key, one in value.items()
        }
    if kind is list or kind is tuple:
        return kind([one if type(one) in _LEAVES else map_tensors(one, change, other) for one in value])
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return with_values(value, lambda one: map_tensors(one, change, other))
    return other(value)


def with_values(state: dict[Any, Any], change: Callable[[Any], Any]) -> dict[Any, Any]:
    """A dict of the same kind, with ``change`` applied to every value."""
    if type(state) is dict:
        return {key: change(one) for key, one in state.items()}
    new = copy.copy(state)  # a Counter made of pairs would count them
    for key, one in state.items():
        new[key] = change(one)
    return new


def plain(state: Any) -> Any:
    """``state`` with numpy's numbers of 64 bits as Python's, which are the same."""
    return map_tensors(state, lambda tensor: tensor, _as_number)


def _as_number(one: Any) -> Any:
    is_number = getattr(one, "shape", None) == () and hasattr(one, "tobytes")
    return one.item() if is_number and one.dtype.str[1:] in ("f8", "i8", "b1") else one


def is_plain(one: Any) -> bool:
    """Whether ``torch.load(weights_only=True)`` reads what ``plain`` makes of it; no parameter is in it."""
    if type(one) in (list, tuple, set, dict, OrderedDict, Counter):
        return all(map(is_plain, (*one, *one.values()) if isinstance(one, dict) else one))
    is_tensor = isinstance(one, torch.Tensor) and not isinstance(one, torch.nn.Parameter)
    return is_tensor or type(_as_number(one)) in _LEAVES or isinstance(one, _READ)


def copied(state: Any) -> Any:
    """A copy that the main thread cannot change any more."""
    return map_tensors(state, lambda tensor: tensor.detach().clone(), copy.deepcopy)


def deep_copied(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` copied down to its tensors, whatever holds them, each of which becomes ``change`` of it.

    Whatever the class of an object raises that does not allow it.
    """
    with _Copying(change):
        return copy.deepcopy(value)


class _Copying(TorchFunctionMode):  # type: ignore[misc]
    """Says how tensors are copied while ``copy.deepcopy`` finds its way to them."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self._change = change

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__:
            return self._change(args[0])
        return func(*args, **(kwargs or {}))


def same(left: Any, right: Any, alike: Callable[[Any, Any], bool] = torch.equal) -> bool:
    """Deep equality that knows tensors, which are compared by ``alike``."""
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        both = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
        return both and bool(alike(left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            (type(one) in _LEAVES and one is right[key]) or same(one, right[key], alike)
            for key, one in left.items()
        )
    if isinstance(left, Sequence) and isinstance(right, Sequence) and not isinstance(left, str):
        return len(left) == len(right) and all(map(same, left, right, repeat(alike)))
    if hasattr(left, "tobytes") and hasattr(right, "tobytes"):
        return bool(left.shape == right.shape and left.tobytes() == right.tobytes())
    return bool(left == right)


def to_bytes(state: Any) -> bytes | None:
    """``state`` within some ten microseconds; None if there is more in it than plain values and tensors."""
    try:
        return marshal.dumps(_plain(state))
    except ValueError:
        return None


def from_bytes(content: bytes) -> Any:
    """What ``to_bytes`` packed."""
    return _tensors_in(marshal.loads(content))


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and not hasattr(value, "device_mesh"):
        flat = value.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
        return frozenset({str(value.dtype)[6:]}), tuple(value.shape), flat.numpy().tobytes()
    if type(value) in (dict, OrderedDict):
        return {key: _plain(one) for key, one in value.items()}
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else _as_number(value)


def _tensors_in(value: Any) -> Any:
    match value:
        case (frozenset() as kind, tuple() as shape, bytes() as content) if type(value) is tuple:
            dtype = getattr(torch, *kind)
            return (
                torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
                if content
                else torch.empty(shape, dtype=dtype)
            )
        case dict():
            return {key: _tensors_in(one) for key, one in value.items()}
        case list() | tuple():
            return type(value)(map(_tensors_in, value))
    return value


def bytes_of(tensor: Any) -> int:
    """Count the bytes of a tensor's elements."""
    size_bytes: int = tensor.numel() * tensor.element_size()
    return size_bytes


def bytes_in(state: Any) -> int:
    """Count the bytes of all tensors in it."""
    sizes: list[int] = []
    map_tensors(state, lambda tensor: sizes.append(bytes_of(tensor)))
    return sum(sizes)
