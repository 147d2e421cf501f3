"""Whether ranks whose state is taken for one another have the same parameters, told over their store.

Ranks that train parameters of their own (local steps between two averages, experts that
DistributedDataParallel ignores), or whose optimizers keep other things (each the momentum of its share of the
parameters), show it behind an update. A sample of each is looked at behind a few steps, more and more seldom,
and no rank waits: the one that comes second compares.
"""

import contextlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session
from faultrun.sdk.torch.group.same_settings import group_store
from faultrun.sdk.torch.state.shards import local_of
from faultrun.sdk.torch.state.state_dict import Parts
from faultrun.sdk.worker.training_stages import told

_LAST_LOOK = 1025
_SAMPLE = 1024


class SameParameters:
    """Compares ``parts`` with those of the ranks that hold the same: ``replicas``, all if there are none."""

    def __init__(self, parts: Parts, session: Session, replicas: Iterable[int]) -> None:
        self._parts, self._session = parts, session
        self._group = sorted(replicas) or [*range(session.world_size)]
        self._steps = 0

    def stepped(self, step: int) -> None:
        """``step`` has ended. FaultrunError: another rank has ended it with other parameters."""
        self._steps += 1
        before = self._steps - 1  # a multiple of few numbers: ranks that average now and then are alike there
        if len(self._group) < 2 or self._steps > _LAST_LOOK or before & (before - 1) > 0:
            return
        if (store := group_store()) is None:
            if self._steps == 1:
                told(
                    "ranks have no process group, and the state of one is taken for that of another; if each"
                    " has its own, protect(directory=sdk.Folder(directory=..., replica_group=(rank,)))"
                )
            return
        digests = {name: f"{one:08x}" for name, one in self._digests()}
        mine = f"{self._session.rank} {' '.join(digests.values())}"
        of = f"{self._session.incarnation}/parameters/{self._parts.stage}"
        with contextlib.suppress(RuntimeError, NotImplementedError):
            rank, *theirs = (
                bytes(store.compare_set(f"faultrun/{of}/{self._group[0]}/{step}", "", mine))
                .decode()
                .split(" ")
            )
            other = [name for name, one in zip(digests, theirs, strict=False) if one != digests[name]]
            if len(theirs) != len(digests):
                other = other or ["what optimizers keep"]
            if other:
                raise _differ(other, step, int(rank), self._session.rank)

    def _digests(self) -> Iterator[tuple[str, int]]:
        names = {}
        for name, one in self._parts.model.named_parameters():
            names[id(one)] = name
            yield name, _digest(one)
        for number, optimizer in enumerate(self._parts.optimizers):
            trained = (one for group in optimizer.param_groups for one in group["params"])
            for place, one in enumerate(trained):
                what = f"what {type(optimizer).__name__} {number} keeps of {names.get(id(one), place)}"
                yield what, _of_state(optimizer.state.get(one, {}))


def _differ(names: list[str], step: int, first: int, second: int) -> FaultrunError:
    more = f", and {len(names) - 1} more" if names[1:] else ""
    return FaultrunError(
        "ranks have a state of their own, and that of one is taken for that of another",
        because=f"{names[0]} differs between rank {first} and rank {second} behind step {step}{more}",
        hint="where each is to have its own, protect(directory=sdk.Folder(directory=...,"
        " replica_group=(rank,))); else give all ranks the same before the first step",
    )


def _of_state(state: Any) -> int:
    """Digest the tensors that an optimizer keeps for one parameter, and their names."""
    found: list[Any] = [] if not isinstance(state, dict) else [*state.items()]
    digest = 0
    for name, one in found:
        value = f"{_digest(one)}" if isinstance(one, torch.Tensor) else ""
        digest = zlib.crc32(f"{name} {value}".encode(), digest)
    return digest


def _digest(parameter: Any) -> int:
    """Digest a sample of this rank's piece; 0 where it has no memory to read."""
    local = local_of(parameter.detach())
    if local.layout != torch.strided or local.is_meta or not local.numel():
        return 0
    flat = local.reshape(-1)
    some = flat[:: max(1, flat.numel() // _SAMPLE)].contiguous().view(torch.uint8)
    return zlib.crc32(some.to("cpu").numpy().tobytes())
