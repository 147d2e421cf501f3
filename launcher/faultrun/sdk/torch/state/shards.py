"""The shards of a model that is spread over a device mesh (FSDP2, HSDP, tensor parallel): taken and put back.

Nothing here talks to another rank. In a saved state a ``DTensor`` is a plain dict with this rank's piece and
where it belongs, which must be the same where it is put back::

    {"local": tensor, "shape": (64, 64), "stride": (64, 1),
     "placements": "R,S0", "mesh": "2x2 dp,tp", "piece": (None, 1)}

``piece`` is this rank's place along each dimension of the mesh that cuts the tensor; replicas hold the same.

``state_dict()`` of an FSDP2 module is not asked for by another thread: its hook frees the gathered parameters
(``FSDPParamGroup._to_sharded``, torch 2.13) that the main thread may be computing with. The sharded
parameters are the ones that the optimizer holds, and stay the same objects.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from faultrun.errors import CannotNow, FaultrunError
from faultrun.sdk.torch.state.trees import map_tensors, with_values

_KEYS = frozenset({"local", "shape", "stride", "placements", "mesh", "piece"})
_EXTRA = "_extra_state"
_BY_HAND = "give protect() a state_fn that returns this rank's shard, and a Folder with replica_group"


def is_dtensor(value: Any) -> bool:
    """Whether it is spread over a mesh. Imports nothing: where torch's module is not loaded, nothing is."""
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return kind is not None and isinstance(value, kind)


def local_of(tensor: Any) -> Any:
    """This rank's piece, where it lies; a tensor that is not spread is its own piece."""
    if not is_dtensor(tensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()


def packed(state: Any) -> Any:
    """``state`` with plain dicts in place of DTensors; containers are new, tensors are where they were."""
    if "torch.distributed.tensor" not in sys.modules:
        return state
    return map_tensors(state, lambda tensor: _record(tensor) if is_dtensor(tensor) else tensor)


def unpacked(state: Any, meshes: Sequence[Any]) -> Any:
    """The opposite, on the first of ``meshes`` that fits. FaultrunError when none does."""
    if not isinstance(state, dict):
        if isinstance(state, list | tuple) and type(state) in (list, tuple):
            return type(state)(unpacked(one, meshes) for one in state)
        return state
    if state.keys() == _KEYS:
        return _restored(state, meshes)
    if any(isinstance(one, dict | list | tuple) for one in state.values()):
        return with_values(state, lambda one: unpacked(one, meshes))
    return state


def meshes_of(state: Any) -> tuple[Any, ...]:
    """The meshes of all DTensors in ``state``, each once, in order."""
    found: dict[Any, None] = {}
    map_tensors(state, lambda tensor: found.setdefault(tensor.device_mesh) if is_dtensor(tensor) else None)
    return tuple(found)


def replica_group_of(tensors: Iterable[Any], rank: int) -> tuple[int, ...]:
    """The ranks that hold the same piece of every DTensor among ``tensors``; () when there is none.

    Along a dimension of the mesh on which a tensor is replicated the ranks hold the same. Tensors that are
    not spread count as the same everywhere, as DistributedDataParallel and tensor parallelism keep them.
    """
    group: frozenset[int] | None = None
    known: dict[tuple[Any, str], frozenset[int]] = {}
    for tensor in filter(is_dtensor, tensors):
        key = tensor.device_mesh, _words(tensor.placements)
        if key not in known:
            known[key] = _same_piece(tensor)
        group = known[key] if group is None else group & known[key]
    return () if group is None else tuple(sorted(group | {rank}))


class ModuleState:
    """The state of a module of which nothing but values changes, without its hooks. Main thread at the start.

    FaultrunError for a module whose ``state_dict`` is made anew every time: it could not be read live.
    """

    def __init__(self, module: Any) -> None:
        held = module.state_dict(keep_vars=True)
        own = {id(one) for one in (*module.parameters(), *module.buffers())}
        self._extra = {
            name: module.get_submodule(name.removesuffix(_EXTRA).rstrip("."))
            for name in held
            if name.rpartition(".")[2] == _EXTRA
        }
        self._tensors = {name: one for name, one in held.items() if name not in self._extra}
        made = next((name for name, one in self._tensors.items() if id(one) not in own), None)
        if made is not None:
            raise FaultrunError(
                "this sharded model cannot be protected as it is",
                because=f"its state_dict makes {made} anew, which may need ranks that are dead",
                hint=_BY_HAND,
            )

    def read(self) -> dict[str, Any]:
        """Return the ``state_dict`` of the module, with live tensors and without hooks. Any thread."""
        extra = {name: module.get_extra_state() for name, module in self._extra.items()}
        return {**{name: one.detach() for name, one in self._tensors.items()}, **extra}

    @property
    def meshes(self) -> tuple[Any, ...]:
        """On which it is spread."""
        return meshes_of(self._tensors)

    def filled(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """``saved`` for ``load_state_dict``. FaultrunError: it is of another layout."""
        state = dict(saved)
        for name, tensor in self._tensors.items():
            record = saved.get(name)
            if is_dtensor(tensor) and record is not None:
                _check_same(name, record, tensor)
                state[name] = _restored(record, (tensor.device_mesh,))
        return state


def is_spread(module: Any) -> bool:
    """Whether a parameter or buffer of the module is a DTensor, or was before it was gathered (FSDP2)."""
    sharding = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    return any(isinstance(one, sharding) for one in module.modules()) or any(
        map(is_dtensor, (*module.parameters(), *module.buffers()))
    )


def _record(tensor: Any) -> dict[str, Any]:
    return {
        "local": local_of(tensor.detach()),
        "shape": tuple(tensor.shape),
        "stride": tuple(tensor.stride()),
        "placements": _words(tensor.placements),
        "mesh": _name_of(tensor.device_mesh),
        "piece": _piece(tensor.device_mesh, tensor.placements),
    }


def _restored(record: Mapping[str, Any], meshes: Sequence[Any]) -> Any:
    from torch.distributed.tensor import DTensor

    placements = [_placement(word) for word in record["placements"].split(",")]
    for mesh in meshes:
        if _name_of(mesh) == record["mesh"] and _piece(mesh, placements) == tuple(record["piece"]):
            size = {"shape": torch.Size(record["shape"]), "stride": tuple(record["stride"])}
            return DTensor.from_local(record["local"], mesh, placements, run_check=False, **size)
    raise _misfit("a part of the saved state", record, "no mesh like that")


def _check_same(name: str, record: Any, tensor: Any) -> None:
    here = _record(tensor)
    if not isinstance(record, dict) or record.keys() != _KEYS:
        because = "it was saved by a model that was not sharded, and here it is sharded"
        hint = "resume from a checkpoint of torch.distributed.checkpoint, which loads into any layout"
        raise CannotNow(f"the saved {name} does not fit", because=because, hint=hint)
    if any(here[key] != record[key] for key in _KEYS - {"local", "piece"}) or here["piece"] != tuple(
        record["piece"]
    ):
        raise _misfit(f"the saved shard of {name}", record, _shown(here))


def _misfit(what: str, record: Mapping[str, Any], here: str) -> CannotNow:
    return CannotNow(
        f"{what} does not fit",
        because=f"it was saved as {_shown(record)}; here is {here}",
        hint="start with the ranks and the mesh that saved it, or resume from a checkpoint of "
        "torch.distributed.checkpoint, which loads into any",
    )


def _shown(record: Mapping[str, Any]) -> str:
    piece = ",".join("*" if one is None else str(one) for one in record["piece"])
    shape = "x".join(map(str, record["shape"])) or "scalar"
    return f"piece {piece} of {shape} ({record['placements']}) on mesh {record['mesh']}"


def _same_piece(tensor: Any) -> frozenset[int]:
    """The global ranks of the mesh whose coordinates differ from ours in replicated dimensions only."""
    # Where it is not on this mesh this rank holds nothing of it.
    if (coordinate := tensor.device_mesh.get_coordinate()) is None:
        return frozenset()
    place = tuple(
        slice(None) if type(placement).__name__ == "Replicate" else at
        for at, placement in zip(coordinate, tensor.placements, strict=True)
    )
    return frozenset(tensor.device_mesh.mesh[place].reshape(-1).tolist())


def _piece(mesh: Any, placements: Sequence[Any]) -> tuple[int | None, ...]:
    coordinate = mesh.get_coordinate() or (-1,) * len(placements)
    return tuple(
        None if type(placement).__name__ == "Replicate" else at
        for at, placement in zip(coordinate, placements, strict=False)
    )


def _name_of(mesh: Any) -> str:
    names = mesh.mesh_dim_names
    return "x".join(map(str, mesh.shape)) + (f" {','.join(names)}" if names else "")


def _words(placements: Iterable[Any]) -> str:
    """``R`` replicated, ``S1`` cut along dimension 1, ``S1/2`` in strides of 2, ``Psum`` a summand."""
    return ",".join(map(_word, placements))


def _word(placement: Any) -> str:
    match type(placement).__name__:
        case "Replicate":
            return "R"
        case "Shard":
            return f"S{placement.dim}"
        case "_StridedShard":
            return f"S{placement.dim}/{placement.split_factor}"
        case "Partial":
            return f"P{placement.reduce_op}"
        case other:
            raise FaultrunError(
                "this sharded model cannot be protected as it is",
                because=f"nothing is known here of a placement {other}",
                hint=_BY_HAND,
            )


def _placement(word: str) -> Any:
    from torch.distributed.tensor import Partial, Replicate, Shard

    dim, _, strides = word[1:].partition("/")
    if word[0] == "R":
        return Replicate()
    if word[0] == "P":
        return Partial(word[1:])
    if strides:
        from torch.distributed.tensor.placement_types import _StridedShard

        return _StridedShard(int(dim), split_factor=int(strides))
    return Shard(int(dim))
