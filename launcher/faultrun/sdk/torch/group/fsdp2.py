"""``fully_shard``: its modules and optimizers stay, and their mesh is pointed at the next process groups.

By torch's private names (2.13): a mesh over all ranks resolves to the default group by name, which a new one
gets again; what is stale is the group that ``FSDPMeshInfo`` keeps. A mesh of more dimensions (HSDP) has
groups of its own, and makes them again. All of it is checked here, and refused by name where it is not there.
"""

import gc
import sys
import weakref
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from faultrun.sdk.torch.state.shards import meshes_of

_MAKES_GROUPS = ("_init_process_groups", "_layout", "_rank_map", "_mesh_dim_names", "_pg_registry")


class Sharded:
    """One root module of ``fully_shard`` over a mesh of all ranks, and others beside it (a teacher)."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._beside: weakref.WeakSet[Any] = weakref.WeakSet()
        self._names: frozenset[str] | None = None
        self._vacant: list[tuple[Any, str]] = []
        self._usual: Counter[tuple[str, int]] | None = None

    def finds_others(self) -> None:
        """Note which sharded modules there are beside it."""
        self._beside = weakref.WeakSet(sharded_beside(self._root))

    @property
    def why_not(self) -> str:
        """Why it cannot stay; "" when it can."""
        if not hasattr(self._root, "_get_fsdp_state") or not hasattr(self._root, "reset_iter_state"):
            return "fully_shard was not applied to the whole model, or this torch cannot reset it"
        meshes = meshes_of([*self._root.parameters()])
        others = meshes_of([parameter for one in self._beside for parameter in one.parameters()])
        if any(mesh.ndim > 1 and all(mesh is not own for own in meshes) for mesh in others):
            return "fully_shard on a model beside it, over a mesh with groups of its own"
        meshes = (*meshes, *others)
        if any(mesh.size() != dist.get_world_size() for mesh in meshes):
            return "fully_shard over a mesh that is not of all ranks"
        if any(mesh is not info.mesh for mesh in meshes for info in self._infos() if mesh.ndim > 1):
            return "fully_shard over a part of a mesh, beside tensor parallelism, say"
        if any(mesh.ndim > 1 and not all(hasattr(mesh, name) for name in _MAKES_GROUPS) for mesh in meshes):
            return "this torch keeps the groups of a mesh elsewhere"
        if not all(hasattr(info, "shard_process_group") for info in self._infos()):
            return "this torch keeps the groups of fully_shard elsewhere"
        if any(getattr(info, "reduce_scatter_process_group", None) is not None for info in self._infos()):
            return "fully_shard with a process group of its own for reduce-scatter"
        return ""

    @property
    def group_names(self) -> frozenset[str]:
        """Names of the process groups that ``enters`` makes again, as torch has them at present."""
        if self._names is None:
            names = (getattr(info.mesh, "_dim_group_names", ()) for info in self._infos())
            self._names = frozenset(name for each in names for name in each)
        return self._names

    def enters(self) -> None:
        """Use the groups that there are now; whatever the interrupted step had gathered is given back.

        With all ranks, where the mesh has groups of its own. RuntimeError: one is gone.
        """
        infos, self._names = self._infos(), None
        for mesh in {id(info.mesh): info.mesh for info in infos}.values():
            _point(mesh)
        for info in infos:
            info.shard_process_group = info.mesh.get_group(info.shard_mesh_dim)
            if info.replicate_mesh_dim is not None:
                info.replicate_process_group = info.mesh.get_group(info.replicate_mesh_dim)
        if self._root._get_fsdp_state()._is_root is not None:  # a newcomer has not run it yet
            self._root.reset_iter_state()
        for one in self._beside:
            if one._get_fsdp_state()._is_root:
                one.reset_iter_state()
        self._forget()

    def between_steps(self, *, has_run: bool) -> None:
        """Nothing of a step is under way: note where fully_shard keeps tensors then, and where none.

        ``has_run``: it has made what it makes in its first step.
        """
        keepers = self._keepers()
        self._vacant = [(one, name) for one in keepers for name, held in vars(one).items() if held is None]
        self._usual = self._occupied() if has_run else None

    @property
    def left(self) -> str:
        """What of an interrupted step is still there, and would be added to the repeated one; "" if none."""
        if self._usual is None:
            return ""
        return ", ".join(sorted({name for name, _ in self._occupied() - self._usual}))

    def _forget(self) -> None:
        """Drop the gradients, sums and parts that torch keeps until its own reduction has ended.

        Each group of parameters has its own, which ``reset_iter_state`` leaves there.
        """
        for one, name in self._vacant:
            if [*_tensors_in(getattr(one, name, None))]:
                setattr(one, name, None)
        for one in self._keepers():
            for held in vars(one).values():
                for tensor in _tensors_in(held):
                    tensor.grad = None

    def _occupied(self) -> Counter[tuple[str, int]]:
        """Every place with a tensor, and once more where that has a gradient: its name and whose it is."""
        return Counter(
            (f"{type(one).__name__}.{name}", number)
            for number, one in enumerate(self._keepers())
            for name, held in vars(one).items()
            for tensor in _tensors_in(held)
            for _ in range(1 if tensor.grad is None else 2)
        )

    def _keepers(self) -> list[Any]:
        """All objects of torch that may keep something of a step."""
        groups = self._groups()
        contexts = {id(group.comm_ctx): group.comm_ctx for group in groups if hasattr(group, "comm_ctx")}
        return [*contexts.values(), *groups, *(one for group in groups for one in group.fsdp_params)]

    def _infos(self) -> list[Any]:
        """Each mesh's own, once."""
        return list({id(group.mesh_info): group.mesh_info for group in self._groups()}.values())

    def _groups(self) -> list[Any]:
        """The parameters that are gathered and reduced together, of all modules."""
        return [
            group
            for module in (*self._root.modules(), *self._beside)
            if callable(getattr(module, "_get_fsdp_state", None))
            for group in groups_of(module._get_fsdp_state())
        ]


def sharded_beside(root: Any) -> list[Any]:
    """All sharded modules that live and are no part of ``root``."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None or (kind := getattr(fsdp, "FSDPModule", None)) is None:
        return []
    gc.collect()
    own = {*map(id, root.modules())}
    return [one for one in gc.get_objects() if issubclass(type(one), kind) and id(one) not in own]


def gradients_in(root: Any) -> Iterator[tuple[str, Any]]:
    """Those that ``fully_shard`` keeps for itself, in whatever module of ``root``, by name."""
    for number, one in enumerate(Sharded(root)._keepers()):
        for name, held in vars(one).items():
            for tensor in _tensors_in(held):
                if (gradient := tensor if "grad" in name else tensor.grad) is not None:
                    yield f"{type(one).__name__}.{name} {number}", gradient


def _point(mesh: Any) -> None:
    """Have it resolve to groups of living ranks."""
    if mesh.ndim == 1:
        names = [dist.group.WORLD.group_name]
    else:
        as_torch_chooses = ((None, None),) * mesh.ndim
        names = mesh._init_process_groups(
            mesh._layout, mesh._rank_map, mesh._mesh_dim_names, as_torch_chooses
        )
    mesh._dim_group_names = names
    root = mesh._get_root_mesh()
    if hasattr(root, "_pg_registry"):
        root._pg_registry = {name: dist.distributed_c10d._resolve_process_group(name) for name in names}


def _tensors_in(held: Any) -> Iterator[Any]:
    """Those that may have a gradient, in containers too."""
    if isinstance(held, torch.Tensor):
        if held.is_leaf:
            yield held
    elif isinstance(held, dict | list | tuple | set | deque):
        for one in held.values() if isinstance(held, dict) else held:
            yield from _tensors_in(one)


def groups_of(state: Any) -> list[Any]:
    """The parameter groups of one module's state; torch had one of them, and has several."""
    if (several := getattr(state, "_fsdp_param_groups", None)) is not None:
        return list(several)
    return [] if (one := getattr(state, "_fsdp_param_group", None)) is None else [one]
