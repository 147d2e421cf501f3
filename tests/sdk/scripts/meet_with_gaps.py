"""Rank ``argv[1]`` of a world of three whose rank 1 has no process: what its collectives give, as JSON."""

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from faultrun.sdk.stay.rank_places import RankPlaces
from faultrun.sdk.torch.group import process_group
from faultrun.sdk.torch.group.empty_places import ScriptMeetings
from faultrun.sdk.torch.group.transfer import exchanged, receive, send

RANK, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
OTHER = 2 - RANK


def main() -> None:
    torch.set_num_threads(1)
    process_group._know_groups_of_gloo()
    group = process_group._group = process_group.TrainingGroup("gloo", {})
    group.meetings, group.places = ScriptMeetings(), RankPlaces(3, (1,))
    store = dist.FileStore(str(FOLDER / "store"), 2)
    group.init("gloo", store=store, rank=RANK, world_size=3)
    told: dict[str, Any] = {"size": dist.get_world_size(), "rank": dist.get_rank()}
    for name in ("SUM", "AVG", "MAX"):
        told[name] = summed(partial(dist.all_reduce, op=getattr(dist.ReduceOp, name)))
    told["functional"] = functional.all_reduce(numbers(), "sum", dist.group.WORLD).tolist()
    told["reduced"] = summed(lambda one: dist.reduce(one, 2)) if RANK == 2 else dist.reduce(numbers(), 2)
    told["broadcast"] = summed(lambda one: dist.broadcast(one, 2))
    objects = [RANK]
    dist.broadcast_object_list(objects, 2)
    told["objects"] = objects
    coalesced = [numbers()]
    dist._broadcast_coalesced(dist.group.WORLD, coalesced, 100, 2)
    told["coalesced"] = coalesced[0].tolist()
    dist.barrier()
    with group.meetings.ours():
        told["exchanged"] = [one for rank, one in enumerate(exchanged([RANK, 7], "cpu")) if rank != 1]
        told["received"] = talk()
    told["refused"] = [refusal(call) for call in REFUSED]
    print(json.dumps(told), flush=True)  # noqa: T201
    dist.barrier()
    os._exit(0)


def numbers() -> Any:
    return torch.tensor([RANK + 1.0])


def summed(call: Callable[[Any], object]) -> list[float]:
    one = numbers()
    call(one)
    return [float(number) for number in one]


def talk() -> Any:
    """Rank 0 sends its state to rank 2."""
    if RANK == 0:
        return send({"state": numbers()}, 2, "cpu")
    return receive(0, "cpu")["state"].tolist()


def slots() -> list[Any]:
    return [numbers() for _ in range(3)]


REFUSED: tuple[Callable[[], object], ...] = (
    lambda: dist.broadcast(numbers(), 1),
    lambda: dist.reduce(numbers(), 1),
    lambda: dist.send(numbers(), 1),
    lambda: dist.all_gather(slots(), numbers()),
    lambda: dist.gather(numbers(), slots() if RANK == 0 else None, 0),
    lambda: dist.scatter(numbers(), slots() if RANK == 0 else None, 0),
    lambda: dist.all_gather_into_tensor(torch.zeros(3), numbers()),
    lambda: dist.reduce_scatter_tensor(numbers(), torch.zeros(3)),
    lambda: dist.all_gather_object([None] * 3, RANK),
    lambda: functional.all_gather_single(numbers(), 0, dist.group.WORLD),
)


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


if __name__ == "__main__":
    main()
