"""Whether ranks whose state is taken for one another have the same parameters, told over their store.

Ranks that train parameters of their own (local steps between two averages, experts that
DistributedDataParallel ignores), or whose optimizers keep other things (each the momentum of its share of the
parameters), show it behind an update. A sample of each is looked at behind a few steps of each group, more
and more seldom, and no rank waits: the one that comes second compares. Devices of several kinds may round the
last bit of an update in their own ways: such a drift passes, which grows with the steps.
"""

import contextlib
import json
import math
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
_OF_OPTIMIZERS = 1e-3
"""By how much what optimizers keep may differ: gradients of its own change all of it."""
_VALUES = ""
"""Instead of a name, what tells a parameter from what an optimizer keeps."""

_Sample = tuple[float, float, float]
"""Sum of a sample with signs by chance, its length, and the last bit of its numbers."""

_NONE: _Sample = (0.0, 0.0, 0.0)


class SameParameters:
    """Compares ``parts`` with those of the ranks that hold the same: ``replicas``, all if there are none."""

    def __init__(self, parts: Parts, session: Session, replicas: Iterable[int]) -> None:
        self._parts, self._session = parts, session
        self._group = sorted(replicas) or [*range(session.world_size)]
        self._incarnation, self._steps = session.incarnation, 0

    def stepped(self, step: int) -> None:
        """``step`` has ended. FaultrunError: another rank has ended it with other parameters."""
        if self._incarnation != self._session.incarnation:  # a rank may have come in
            self._incarnation, self._steps = self._session.incarnation, 0
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
        mine = dict(self._samples())
        of = f"{self._session.incarnation}/parameters/{self._parts.stage}"
        with contextlib.suppress(RuntimeError, ValueError):  # a store that goes away may answer nothing
            told_first = store.compare_set(
                f"faultrun/{of}/{self._group[0]}/{step}", "", json.dumps([self._session.rank, *mine.values()])
            )
            rank, *theirs = json.loads(bytes(told_first))
            steps = self._steps
            other = [name for name, one in zip(mine, theirs, strict=False) if _apart(one, mine[name], steps)]
            if len(theirs) != len(mine):
                other = other or ["what optimizers keep"]
            if other:
                raise _differ(other, step, rank, self._session.rank)

    def _samples(self) -> Iterator[tuple[str, dict[str, _Sample]]]:
        names = {}
        for name, one in self._parts.model.named_parameters():
            names[id(one)] = name
            yield name, {_VALUES: sample_of(one)}
        places = {one: place for place, one in enumerate(names)}
        for number, optimizer in enumerate(self._parts.optimizers):
            trained = (one for group in optimizer.param_groups for one in group["params"])
            in_order = sorted(
                trained, key=lambda one: places.get(id(one), len(places))
            )  # they may be a set's
            for place, one in enumerate(in_order):
                what = f"what {type(optimizer).__name__} {number} keeps of {names.get(id(one), place)}"
                yield what, _samples_of(optimizer.state.get(one, {}))


def _differ(names: list[str], step: int, first: int, second: int) -> FaultrunError:
    more = f", and {len(names) - 1} more" if names[1:] else ""
    return FaultrunError(
        "ranks have a state of their own, and that of one is taken for that of another",
        because=f"{names[0]} differs between rank {first} and rank {second} behind step {step}{more}",
        hint="where each is to have its own, protect(directory=sdk.Folder(directory=...,"
        " replica_group=(rank,))), or no callback; else give all ranks the same before the first step, and"
        " go by guard.step_in_epoch, not by a count of the loop's own",
    )


def _apart(theirs: dict[str, _Sample], mine: dict[str, _Sample], steps: int) -> bool:
    """Whether these are not alike, as far as ``steps`` may drift by their last bits."""
    if theirs.keys() != mine.keys():
        return True
    for name, (one, norm, unit) in mine.items():
        other, its_norm, _ = theirs[name]
        may_be = (8 * steps * unit if name == _VALUES else _OF_OPTIMIZERS) * max(norm, its_norm)
        if (repr(one), repr(norm)) != (repr(other), repr(its_norm)) and not abs(one - other) <= may_be:
            return True
    return False


def _samples_of(state: Any) -> dict[str, _Sample]:
    """What an optimizer keeps for one parameter: its tensors, and the names of all else."""
    kept = state if isinstance(state, dict) else {}
    return {
        f"{name}": sample_of(one) if isinstance(one, torch.Tensor) else _NONE for name, one in kept.items()
    }


def sample_of(parameter: Any) -> _Sample:
    """Add up a sample of this rank's piece with signs by chance; nothing where it has no memory to read."""
    local = local_of(parameter.detach())
    if local.layout != torch.strided or local.is_meta or not local.numel():
        return _NONE
    flat = local.reshape(-1)
    some = flat[:: max(1, flat.numel() // _SAMPLE)][:_SAMPLE].to("cpu")
    unit = torch.finfo(some.dtype).eps if some.is_floating_point() else 0.0
    some = (some.abs() if some.is_complex() else some).to(torch.float64)
    signs = torch.randint(0, 2, some.shape, generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    if unit > torch.finfo(torch.float32).eps:
        unit /= math.sqrt(len(some))  # of short numbers few are rounded to others by a last bit
    return float((some * signs).sum()), float(some.norm()), unit
