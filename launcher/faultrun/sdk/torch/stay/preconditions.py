"""Why a rank cannot outlive a peer, by its script alone: known before any rank has died."""

from dataclasses import dataclass
from typing import Any

from faultrun.sdk.torch.group.ddp import Averaging, why_not_all
from faultrun.sdk.torch.group.fsdp2 import Sharded, sharded_beside
from faultrun.sdk.torch.group.process_group import TrainingGroup
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class Preconditions:
    """Says why a rank cannot outlive a peer. ``refused``: as in Rejoin."""

    training: Training
    worker: Worker
    group: TrainingGroup | None
    averaging: Averaging
    sharded: Sharded | None
    refused: str

    @property
    def before_steps(self) -> str:
        """Why this rank cannot outlive a peer, as training begins; empty if it can."""
        if self.refused or self.worker.twice:
            return self.refused or self.worker.twice
        if self.group is None:
            return "its process group was not made by sdk.torch.init_process_group"
        if not self.worker.session.is_outside and (why := self.group.why_not or self._besides):
            return why
        if self.sharded is None:
            if sharded_beside(self.training.parts.model):
                return "fully_shard on a model beside the protected one, which is not sharded itself"
            return why_not_all(self.ddps, self.training.parts.optimizers)
        self.sharded.finds_others()
        return self.sharded.why_not or ("DistributedDataParallel beside fully_shard" if self.ddps else "")

    @property
    def ddps(self) -> list[Any]:
        """Each DistributedDataParallel that the script has made."""
        return [] if self.group is None else self.group.ddps

    @property
    def by_now(self) -> str:
        """What the script has done since then that keeps it; empty if nothing does."""
        if self.averaging.overlaps:
            return "backward passes of two DistributedDataParallel run into one another"
        return self.worker.twice or ("" if self.training.redo.in_function else self._besides or self._late)

    @property
    def _late(self) -> str:
        if all(self.averaging.has(one) for one in self.ddps):
            return ""
        return (
            "a DistributedDataParallel was made in a step, which only a function for guard.run can make again"
        )

    @property
    def _besides(self) -> str:
        known = frozenset[str]() if self.sharded is None else self.sharded.group_names
        return "" if self.group is None else self.group.besides(known)
