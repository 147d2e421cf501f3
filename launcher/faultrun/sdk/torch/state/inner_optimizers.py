"""What optimizers around or in a protected one keep in their own ``state``, such as the momentum in a SAM.

The ``state_dict`` of the protected one need not have it: then it is an object of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch

from faultrun.sdk.torch.state.trees import map_tensors


def optimizers_in(value: Any) -> list[Any]:
    """The optimizers that an attribute holds: one, or a list, tuple or dict of them."""
    parts = value.values() if isinstance(value, dict) else value
    parts = parts if isinstance(value, dict | list | tuple) else [value]
    return [one for one in parts if isinstance(one, torch.optim.Optimizer)]


class InnerOptimizer:
    """The state of one that is not protected itself; nothing where one of ``protected`` tells it.

    ``load`` puts what its ``state_dict`` returned into an optimizer.
    """

    def __init__(self, one: Any, protected: Sequence[Any], load: Callable[[Any, Any], None]) -> None:
        self._one, self._protected, self._load = one, protected, load
        self._shared = [
            (each, name)
            for each in protected
            for name in ("param_groups", "state")
            if name in vars(one) and getattr(each, name) is vars(one)[name]
        ]
        self._is_told: bool | None = None
        """None while there is nothing to be told."""

    def state_dict(self) -> dict[str, Any]:
        """State as it is now."""
        if self._is_told is None and (held := {*map(id, _tensors(self._one.state))}):
            others = chain.from_iterable(_tensors(each.state_dict()) for each in self._protected)
            self._is_told = held <= {*map(id, others)}
        state: dict[str, Any] = {} if self._is_told else self._one.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back the state as it was, sharing what it shared: the protected one has new groups by now."""
        for each, name in self._shared:
            setattr(self._one, name, getattr(each, name))
        if state:
            self._load(self._one, state)


def _tensors(state: Any) -> Iterator[Any]:
    found: list[Any] = []
    map_tensors(state, found.append)
    yield from found
