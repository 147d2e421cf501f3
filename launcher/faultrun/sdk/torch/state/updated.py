"""Which parameters are trained: in which groups of their optimizers they are, and which are frozen.

Groups are added, and parameters frozen or unfrozen, while a training runs. Both belong to a step: a parameter
is known by its name in the model, by which the group is made again in a process that has not come so far.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from faultrun.errors import FaultrunError

Groups = Sequence[Sequence[Mapping[str, Any]]]
"""Each optimizer's, as they were at a boundary."""


class Updated:
    """Of one model and its optimizers. ``wrapped``: what the script calls, if that is not the model."""

    def __init__(self, model: Any, optimizers: Sequence[Any], wrapped: Sequence[Any]) -> None:
        self._model, self._optimizers = model, optimizers
        self._first = [len(each.param_groups) for each in optimizers]
        ddp = [one for each in wrapped for one in each.modules() if isinstance(one, DistributedDataParallel)]
        named = [pair for one in ddp for pair in one.module.named_parameters()]
        self._left_out = {name: one for name, one in named if not one.requires_grad}
        self._seen: tuple[list[int], list[bool]] | None = None
        self._name()

    def now(self) -> list[bool]:
        """Whether each of the model's parameters is trained, and not frozen."""
        return [one.requires_grad for one in self._all]

    def look(self, groups: Groups, trained: list[bool]) -> None:
        """A step has ended so. FaultrunError: what was added or unfrozen in it could not come back."""
        if (seen := ([*map(len, groups)], trained)) != self._seen:
            self._seen = seen
            self._check()

    def told(self, groups: Groups, trained: Sequence[bool]) -> dict[str, Any]:
        """What a save holds of a boundary, by name ("" for what has none), as ``put`` takes it."""
        return {
            "trained": dict(zip(self._names.values(), trained, strict=False)),
            "groups": [[self._named(group["params"]) for group in each] for each in groups],
        }

    def put(self, told: Mapping[str, Any], saved: Sequence[Any]) -> None:
        """Have the groups of ``saved``, the optimizers' states, and freeze what was frozen then."""
        for optimizer, names, state in zip(self._optimizers, told["groups"], saved, strict=True):
            there = len(optimizer.param_groups)
            for each, group in [*zip(names, state["param_groups"], strict=True)][there:]:
                params: list[Any] = [self._model.get_parameter(name) for name in each]
                if "param_names" in group:
                    params = [*zip(group["param_names"], params, strict=True)]
                optimizer.add_param_group({**group, "params": params})
        _freeze(self._all, [told["trained"].get(name) for name in self._names.values()])
        self._check()

    def put_back(self, groups: Groups, trained: Sequence[bool]) -> None:
        """Let go of what was added since that boundary, and freeze what was frozen there."""
        for optimizer, kept in zip(self._optimizers, groups, strict=True):
            for group in optimizer.param_groups[len(kept) :]:
                for parameter in group["params"]:
                    optimizer.state.pop(parameter, None)
            del optimizer.param_groups[len(kept) :]
        _freeze(self._all, trained)

    def _named(self, params: Sequence[Any]) -> list[str]:
        return [self._names.get(id(one), "") for one in params]

    def _check(self) -> None:
        self._name()
        for optimizer, first in zip(self._optimizers, self._first, strict=True):
            if not all(all(self._named(group["params"])) for group in optimizer.param_groups[first:]):
                what = "a parameter group was added that cannot be saved"
                hint = "make it a part of the model, or add it first"
                raise FaultrunError(what, because="the model has not all of it", hint=hint)
        for name in (name for name, one in self._left_out.items() if one.requires_grad):
            what = f"{name} was unfrozen, and the ranks would drift apart"
            because = "DistributedDataParallel was made while it was frozen, and sums no gradients of it"
            raise FaultrunError(what, because=because, hint="unfreeze it before, and freeze it behind that")

    def _name(self) -> None:
        named = [*self._model.named_parameters()]
        self._names, self._all = {id(one): name for name, one in named}, [one for _, one in named]


def _freeze(parameters: Sequence[Any], trained: Sequence[bool | None]) -> None:
    for parameter, flag in zip(parameters, trained, strict=True):
        if flag is not None and parameter.requires_grad != flag:
            parameter.requires_grad_(flag)
