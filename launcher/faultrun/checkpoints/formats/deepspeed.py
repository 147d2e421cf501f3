"""DeepSpeed's folder of one save: ``<dir>/<tag>/``, ``tag`` being ``global_stepN`` by default.

====================================================  =======================================================
``mp_rank_MM_model_states.pt``                        the module, and all counts; by the first of each MM
``zero_pp_rank_D_mp_rank_MM_model_states.pt``         ZeRO 3: the module's part of each rank
``[bf16_]zero_pp_rank_D_mp_rank_MM_optim_states.pt``  ZeRO 1 to 3: the optimizer's part of each rank
``layer_LL[-model_MM]-model_states.pt``               a pipeline's layers
``[layer_L_]expert_E_mp_rank_MM_model_states.pt``     experts, and ``expp_rank_E_mp_rank_MM_optim_states.pt``
====================================================  =======================================================

``<dir>/latest`` names the newest tag. It proves nothing: rank 0 writes it as soon as its own files are
there. Every file of the grid must be: the module's files tell ``dp_world_size``, the optimizer's in how
many parts they are cut (``partition_count``), and the names how many model parallel ranks there were.
A part is of no use in another world ("Automatic adjustment of ZeRO's optimizer state partitioning ...
is not currently supported"); without ZeRO and model parallelism every rank loads the one file.

Source: ``runtime/engine.py``, ``runtime/zero/stage_1_and_2.py``, ``stage3.py``, ``runtime/pipe/module.py``
of DeepSpeed 0.19.8.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from faultrun.checkpoints.format import Claim, Foreign, Listing, Look, Unreadable
from faultrun.checkpoints.formats.torch.pickle_reader import TooLong
from faultrun.checkpoints.formats.torch.pickle_values import Table, Value
from faultrun.checkpoints.formats.torch.saved_file import TORCH_FILE, peek_torch
from faultrun.checkpoints.names import base_name, claim_directory, shown, with_progress
from faultrun.checkpoints.reading import names_in, within
from faultrun.model.checkpoint import Depth, Entry, Verdict

_PART = re.compile(
    r"(?:(?P<prefix>(?:bf16_)?zero)_pp_rank_(?P<dp>\d{1,6})_)?mp_rank_(?P<mp>\d{2,5})_(?P<what>model|optim)_states\.pt"
)
_LAYER = re.compile(r"(?P<layer>layer_\d{2,5})(?:-model_(?P<mp>\d{2,5}))?-model_states\.pt")
_EXPERT = re.compile(
    r"(?:layer_\d+_)?expert_\d+_mp_rank_\d+_model_states\.pt|expp_rank_\d+_mp_rank_\d+_optim_states\.pt"
)
_MOST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What one module's file says. ``zero``: the optimizer is elsewhere."""

    global_steps: int | None
    dp_world_size: int | None
    grid: int | None
    zero: bool


class DeepSpeed:
    """The format ``deepspeed``; see the module's text."""

    name = "deepspeed"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim the directory when files of that grid are in it, and no parameters by name."""
        if (members := members_of(listing.files)) and "zero" not in listing.directories:
            yield replace(claim_directory(listing, tuple(members)), rank=None)

    def read(self, entry: Entry) -> Entry:
        """Steps, epoch and world size from the first of the module's files."""
        names = members_of(names_in(entry.path))
        if not (first := next(iter(_model_parts(names)), "")):
            return entry
        table = _peeked(entry.path, first)
        entry = with_progress(entry, table.items())
        told = _told(table)
        steps = entry.global_step if told.global_steps is None else told.global_steps
        return replace(entry, global_step=steps, world_size=_world_size(names, told))

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Look for every file of the grid, then into each. May raise Unreadable, with the name."""
        names = members_of(names_in(entry.path))
        same_world = [one for one in look.siblings if one.world_size == entry.world_size]
        missing = _missing(entry.path, names) or _missing_beside(same_world, names)
        if missing:
            return Verdict(whole=False, why=missing, depth=Depth.NAME, provisional=True)
        proved = [verified_inside(entry, name, look) for name in names]
        depth = Depth.CHECKSUM if all(proved) else Depth.STRUCTURE
        why = f"{len(names)} files of every rank, all complete"
        return Verdict(whole=True, why=why, depth=depth, provisional=not look.siblings)


DEEPSPEED = DeepSpeed()


def members_of(names: Iterable[str]) -> list[str]:
    """Which of a directory's files are DeepSpeed's, sorted."""
    return sorted(name for name in names if any(one.fullmatch(name) for one in (_PART, _LAYER, _EXPERT)))


def verified_inside(entry: Entry, name: str, look: Look) -> bool:
    """Whether every byte of one file was checked. Raises Unreadable, with its name, for a damaged one."""
    with within(name):
        return TORCH_FILE.verify(replace(entry, path=f"{entry.path}/{name}"), look).depth is Depth.CHECKSUM


def _model_parts(names: Iterable[str]) -> list[str]:
    return [name for name in names if (found := _PART.fullmatch(name)) and found["what"] == "model"]


def peeked(path: str, name: str) -> Value:
    """What ``torch.save`` was given for one file, empty if it is too long to tell. Raises Unreadable."""
    try:
        return peek_torch(f"{path}/{name}")
    except TooLong:
        return Table()
    except Unreadable as damaged:
        raise Unreadable(f"its {shown(name)}: {damaged.why}") from damaged


def _peeked(path: str, name: str) -> Table:
    if not isinstance((value := peeked(path, name)), Table):
        raise Foreign(f"its {shown(name)} holds no dict")
    return value


def _told(table: Table) -> _Told:
    dimensions = table.get("checkpoint_parallel_dimensions")
    grid = None
    if isinstance(dimensions, Table):
        pipe = _count(dimensions.get("pp_degree"))
        tensor = _count(dimensions.get("tp_degree"))
        grid = pipe * tensor if pipe and tensor else None
    global_steps = _count(table.get("global_steps"))
    dp_world_size = _count(table.get("dp_world_size"))
    zero = table.get("optimizer") is None and table.get("param_shapes") is not None
    return _Told(global_steps=global_steps, dp_world_size=dp_world_size, grid=grid, zero=zero)


def _world_size(names: Collection[str], told: _Told) -> int | None:
    """How many ranks must load it; None where any number can."""
    grid = told.grid or 1 + max((_mp_rank(name) for name in _model_parts(names)), default=0)
    named = any(name.startswith(("zero_", "bf16_zero_", "expp_")) for name in names)
    sharded = told.zero or grid > 1 or named
    return told.dp_world_size * grid if sharded and told.dp_world_size else None


def _missing(path: str, names: Collection[str]) -> str:
    """The first file of the grid that is not there, or does not belong to this save."""
    if not (models := _model_parts(names)):
        return "it has no mp_rank_00_model_states.pt, nor another file of the model"
    tables = {name: _told(_peeked(path, name)) for name in models}
    first = tables[models[0]]
    for name, told in tables.items():
        if told.global_steps != first.global_steps:
            return f"its {name} is of step {told.global_steps}, its {models[0]} of step {first.global_steps}"
    grid = first.grid or 1 + max(map(_mp_rank, names))
    optims = [name for name in names if (found := _PART.fullmatch(name)) and found["what"] == "optim"]
    placed = [int(found["dp"] or 0) for name in names if (found := _PART.fullmatch(name))]
    parts = _partitions(path, optims) or first.dp_world_size or 1 + max(placed, default=0)
    if grid * parts > _MOST_RANKS:
        return f"its files tell of {grid} x {parts} ranks"
    there = set(names)
    for wanted in _grid_of(models, optims, grid, parts, zero=first.zero):
        if wanted not in there:
            return f"it has no {wanted}, and was saved by {grid * parts} ranks"
    return _missing_layer(there)


def _grid_of(models: list[str], optims: list[str], grid: int, parts: int, *, zero: bool) -> Iterator[str]:
    each = models[0].startswith("zero_")
    prefix = "bf16_zero" if any(name.startswith("bf16_") for name in optims) else "zero"
    for mp in range(grid):
        if not each:
            yield f"mp_rank_{mp:02d}_model_states.pt"
        for dp in range(parts):
            if each:
                yield f"zero_pp_rank_{dp}_mp_rank_{mp:02d}_model_states.pt"
            if zero or optims:
                yield f"{prefix}_pp_rank_{dp}_mp_rank_{mp:02d}_optim_states.pt"


def _partitions(path: str, optims: list[str]) -> int | None:
    """Into how many parts the optimizer was cut, as the first part tells; a list tells it for each group."""
    if not optims:
        return None
    state = _peeked(path, optims[0]).get("optimizer_state_dict")
    told = state.get("partition_count") if isinstance(state, Table) else None
    counts = [_count(one) for one in told] if isinstance(told, list) else [_count(told)]
    return max((one for one in counts if one), default=None)


def _missing_layer(there: Collection[str]) -> str:
    """Every layer is cut into as many files as any other."""
    found = [one for one in map(_LAYER.fullmatch, there) if one and one["mp"]]
    slices = {one["mp"] for one in found}
    for layer in sorted({one["layer"] for one in found}):
        for mp in sorted(slices):
            if f"{layer}-model_{mp}-model_states.pt" not in there:
                return f"it has no {layer}-model_{mp}-model_states.pt"
    return ""


def _missing_beside(siblings: Iterable[Entry], ours: Collection[str]) -> str:
    """What another save of the same world has: a pipeline's layers are told by nothing else."""
    for sibling in siblings:
        for name in members_of(names_in(sibling.path)):
            if name not in ours:
                return f"it has no {name}, which {base_name(sibling.path)} has"
    return ""


def _mp_rank(name: str) -> int:
    found = _PART.fullmatch(name) or _LAYER.fullmatch(name)
    return int(found["mp"] or 0) if found else 0


def _count(value: Value) -> int | None:
    return value if type(value) is int and 0 < value < 1 << 53 else None
