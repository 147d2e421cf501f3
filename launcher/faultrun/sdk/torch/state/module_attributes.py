"""What modules among the ``objects`` keep in plain attributes: no ``state_dict`` has the sums of a metric.

Of torch's own modules and of libraries nothing: what these keep so, no step changes.
"""

from collections.abc import Mapping
from typing import Any

import torch

from faultrun.sdk.torch.state.boundary import NOT_GIVEN, OF_LIBRARIES
from faultrun.sdk.torch.state.trees import SMALL_BYTES, bytes_of, copied, is_plain, map_tensors, same

_OF_MODULES = vars(torch.nn.Module()).keys()


class ModuleAttributes:
    """Numbers, words, tensors, lists and dicts in a module and its parts, as far as they have changed."""

    is_of_rank = True
    """Whether each rank has its own."""

    def __init__(self, module: torch.nn.Module) -> None:
        named = module.named_modules()
        self._parts = [pair for pair in named if not type(pair[1]).__module__.startswith(OF_LIBRARIES)]
        self._first = copied(self._now())
        self._changing = {name for name, one in self._first.items() if _size_of(one) > SMALL_BYTES}
        """Names of what is kept: also what is too large to be compared at each step."""

    @property
    def is_there(self) -> bool:
        """Whether there is anything."""
        return bool(self._first)

    def state_dict(self) -> dict[str, Any]:
        """State as it is now."""
        now, known = self._now(), self._first
        others = (name for name in now if name not in self._changing)
        self._changing |= {name for name in others if not same(known.get(name), now[name])}
        return {name: one for name, one in now.items() if name in self._changing}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back the state as it was, with tensors where they are; what it has not is as at first."""
        there = self._now()
        for path, part in self._parts:
            for name in (name for name in {**self._first, **state} if name.rpartition(".")[0] == path):
                value = copied(state.get(name, self._first.get(name)))
                vars(part)[name.rpartition(".")[2]] = _moved(value, there.get(name))

    def _now(self) -> dict[str, Any]:
        return {
            f"{path}.{name}": one
            for path, part in self._parts
            for name, one in vars(part).items()
            if name not in _OF_MODULES and is_plain(one)
        }


def attributes_of(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Objects for what modules among these have so."""
    modules = {name: one for name, one in objects.items() if isinstance(one, torch.nn.Module)}
    found = {f"{NOT_GIVEN}attributes of {name}": ModuleAttributes(one) for name, one in modules.items()}
    return {name: one for name, one in found.items() if one.is_there}


def _moved(value: Any, there: Any) -> Any:
    if isinstance(value, torch.Tensor) and isinstance(there, torch.Tensor):
        return value.to(there.device)
    return value


def _size_of(value: Any) -> int:
    sizes: list[int] = []
    map_tensors(value, lambda tensor: sizes.append(bytes_of(tensor)))
    return sum(sizes)
