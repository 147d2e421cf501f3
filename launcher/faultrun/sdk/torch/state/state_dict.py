"""The saved state of one rank as one dict: made of live tensors and a boundary, and put back.

    {"faultrun": 1, "stage", "global_step", "epoch", "step_in_epoch", "rank", "world_size",
     "batch_ranks" (of how many ranks' batches a step is made), "model", "optimizer" (a list when there are
     several), "updated" and "others" (``updated.py``), "next_pass", "objects", "rng", "epoch_rng", "buffers"}

``buffers`` are those that ``model`` has not, or that have another shape or type than when training began.

``torch.load(weights_only=True)`` reads it as long as the objects' own states are plain. Of a DTensor it
holds this rank's piece (``shards``).
"""

import pickle
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch

from faultrun.sdk.session import Session
from faultrun.sdk.torch.group.process_group import training_group
from faultrun.sdk.torch.state.boundary import EXTRA, Boundary, Device, Objects, with_numbers
from faultrun.sdk.torch.state.buffers import Buffers, NextPass
from faultrun.sdk.torch.state.rng import Rng, rng_to_plain
from faultrun.sdk.torch.state.shards import ModuleState, meshes_of, packed, unpacked
from faultrun.sdk.torch.state.trees import map_tensors, plain
from faultrun.sdk.torch.state.updated import Updated
from faultrun.sdk.worker.save_files import Position

_SCHEMA = 1


@dataclass(slots=True, kw_only=True)
class Parts:
    """What is protected. ``model`` is the user's own module, out of its wrappers; ``wrapped``: in them.

    ``shards`` is its state where it is spread over a mesh, else None. ``stage``: the how many-th training of
    the script it is. ``lasting``: gradients that were there as a step ended, by number of the parameter.
    ``watched``: modules on whose forward pass a hook is put; in a compiled model it would be compiled too.
    """

    model: Any
    optimizers: tuple[Any, ...]
    objects: Objects
    device: Device
    watched: tuple[Any, ...] = ()
    shards: ModuleState | None = None
    wrapped: tuple[Any, ...] = ()
    stage: int = 1
    lasting: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    buffers: Buffers = field(init=False)
    updated: Updated = field(init=False)
    next_pass: NextPass = field(init=False)

    def __post_init__(self) -> None:
        self.buffers = Buffers(self.model)
        self.updated = Updated(self.model, self.optimizers, self.wrapped)
        if (extra := ExtraState(self.model)).is_there:
            self.objects.add(EXTRA, extra)
        self.next_pass = NextPass(self._ddps)

    def note_gradients(self) -> None:
        """A step has ended: gradients that are there now may stay for all steps, as views of a buffer do."""
        grads = ((id(one), one.grad) for one in self._trained() if one.grad is not None)
        self.lasting = {number: weakref.ref(grad) for number, grad in grads}

    def forget_gradients(self) -> None:
        """Drop the gradients of the model and of all else that is updated: a step is taken back.

        Those that outlive steps are emptied where they are.
        """
        for parameter in self._trained():
            noted = self.lasting.get(id(parameter), lambda: None)()
            if noted is not None and noted is parameter.grad:
                noted.detach().zero_()
            else:
                parameter.grad = None

    def _ddps(self) -> list[Any]:
        """Each DistributedDataParallel of the script, as far as it is known."""
        group = training_group()
        return self.updated.ddps if group is None else group.ddps

    def _trained(self) -> Iterator[Any]:
        updated = (group["params"] for one in self.optimizers for group in one.param_groups)
        return chain(self.model.parameters(), *updated)


class ExtraState:
    """What modules keep that is no tensor (``get_extra_state``), by its name in the model's state."""

    def __init__(self, model: Any) -> None:
        empty = torch.nn.Module.get_extra_state
        named = model.named_modules(remove_duplicate=False)
        self._modules = {
            f"{path}{'.' if path else ''}_extra_state": one
            for path, one in named
            if type(one).get_extra_state is not empty
        }

    @property
    def is_there(self) -> bool:
        """Whether any module keeps something."""
        return bool(self._modules)

    def state_dict(self) -> dict[str, Any]:
        """State as it is now."""
        return {name: one.get_extra_state() for name, one in self._modules.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back the state as it was."""
        for name, one in self._modules.items():
            one.set_extra_state(state[name])


def unwrapped(model: Any) -> Any:
    """The module that the user wrote: DistributedDataParallel, ``torch.compile`` and Fabric wrap it."""
    while True:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            model = model.module
        elif isinstance(getattr(model, "_original_module", None), torch.nn.Module):
            model = model._original_module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def unwrapped_optimizer(optimizer: Any) -> Any:
    """The optimizer that updates the parameters: accelerate, Lightning and Fabric wrap it.

    A class that only passes on has no state of its own; one that has (a lookahead, say) is taken as it is.
    """
    while True:
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, torch.optim.Optimizer) or inner is optimizer:
            return optimizer
        if optimizer.state_dict().keys() != inner.state_dict().keys():
            return optimizer
        optimizer = inner


def is_compiled(model: Any) -> bool:
    """Whether ``torch.compile`` wraps the module, or a module around it."""
    while model is not None:
        if hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None:
            return True
        model = getattr(model, "module", None)
    return False


def assemble(
    parts: Parts, boundary: Boundary, newest: Boundary, rng: tuple[Rng, Rng | None], session: Session
) -> dict[str, Any]:
    """The state at ``boundary``, on its device; ``newest`` is how far the program is ahead of it.

    ``rng``: the random numbers at the boundary, and those at the beginning of its epoch.
    """
    position = boundary.position
    optimizers = [
        _optimizer_state(optimizer, boundary, newest, number)
        for number, optimizer in enumerate(parts.optimizers)
    ]
    model = parts.model.state_dict() if parts.shards is None else packed(parts.shards.read())
    buffers = parts.buffers.copies if boundary.buffers is None else boundary.buffers
    model.update(boundary.objects.get(EXTRA, {}))
    for name in parts.buffers.now().keys() - buffers.keys():
        model.pop(name, None)  # the step under way has made it
    unlike = {}
    for name, kept in buffers.items():
        if (live := model.get(name)) is not None:
            model[name] = kept if isinstance(live, torch.Tensor) else {**live, "local": kept}
        if live is None or parts.buffers.is_remade(name, kept):
            unlike[name] = kept
    return {
        "faultrun": _SCHEMA,
        "stage": parts.stage,
        "global_step": position.step,
        "epoch": position.epoch,
        "step_in_epoch": position.step_in_epoch,
        "rank": session.rank,
        "world_size": session.world_size,
        "batch_ranks": session.batch_ranks,
        "model": model,
        "buffers": unlike,
        "optimizer": optimizers[0] if len(optimizers) == 1 else optimizers,
        "updated": parts.updated.told(boundary.groups, boundary.trained),
        "others": parts.updated.others(),
        "next_pass": boundary.next_pass,
        "objects": {name: plain(one) for name, one in boundary.objects.items() if name != EXTRA},
        "rng": rng_to_plain(rng[0]),
        "epoch_rng": None if rng[1] is None else rng_to_plain(rng[1]),
    }


def batches_done(state: Mapping[str, Any], ranks: int) -> int | None:
    """How many batches of its epoch ``state`` has done, in batches of ``ranks`` ranks: as many samples."""
    done = state["step_in_epoch"]
    saved = state.get("batch_ranks", state["world_size"])
    return None if done is None else done * saved // ranks


def emptied(state: Any) -> Any:
    """Replace all tensors of ``state`` by empty ones: what is left is what pickling could stumble over."""
    return map_tensors(state, lambda tensor: torch.empty(0, dtype=tensor.dtype))


def read_state(path: str) -> Any:
    """What ``torch.load`` finds in the file ``path``, with nothing executed; None when it refuses.

    OSError when the file cannot be read.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, IsADirectoryError):
        return None  # the script's own format, which may hold classes of the script's own


def is_ours(state: Any) -> bool:
    """Whether a loaded object is what ``assemble`` makes."""
    return isinstance(state, dict) and state.get("faultrun") == _SCHEMA


def load_into(parts: Parts, state: Mapping[str, Any]) -> Position:
    """Put the state back, random numbers excepted. Main thread.

    RuntimeError, KeyError, ValueError or FaultrunError: it does not fit.
    """
    parts.objects.check(state["objects"])
    load_some(parts, state)
    return Position(state["global_step"], state["epoch"], state["step_in_epoch"])


def load_some(parts: Parts, state: Mapping[str, Any]) -> None:
    """Put the state back, of objects those that are in it. Main thread; raises as ``load_into`` does."""
    shards = parts.shards
    parts.buffers.put(state.get("buffers", {}), persistent=state["model"])
    parts.updated.cast(state.get("updated", {}))
    parts.next_pass.put(state.get("next_pass", ()))
    parts.model.load_state_dict(state["model"] if shards is None else shards.filled(state["model"]))
    saved = state["optimizer"] if len(parts.optimizers) != 1 else [state["optimizer"]]
    if "updated" in state:
        parts.updated.put(state["updated"], saved)
        parts.updated.put_others(state.get("others", ()))
        saved = parts.updated.in_order(state["updated"], saved)
    meshes = () if shards is None else shards.meshes
    for optimizer, one in zip(parts.optimizers, saved, strict=True):
        load_optimizer(optimizer, {**one, "state": _spread_again(optimizer, one["state"], meshes)})
    objects = parts.objects
    objects.load_some(
        {
            name: unpacked(with_numbers(one), (*objects.meshes(name), *meshes))
            for name, one in state["objects"].items()
        }
    )


def _optimizer_state(optimizer: Any, boundary: Boundary, newest: Boundary, number: int) -> dict[str, Any]:
    state: dict[str, Any] = packed(optimizer.state_dict())
    groups = [dict(group) for group in state["param_groups"][: len(boundary.groups[number])]]
    for group, captured in zip(groups, boundary.groups[number], strict=True):
        group.update({key: one for key, one in captured.items() if key != "params"})
    ahead = newest.updates[number] - boundary.updates[number]
    count = sum(len(group["params"]) for group in groups)  # what was added since has no part in it
    each = {key: plain(one) for key, one in state["state"].items() if not (_is_number(key) and key >= count)}
    if ahead:
        each = {key: _steps_back(one, ahead) for key, one in each.items()}
    return {"state": each, "param_groups": groups}


def _spread_again(optimizer: Any, state: Mapping[Any, Any], meshes: tuple[Any, ...]) -> dict[Any, Any]:
    """The state of each parameter, by its number, on the parameter's own mesh if it has one."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    own = dict(enumerate(map(meshes_of, parameters)))
    return {number: unpacked(one, (*own.get(number, ()), *meshes)) for number, one in state.items()}


def load_optimizer(optimizer: Any, state: Mapping[str, Any]) -> None:
    """Load it into the groups that there are, which a schedule may hold, with the types that were saved.

    torch makes new groups, and each tensor one of its parameter's type.
    """
    held, groups = optimizer.param_groups, [*optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, new in zip(groups, optimizer.param_groups, strict=True):
        group.clear()
        group.update(new)
    held[:], optimizer.param_groups = groups, held
    parameters = [parameter for group in groups for parameter in group["params"]]
    for number, saved in state["state"].items():
        live = optimizer.state[parameters[number]] if _is_number(number) else {}
        for key, one in saved.items() if isinstance(saved, Mapping) else ():
            now = live.get(key)
            if isinstance(one, torch.Tensor) and isinstance(now, torch.Tensor) and one.dtype != now.dtype:
                live[key] = one.to(now.device, copy=True)


def _is_number(key: Any) -> bool:
    """Whether an optimizer keeps something of a parameter under it, and not under a word of its own."""
    return isinstance(key, int)


def _steps_back(one: Any, ahead: int) -> Any:
    """Step counts are kept on the CPU, which is ``ahead`` of the device that keeps the rest."""
    if not isinstance(one, Mapping):
        return one
    step = one.get("step")
    if isinstance(step, torch.Tensor) and not step.is_cuda:
        return {**one, "step": step - ahead}
    return dict(one)
