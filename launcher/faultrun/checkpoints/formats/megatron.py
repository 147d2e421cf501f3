"""Megatron-LM's folder of one save, ``<save>/iter_0000010/``, in its two layouts.

torch_dist   ``common.pt`` (counts, arguments), the shards and ``.metadata`` of ``torch/dcp``, and last
             ``metadata.json``. It loads into another number of ranks.
torch        ``mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt``, with ``distrib_optim.pt`` where the optimizer is
             distributed; T, P and E count tensor, pipeline and expert parallel ranks.

``<save>/latest_checkpointed_iteration.txt`` holds the newest iteration, or ``release`` for a folder of
that name: a model to begin from, which is no state of training. Sources: ``core/dist_checkpointing`` of
megatron_core 0.16.1; ``training/checkpointing.py`` of Megatron-LM for the layout torch.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from faultrun.checkpoints.format import Claim, Listing, Look, Unreadable
from faultrun.checkpoints.formats.deepspeed import peeked, verified_inside
from faultrun.checkpoints.formats.torch.dcp import METADATA, TORCH_DCP
from faultrun.checkpoints.formats.torch.pickle_values import Instance, Table, Value
from faultrun.checkpoints.names import base_name, claim_directory
from faultrun.checkpoints.reading import names_in, read_json, within
from faultrun.model.checkpoint import Depth, Entry, Verdict

_ITERATION = re.compile(r"iter_(\d{7,15})")
_COMMON, _LAST = "common.pt", "metadata.json"
_DIST = re.compile(r"\.metadata|common\.pt|metadata\.json|__\d+_\d+\.distcp")
_PLACE = re.compile(r"mp_rank_(\d{2})(?:_(\d{3}))?(?:_(\d{3}))?")
_MODEL, _OPTIMIZER = "model_optim_rng.pt", "distrib_optim.pt"
_MOST_PLACES = 1 << 17
_MOST_JSON_BYTES = 1 << 20


class Megatron:
    """The format ``megatron``; see the module's text."""

    name = "megatron"

    def claim(self, listing: Listing) -> Iterator[Claim]:
        """Claim a folder of one iteration, and one of a converted model for what it is."""
        name = base_name(listing.path)
        places = tuple(sorted(filter(_PLACE.fullmatch, listing.directories)))
        dist = tuple(sorted(filter(_DIST.fullmatch, listing.files)))
        ours = places or _COMMON in dist or _LAST in dist
        if not ours or not (_ITERATION.fullmatch(name) or name == "release"):
            return
        unfinished = ""
        if name == "release":
            unfinished = "it is a converted model to begin from, no state of training"
        elif not places and _LAST not in dist:
            unfinished = f"it has no {_LAST}, which is written last: the save was not finished"
        elif not places and METADATA not in dist:
            unfinished = f"it has no {METADATA}, which lists the shards"
        claim = claim_directory(listing, () if places else dist)
        yield replace(claim, rank=None, parts=places, unfinished=unfinished)

    def read(self, entry: Entry) -> Entry:
        """The iteration; of the layout torch the world size, too, from the arguments saved with it."""
        places = list(filter(_PLACE.fullmatch, names_in(entry.path)))
        told = _peeked(entry.path, f"{places[0]}/{_MODEL}" if places else _COMMON)
        iteration = _count(told.get("iteration"))
        world = _count(_arguments(told).get("world_size")) if places else None
        step = entry.global_step if iteration is None else iteration
        return replace(entry, global_step=step, world_size=world)

    def verify(self, entry: Entry, look: Look) -> Verdict:
        """Look for every part, then into each. Raises Unreadable, with its name, for a damaged one."""
        names = names_in(entry.path)
        if places := list(filter(_PLACE.fullmatch, names)):
            return _verify_places(entry, places, look)
        if _COMMON not in names:
            return Verdict(whole=False, why=f"it has no {_COMMON}", depth=Depth.NAME)
        with within(_LAST):
            told = read_json(f"{entry.path}/{_LAST}", _MOST_JSON_BYTES)
        backend = told.get("sharded_backend") if isinstance(told, dict) else None
        if backend not in ("torch_dist", "fsdp_dtensor"):
            raise Unreadable(f"its {_LAST} names no layout that is known here")
        proved = verified_inside(entry, _COMMON, look)
        verdict = TORCH_DCP.verify(entry, look)
        depth = verdict.depth if proved else Depth.STRUCTURE
        return replace(verdict, why=f"{_COMMON} complete, {verdict.why}", depth=depth)


MEGATRON = Megatron()


def _verify_places(entry: Entry, places: Sequence[str], look: Look) -> Verdict:
    files = {place: set(names_in(f"{entry.path}/{place}")) for place in places}
    missing = _missing_place(places) or _missing_file(entry.path, files)
    if missing:
        return Verdict(whole=False, why=missing, depth=Depth.NAME, provisional=True)
    inner = [f"{place}/{name}" for place in places for name in sorted(files[place]) if name.endswith(".pt")]
    proved = [verified_inside(entry, name, look) for name in inner]
    depth = Depth.CHECKSUM if all(proved) else Depth.STRUCTURE
    return Verdict(whole=True, why=f"{len(inner)} files of {len(places)} places, all complete", depth=depth)


def _missing_place(places: Sequence[str]) -> str:
    """The first place of the grid that is not there: its sides are as long as the highest numbers tell."""
    each = filter(None, map(_PLACE.fullmatch, places))
    found = [tuple(int(one) for one in place.groups() if one) for place in each]
    if len({len(one) for one in found}) > 1:
        return "its mp_rank folders are of two grids"
    sides = [1 + max(numbers) for numbers in zip(*found, strict=True)]
    there = set(found)
    for wanted in product(*map(range, sides)) if len(found) < _MOST_PLACES else ():
        if wanted not in there:
            return f"it has no mp_rank_{wanted[0]:02d}" + "".join(f"_{one:03d}" for one in wanted[1:])
    return ""


def _missing_file(path: str, files: dict[str, set[str]]) -> str:
    for place, there in files.items():
        if _MODEL not in there:
            return f"it has no {place}/{_MODEL}"
    first = min(files)
    arguments = _arguments(_peeked(path, f"{first}/{_MODEL}"))
    sizes = ("tensor", "pipeline", "expert")
    grid = [_count(arguments.get(f"{name}_model_parallel_size")) or 1 for name in sizes]
    wanted = grid[0] * grid[1] * grid[2]
    if isinstance(arguments.get("tensor_model_parallel_size"), int) and len(files) < wanted:
        return f"it has {len(files)} mp_rank folders, and its arguments tell of {wanted}"
    saves = arguments.get("no_save_optim") is not True
    distributed = arguments.get("use_distributed_optimizer") is True and saves
    for place, there in files.items():
        if _OPTIMIZER not in there and (distributed or any(_OPTIMIZER in other for other in files.values())):
            return f"it has no {place}/{_OPTIMIZER}"
    return ""


def _peeked(path: str, name: str) -> Table:
    value = peeked(path, name)
    return value if isinstance(value, Table) else Table()


def _arguments(table: Table) -> Table:
    """Megatron's ``args``, an ``argparse.Namespace``."""
    arguments = table.get("args")
    state = arguments.state if isinstance(arguments, Instance) else None
    return state if isinstance(state, Table) else Table()


def _count(value: Value) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 53 else None
