"""Which parameters are trained: in which groups of their optimizers they are, and which are frozen.

Groups are added, and parameters frozen or unfrozen, while a training runs. Both belong to a step: a parameter
is known by its name in the model, by which the group is made again in a process that has not come so far.
"""

from collections.abc import Mapping, Sequence
from operator import is_not
from typing import Any

import torch
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.state.rng import memory_at
from faultrun.sdk.torch.state.shards import is_dtensor, local_of
from faultrun.sdk.torch.state.trees import copied, is_plain, plain, same
from faultrun.sdk.worker.training_stages import told

_PIECE = 64
_LOOKED_AT, _KEPT_OF = 8, 3
"""Parameters that train of which pieces are looked at, and as many that do not; and what is kept of some."""
_FIXED = frozenset({int, float, bool, str, type(None)})

Groups = Sequence[Sequence[Mapping[str, Any]]]
"""Each optimizer's, as they were at a boundary."""


class Updated:
    """Tracks which parameters of a model train. ``wrapped``: what the script calls, if not the model."""

    def __init__(self, model: Any, optimizers: Sequence[Any], wrapped: Sequence[Any]) -> None:
        self._model, self._optimizers = model, optimizers
        self._first = [len(each.param_groups) for each in optimizers]
        ddp = [one for each in wrapped for one in each.modules() if isinstance(one, DistributedDataParallel)]
        self.ddps = ddp
        """Those that are protected."""
        named = [pair for one in ddp for pair in one.module.named_parameters()]
        self._left_out = {name: one for name, one in named if not one.requires_grad}
        self._seen: tuple[list[int], list[bool]] | None = None
        self.are_plain = False
        """Whether saves hold plain values only."""
        self._pieces: list[memoryview] = []
        self._then: list[int] = []
        self._homes: list[Any] = []
        """Where the parameters lay as the step began, and what lies there, so that no other tensor does."""
        self._with_state: list[Any] = []
        self._held: list[Any] = []
        """What optimizers keep of those parameters, kept so that no other object is taken for it."""
        self._sights: list[_Sight] = []
        self._is_anew = True
        """Whether other parameters train than those of which pieces are known."""
        self._name()
        self._dtypes = {self._names[id(one)]: one.dtype for one in self._all}
        trained = (one for each in optimizers for group in each.param_groups for one in group["params"])
        self._others = [one for one in trained if id(one) not in self._names]
        flat = any("FullyShardedDataParallel" in type(one).__name__ for one in model.modules())
        known = () if flat else (*self._all, *self._others)
        self._plain = [
            one
            for one in known
            if not (is_dtensor(one) or one.is_inference()) and one.layout == torch.strided
        ]

    def mark(self) -> tuple[Any, ...]:
        """What is another once a parameter was written to, or what an optimizer keeps: how often all were and
        where they lie, pieces of some, and what is kept of these: how often it was written to, and pieces.

        The pieces tell of a change that torch does not count (``one.data.copy_``), on a CPU.
        """
        return self._marked(self._places())

    def boundary(self) -> tuple[Any, ...]:
        """A step begins: note where the parameters lie, and keep that memory for them; the ``mark``."""
        if (places := self._places()) != self._then or self._is_anew:
            self._is_anew, self._then, self._homes = False, places, [one.data for one in self._plain]
            trained = [one for one in self._plain if one.requires_grad]
            frozen = [one for one in self._plain if not one.requires_grad]  # which the script may average
            self._with_state = _spread(trained, _KEPT_OF)
            looked_at = (*_spread(trained, _LOOKED_AT), *_spread(frozen, _LOOKED_AT))
            here = (one for one in looked_at if one.device.type == "cpu" and one.nbytes)
            self._pieces = [memory_at(one.data_ptr(), min(_PIECE, one.nbytes)) for one in here]
        return self._marked(places)

    def go_home(self) -> None:
        """Have the parameters lie where they lay as the step began: the script may have swapped them."""
        for one, home in zip(self._plain, self._homes, strict=False):
            if one.data_ptr() != home.data_ptr():
                one.data = home

    def _marked(self, places: list[int]) -> tuple[Any, ...]:
        states = [each.state.get(one) for each in self._optimizers for one in self._with_state]
        held = [one for state in states if isinstance(state, dict) for one in state.values()]
        if len(held) != len(self._held) or any(map(is_not, held, self._held)):
            self._held, self._sights = held, [*map(_Sight, held)]
        pieces = [*map(bytes, self._pieces)] if places == self._then else []
        kept = [one.now() for one in self._sights]
        return sum([one._version for one in self._plain]), places, pieces, kept

    def _places(self) -> list[int]:
        return [one.data_ptr() for one in self._plain]

    def tell_what_is_anew(self, ranks: int) -> None:
        """What a DistributedDataParallel has that no save holds, once a training goes on."""
        hooks = [one for ddp in self.ddps for one in ddp._comm_hooks]
        for hook, state in hooks:
            if state is not None and not isinstance(state, ProcessGroup):
                name = getattr(hook, "__name__", type(hook).__name__)
                told(f"the communication hook {name} begins anew: its {type(state).__name__} is in no save")
        if self.ddps and ranks > 2 and not hooks:  # two numbers have one sum
            told(
                "DistributedDataParallel arranges its buckets anew in the second step: the gradients of the"
                " first may be summed up in another order than before, which changes last bits"
            )

    def others(self) -> list[Any]:
        """What is updated and not the model's, such as a criterion's parameters: where it is."""
        return [local_of(one.detach()) for one in self._others]

    def put_others(self, saved: Sequence[Any]) -> None:
        """Have these values there. An earlier version has saved none."""
        for one, values in zip(self.others(), saved, strict=False):
            one.copy_(values)

    def groups(self) -> list[list[dict[str, Any]]]:
        """Each optimizer's, with copies of hyperparameters: a tensor or a list may be written into.

        FaultrunError: there is one that no save can hold.
        """
        return [
            [{key: self._kept(each, key, one) for key, one in group.items()} for group in each.param_groups]
            for each in self._optimizers
        ]

    def _kept(self, optimizer: Any, name: str, value: Any) -> Any:
        if name in ("params", "param_names") or _is_fixed(value):
            return value
        if is_plain(value):
            return copied(plain(value))
        if self.are_plain:
            raise _not_saved(optimizer, name, value)
        return value

    def now(self) -> list[bool]:
        """Whether each of the model's parameters is trained, and not frozen."""
        return [one.requires_grad for one in self._all]

    def look(self, groups: Groups, trained: list[bool]) -> None:
        """A step has ended so. FaultrunError: what was added or unfrozen in it could not come back."""
        if (seen := ([*map(len, groups)], trained)) != self._seen:
            self._seen, self._is_anew = seen, True
            self._check()
            if self.are_plain:
                self._check_states()

    def have_changed(self, groups: Groups) -> bool:
        """Whether hyperparameters have, since they were ``groups``; numbers on a device are not looked at."""
        then = [group for each in groups for group in each]
        now = [group for one in self._optimizers for group in one.param_groups]
        return len(then) != len(now) or any(map(_differ, then, now))

    def told(self, groups: Groups, trained: Sequence[bool]) -> dict[str, Any]:
        """What a save holds of a boundary, by name ("" for what has none), as ``put`` takes it."""
        return {
            "trained": dict(zip(self._names.values(), trained, strict=False)),
            "groups": [[self._named(group["params"]) for group in each] for each in groups],
            "cast": {
                name: str(one.dtype)[6:]
                for name, one in zip(self._names.values(), self._all, strict=True)
                if one.dtype != self._dtypes.get(name, one.dtype)
            },
        }

    def cast(self, told: Mapping[str, Any]) -> None:
        """Have the types of parameters that a step had cast, before they are loaded."""
        for name, dtype in told.get("cast", {}).items():
            parameter = self._model.get_parameter(name)
            parameter.data = parameter.data.to(getattr(torch, dtype))

    def put(self, told: Mapping[str, Any], saved: Sequence[Any]) -> None:
        """Have the groups of ``saved``, the optimizers' states, and freeze what was frozen then."""
        for optimizer, names, state in zip(self._optimizers, told["groups"], saved, strict=True):
            known = [*map(sorted, names)]
            still = [one for one in optimizer.param_groups if sorted(self._named(one["params"])) in known]
            if len(still) == len(names) < len(optimizer.param_groups):
                optimizer.param_groups[:] = still  # the script had taken the others out
            there = len(optimizer.param_groups)
            for each, group in [*zip(names, state["param_groups"], strict=True)][there:]:
                params: list[Any] = [self._model.get_parameter(name) for name in each]
                if "param_names" in group:
                    params = [*zip(group["param_names"], params, strict=True)]
                optimizer.add_param_group({**group, "params": params})
        _freeze(self._all, [told["trained"].get(name) for name in self._names.values()])
        self._check()

    def in_order(self, told: Mapping[str, Any], saved: Sequence[Any]) -> list[Any]:
        """The optimizers' states ``saved``, with what is kept of a parameter under its number here.

        The order of a group may come from a set, and is another in each process.
        """
        return [
            _renumbered(state, names, [self._named(group["params"]) for group in optimizer.param_groups])
            for optimizer, names, state in zip(self._optimizers, told["groups"], saved, strict=True)
        ]

    def put_back(self, groups: Groups, trained: Sequence[bool]) -> None:
        """Let go of what was added since that boundary, and have its hyperparameters, and frozen what was."""
        for optimizer, kept in zip(self._optimizers, groups, strict=True):
            for group in optimizer.param_groups[len(kept) :]:
                for parameter in group["params"]:
                    optimizer.state.pop(parameter, None)
            del optimizer.param_groups[len(kept) :]
            for group, then in zip(optimizer.param_groups, kept, strict=True):
                for key, one in then.items():
                    if isinstance(one, torch.Tensor) and isinstance(group.get(key), torch.Tensor):
                        group[key].copy_(one)  # a scheduler may write into it
                    elif key != "params":
                        group[key] = one if callable(one) else copied(one)
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

    def _check_states(self) -> None:
        for optimizer in self._optimizers:
            for kept in optimizer.state.values():
                for name, one in kept.items() if isinstance(kept, Mapping) else ():
                    if not isinstance(one, torch.Tensor) and not is_plain(one):
                        raise _not_saved(optimizer, name, one)

    def _name(self) -> None:
        named = [*self._model.named_parameters()]
        self._names, self._all = {id(one): name for name, one in named}, [one for _, one in named]


def _spread(all_of_them: Sequence[Any], most: int) -> list[Any]:
    """The first, the last, and what lies evenly between."""
    last = len(all_of_them) - 1
    return [
        all_of_them[at] for at in sorted({round(last * n / (most - 1)) for n in range(most)}) if last >= 0
    ]


def _renumbered(state: Mapping[str, Any], then: list[list[str]], now: list[list[str]]) -> Mapping[str, Any]:
    """The state of groups with the names ``then`` as of those ``now``; as it is, where they are others."""
    before, here = _in_one_list(then), _in_one_list(now)
    if before == here or sorted(before) != sorted(here):
        return state
    numbers = [before.index(one) for one in here]
    kept = {key: one for key, one in state["state"].items() if not isinstance(key, int)}
    for number, old in enumerate(numbers):
        if old in state["state"]:
            kept[number] = state["state"][old]
    saved, groups, first = state["param_groups"], [], 0
    called = [name for group in saved for name in group.get("param_names", group["params"])]
    for place, names in enumerate(now):
        alike = (each for each, its in enumerate(then) if sorted(its) == sorted(names))
        its = range(first, first := first + len(names))
        group = {**saved[next(alike, place)], "params": [*its]}
        if "param_names" in group:
            group["param_names"] = [called[numbers[one]] for one in its]
        groups.append(group)
    return {**state, "state": kept, "param_groups": groups}


def _in_one_list(groups: list[list[str]]) -> list[tuple[str, int]]:
    """All names in their order; those without one are told apart by their number among these."""
    names = [name for group in groups for name in group]
    return [(name, names[:place].count("") if not name else 0) for place, name in enumerate(names)]


class _Sight:
    """What is another once an object was written to: of a number or word itself."""

    def __init__(self, one: Any) -> None:
        self._one = one
        is_tensor = isinstance(one, torch.Tensor)
        self._counts = is_tensor and not one.is_inference()
        self._is_strided = type(one) is torch.Tensor and one.layout == torch.strided
        self._fixed = one if not is_tensor and _is_fixed(one) else None
        self._place, self._piece = 0, memoryview(b"")

    def now(self) -> tuple[Any, ...]:
        one = self._one
        if self._is_strided and (place := one.data_ptr()) != self._place:
            size = min(_PIECE, one.nbytes) if one.is_cpu else 0
            self._place, self._piece = place, memory_at(place, size) if size else memoryview(b"")
        return one._version if self._counts else self._fixed, bytes(self._piece)


def _is_fixed(value: Any) -> bool:
    """Whether it cannot be written to."""
    kind = type(value)
    return kind in _FIXED or (kind is tuple and all(type(one) in _FIXED for one in value))


def names_differing(then: Groups, now: Groups) -> set[str]:
    """Hyperparameters that are another, each with the place of its group."""
    return {
        f"{number}.{place}.{key}"
        for number, groups in enumerate(now)
        for place, group in enumerate(groups)
        for key, one in group.items()
        if key != "params" and not same(_then(then, number, place, key), one, _on_host)
    }


def _then(groups: Groups, number: int, place: int, key: str) -> Any:
    return groups[number][place].get(key) if place < len(groups[number]) else None


def _not_saved(optimizer: Any, name: str, value: Any) -> FaultrunError:
    because = f"{name} is a {type(value).__name__}, which torch.load(weights_only=True) does not read"
    hint = "let it be a number, a word, a tensor, or a list or dict of these"
    return FaultrunError(f"{type(optimizer).__name__} cannot be saved", because=because, hint=hint)


def _differ(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    if then.keys() != now.keys():
        return True
    for key, one in then.items():
        live = now[key]
        if one is not live and key != "params" and not same(one, live, _on_host):
            return True
    return False


def _on_host(left: Any, right: Any) -> bool:
    return left.device.type != "cpu" or bool(torch.equal(left, right))


def _freeze(parameters: Sequence[Any], trained: Sequence[bool | None]) -> None:
    for parameter, flag in zip(parameters, trained, strict=True):
        if flag is not None and parameter.requires_grad != flag:
            parameter.requires_grad_(flag)
