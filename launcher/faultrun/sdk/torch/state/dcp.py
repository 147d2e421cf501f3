"""The guard's part of a checkpoint by ``torch.distributed.checkpoint``: ``{"model": ..., "guard": guard}``.

    {"global_step", "epoch", "step_in_epoch", "world_size", "batch_ranks", "random": bytes,
     "objects": {name: state, or what torch.save makes of it}}

Such a checkpoint keeps one copy of whatever is not spread over a mesh, and loads into any number of ranks. So
the random numbers of all ranks, and what their own small objects are, are in it (``random``: what
``torch.save`` makes of a list by rank), gathered while the state is made: ``state_dict`` is for all ranks at
once, as ``dcp.save`` and ``dcp.load`` call it.
"""

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from faultrun.sdk.torch.state.boundary import NOT_GIVEN
from faultrun.sdk.torch.state.rng import Rng, reseeded, rng_from_plain, rng_to_plain
from faultrun.sdk.torch.state.shards import meshes_of
from faultrun.sdk.torch.state.state_dict import batches_done
from faultrun.sdk.worker.save_files import Position


def gathered(position: Position, rng: Rng, epoch_rng: Rng | None, full: int = 0) -> dict[str, Any]:
    """The state at ``position``; ``rng`` are this rank's random numbers, ``epoch_rng`` as its epoch began.

    ``full`` is of how many ranks' batches a step is made, where that may be more than there are.
    """
    own: list[Any] = [rng_to_plain(rng), None if epoch_rng is None else rng_to_plain(epoch_rng)]
    own += [rng.noted] if rng.noted else []  # which torch.load refuses when it is empty
    of_all = [own]
    if dist.is_initialized():
        of_all = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(of_all, own)
    return {
        "global_step": position.step,
        "epoch": position.epoch,
        "step_in_epoch": position.step_in_epoch,
        "world_size": len(of_all),
        "batch_ranks": max(full, len(of_all)),
        "random": _saved(of_all),
    }


def taken_apart(state: Mapping[str, Any], full: int = 0) -> tuple[Position, Rng, Rng | None]:
    """Position, random numbers and those of the epoch's beginning, for this rank; ``full`` as above.

    Among another number of ranks a position is as many samples, and a rank that was not there draws new
    random numbers that follow from another's. KeyError when something is missing.
    """
    of_all = torch.load(io.BytesIO(state["random"]), weights_only=True)
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    first, second, *noted = of_all[rank % len(of_all)]
    rng, epoch_rng = rng_from_plain(first), None if second is None else rng_from_plain(second)
    batches = batches_done(state, max(full, ranks))
    new = replace(rng, noted=b"".join(noted)) if rank < len(of_all) else reseeded(rng, rank)
    return Position(state["global_step"], state["epoch"], batches), new, epoch_rng


def objects_in(states: Mapping[str, Any]) -> dict[str, Any]:
    """Their part of the checkpoint: in bytes what the script has not given, for it changes its shape.

    ``dcp.load`` fills what is there as it is called, when an optimizer of the script's own has kept nothing.
    """
    hidden = {name for name, one in states.items() if name.startswith(NOT_GIVEN) and not meshes_of(one)}
    return {name: _saved(one) if name in hidden else one for name, one in states.items()}


def objects_from(part: Mapping[str, Any]) -> dict[str, Any]:
    """The states that ``objects_in`` was given."""
    return {
        name: torch.load(io.BytesIO(one), weights_only=True) if isinstance(one, bytes) else one
        for name, one in part.items()
    }


def _saved(value: Any) -> bytes:
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()
