"""What optimizers of the script's own, and modules among the ``objects``, keep that no ``state_dict`` tells.

Attributes of an optimizer's class, and of a class around one; optimizers within them. Plain attributes of
modules, such as the sums of a metric: of torch's own and of libraries nothing, for no step changes these.
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
from faultrun.sdk.torch.state.trees import SMALL_BYTES, bytes_in, copied, is_plain, map_tensors, same
from faultrun.sdk.worker.training_stages import told

_OF_MODULES = vars(torch.nn.Module()).keys()


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


class ModuleAttributes:
    """Numbers, words, tensors, lists and dicts in a module and its parts, as far as they have changed."""

    is_of_rank = True
    """Whether each rank has its own."""

    def __init__(self, module: torch.nn.Module) -> None:
        named = module.named_modules()
        self._parts = [pair for pair in named if not is_of_library(type(pair[1]))]
        self._first = copied(self._now())
        self._changing = {name for name, one in self._first.items() if bytes_in(one) > SMALL_BYTES}
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


def attributes_of(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Objects for what modules among these have so."""
    modules = {name: one for name, one in objects.items() if isinstance(one, torch.nn.Module)}
    found = {f"{NOT_GIVEN}attributes of {name}": ModuleAttributes(one) for name, one in modules.items()}
    return {name: one for name, one in found.items() if one.is_there}


def _moved(value: Any, there: Any) -> Any:
    if isinstance(value, torch.Tensor) and isinstance(there, torch.Tensor):
        return value.to(there.device)
    return value
