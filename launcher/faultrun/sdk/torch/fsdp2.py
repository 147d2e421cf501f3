"""``fully_shard``: its modules and optimizers stay, and their mesh is pointed at the next process group.

By torch's private names (2.13): a mesh over all ranks resolves to the default group by name, which a new one
gets again; what is stale is the group that ``FSDPMeshInfo`` keeps. Both are checked here and refused by name
where they are not there.
"""

from typing import Any

import torch.distributed as dist

from faultrun.sdk.torch.shards import meshes_of


class Sharded:
    """One root module of ``fully_shard`` over a mesh of one dimension."""

    def __init__(self, root: Any) -> None:
        self._root = root

    @property
    def why_not(self) -> str:
        """Why it cannot stay; "" when it can."""
        if not hasattr(self._root, "_get_fsdp_state") or not hasattr(self._root, "reset_iter_state"):
            return "fully_shard was not applied to the whole model, or this torch cannot reset it"
        meshes = meshes_of([*self._root.parameters()])
        if any(mesh.ndim != 1 for mesh in meshes):
            return "fully_shard over a mesh of more than one dimension"
        if any(mesh.size() != dist.get_world_size() for mesh in meshes):
            return "fully_shard over a mesh that is not of all ranks"
        if not all(hasattr(info, "shard_process_group") for info in self._infos()):
            return "this torch keeps the groups of fully_shard elsewhere"
        if any(getattr(info, "reduce_scatter_process_group", None) is not None for info in self._infos()):
            return "fully_shard with a process group of its own for reduce-scatter"
        return ""

    def enters(self) -> None:
        """Use the group that there is now; whatever the interrupted step had gathered is given back."""
        group = dist.group.WORLD
        for info in self._infos():
            mesh = info.mesh
            mesh._dim_group_names = [group.group_name]
            root = mesh._get_root_mesh()
            if hasattr(root, "_pg_registry"):
                root._pg_registry = dict.fromkeys(root._pg_registry, group)
            info.shard_process_group = group
        if self._root._get_fsdp_state()._is_root is not None:  # a newcomer has not run it yet
            self._root.reset_iter_state()

    def _infos(self) -> list[Any]:
        """Each mesh's own, once."""
        found = {
            id(group.mesh_info): group.mesh_info
            for module in self._root.modules()
            if callable(getattr(module, "_get_fsdp_state", None))
            for group in _groups_of(module._get_fsdp_state())
        }
        return list(found.values())


def _groups_of(state: Any) -> list[Any]:
    """The parameter groups of one module's state; torch had one of them, and has several."""
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return list(several)
    one = getattr(state, "_fsdp_param_group", None)
    return [] if one is None else [one]
