"""Values that samplers have in attributes: which can be kept, how large they are, what tells them apart."""

import pickle
import zlib
from collections import deque
from typing import Any

import torch

from faultrun.sdk.torch.loader.held_objects import MOST_ELEMENTS, PLAIN

SMALL, LARGE, _WATCHED = 512, 3072, 1 << 20
"""Elements: looked at at every step, of an order that is another list each time, and in a digest."""
_OF_NUMPY = (torch.float32, torch.float64, torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64)


def elements_of(value: Any) -> int:
    """Elements of a list, of lists in it too, or of an array; of what is short anyway 0."""
    shape = getattr(value, "shape", None)
    if shape is None:
        if not isinstance(value, list) or len(value) <= MOST_ELEMENTS:
            return 0
        return len(value) * max(1, len(value[0]) if isinstance(value[0], list | tuple) else 1)
    size = 1
    for one in shape:
        size *= one
    return size


def is_kept(value: Any) -> bool:
    """Whether it consists of numbers and words."""
    if isinstance(value, PLAIN):
        return True
    if type(value) is list and len(value) > MOST_ELEMENTS:
        some = value[:: len(value) // MOST_ELEMENTS]
        inside = (part for one in some for part in (one if type(one) in (list, tuple) else (one,)))
        return all(isinstance(one, PLAIN) for one in inside)
    if type(value) in (dict, list, tuple, set, deque):
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        kept = all(is_kept(one) and not isinstance(one, torch.Tensor) for one in parts)
        return kept and len(value) <= MOST_ELEMENTS
    if isinstance(value, torch.Tensor):
        is_here = value.device.type == "cpu" and value.layout is torch.strided and not value.requires_grad
        return is_here and value.dtype in _OF_NUMPY
    return hasattr(value, "tobytes") and not getattr(getattr(value, "dtype", None), "hasobject", True)


def sight_of(value: Any) -> Any:
    """What tells it from others: itself, all of it in bytes, or a digest of what is large."""
    if isinstance(value, PLAIN):
        return value
    if (size := elements_of(value)) > _WATCHED:
        value = (value if isinstance(value, list) else value.reshape(-1))[:: size // _WATCHED]
    content = pickle.dumps(value, protocol=4)
    return content if size <= LARGE else b"%d" % zlib.crc32(content)


def put_field(one: Any, name: str, value: Any) -> None:
    """Have ``value`` as this attribute, in what is there already, if it can be."""
    now = getattr(one, name, None)
    if isinstance(now, torch.Tensor) and now.shape == value.shape:
        now.copy_(torch.as_tensor(value))
    elif isinstance(now, torch.Tensor):
        object.__setattr__(one, name, torch.as_tensor(value))
    elif isinstance(now, list) and isinstance(value, list):
        now[:] = value  # others may know it, too
    elif isinstance(now, dict | set | deque) and type(now) is type(value):
        now.clear()
        (now.extend if isinstance(now, deque) else now.update)(value)
    else:
        object.__setattr__(one, name, value)
