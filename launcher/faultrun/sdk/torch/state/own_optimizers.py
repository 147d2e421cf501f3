"""What optimizers of the script's own keep, beside what ``state_dict`` tells of those that are protected.

Attributes of their classes, and of classes around one; optimizers within them.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch

from faultrun.sdk.torch.loader.held_objects import is_of_library
from faultrun.sdk.torch.state.boundary import NOT_GIVEN
from faultrun.sdk.torch.state.state_dict import load_optimizer, unwrapped_optimizer
from faultrun.sdk.torch.state.trees import is_plain, map_tensors
from faultrun.sdk.worker.training_stages import told


class OptimizerAttributes:
    """What an optimizer of the script's, or a class around one, has of plain values and tensors."""

    def __init__(self, owner: Any) -> None:
        self._owner, self._left_out = owner, {*_OF_TORCH}

    def state_dict(self) -> dict[str, Any]:
        """State as it is now; what is not kept is told once."""
        found = {}
        for name, one in vars(self._owner).items():
            if name in self._left_out or optimizers_in(one) or self._is_known(one):
                continue
            if is_plain(one):
                found[name] = one
            else:
                self._left_out.add(name)
                what = f"{type(self._owner).__name__}.{name}"
                told(f"{what} is not kept: if steps of the optimizer change it, give it to objects")
        return found

    def _is_known(self, one: Any) -> bool:
        """Whether it is code, or a module of which all is trained here."""
        if not isinstance(one, torch.nn.Module):
            return inspect.isroutine(one) or isinstance(one, type | partial)
        groups = getattr(self._owner, "param_groups", ())
        return {*map(id, one.parameters())} <= {id(each) for group in groups for each in group["params"]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back the state as it was, with tensors where the parameters are."""
        groups = getattr(self._owner, "param_groups", ())
        device = next((one.device for group in groups for one in group["params"]), None)
        there = map_tensors(state, lambda tensor: tensor.to(device) if tensor.dim() else tensor)
        vars(self._owner).update(there)


class InnerOptimizer:
    """The state of one that is not protected itself; nothing where one of ``protected`` tells it."""

    def __init__(self, one: Any, protected: Sequence[Any]) -> None:
        self._one, self._protected = one, protected
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
            load_optimizer(self._one, state)


def optimizers_in(value: Any) -> list[Any]:
    """The optimizers that an attribute holds: one, or a list, tuple or dict of them."""
    parts = value.values() if isinstance(value, dict) else value
    parts = parts if isinstance(value, dict | list | tuple) else [value]
    return [one for one in parts if isinstance(one, torch.optim.Optimizer)]


def _tensors(state: Any) -> Iterator[Any]:
    found: list[Any] = []
    map_tensors(state, found.append)
    yield from found


_OF_TORCH = vars(torch.optim.Optimizer([torch.nn.Parameter(torch.empty(0))], {})).keys()


def own_states(optimizers: Sequence[Any]) -> dict[str, Any]:
    """Objects for the script's own optimizers, and for what is around or in them; libraries' are known."""
    found: dict[str, Any] = {}
    waiting, protected = [(one, False) for one in optimizers], [*map(unwrapped_optimizer, optimizers)]
    for number, (one, is_in_own) in enumerate(waiting):  # which grows
        name, is_own = type(one).__name__, not is_of_library(type(one))
        if is_own:
            found[f"{NOT_GIVEN}{name} {number}"] = OptimizerAttributes(one)
        is_kept = not isinstance(one, torch.optim.Optimizer) or any(
            unwrapped_optimizer(one) is each for each in protected
        )
        if (is_own or is_in_own) and not is_kept:
            found[f"{NOT_GIVEN}state of {name} {number}"] = InnerOptimizer(one, protected)
        inner = chain.from_iterable(map(optimizers_in, getattr(one, "__dict__", {}).values()))
        waiting += [(part, is_own) for part in inner if not any(part is each for each, _ in waiting)]
    return found
