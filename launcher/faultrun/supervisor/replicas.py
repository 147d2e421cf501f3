"""Which ranks hold the same state in this run: what the workers wrote about it, agreed on.

Reads the ``device<rank>/group_info.pb`` that workers write under the log_dir; on
Ascend MindSpore does so itself. Wrong groups would give a rank another's
shard, so doubt always means that no rank has a replica.
"""

from dataclasses import dataclass
from pathlib import Path

from faultrun.checkpoints.group_info import FILE_NAME, read_group_files
from faultrun.core.recover import Group
from faultrun.core.replica_groups import agree_on_groups, every_rank_its_own
from faultrun.model.checkpoint import Refusal
from faultrun.model.restore import Declined, ReplicaGroups
from faultrun.model.spec import Replicas, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownReplicas:
    """``groups`` is None for pure data parallel. ``refused`` are the lists that were not believed."""

    groups: tuple[Group, ...] | None
    refused: tuple[Refusal, ...] = ()


def known_replicas(spec: RunSpec, world_size: int) -> KnownReplicas:
    """The replica groups as the workers' files tell them. Never raises for what a file holds."""
    folder = Path(spec.logs.log_dir).absolute()
    found = read_group_files(str(folder / "device0" / FILE_NAME), world_size)
    if not found.lists:
        if spec.recovery.replicas is Replicas.AUTO:
            return KnownReplicas(groups=None)
        return KnownReplicas(groups=_groups(every_rank_its_own(world_size)))
    agreed = agree_on_groups(found.lists, world_size)
    if isinstance(agreed, Declined):
        why = f"{agreed.why}; until that is settled every rank needs a file of its own"
        refusal = Refusal(path=str(folder / f"device*/{FILE_NAME}"), global_step=None, why=why)
        return KnownReplicas(groups=_groups(every_rank_its_own(world_size)), refused=(refusal,))
    return KnownReplicas(groups=_groups(agreed))


def _groups(agreed: ReplicaGroups) -> tuple[Group, ...]:
    return tuple(frozenset(group) for group in agreed.groups)
