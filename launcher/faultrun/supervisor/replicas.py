"""Which ranks hold the same state in this run: what the workers wrote about it, agreed on.

Reads the ``device<rank>/group_info.pb`` that workers write under the log_dir; on
Ascend MindSpore does so itself. Wrong groups would give a rank another's
shard, so doubt always means that no rank has a replica.
"""

from dataclasses import dataclass
from pathlib import Path

from faultrun.checkpoints.group_info import GROUP_INFO_NAME, read_group_files
from faultrun.core.replica_groups import Group, agree_on_groups
from faultrun.model.checkpoint import Refusal
from faultrun.model.spec import Replicas, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownReplicas:
    """``groups`` is None for pure data parallel. ``refused`` are the lists that were not believed."""

    groups: tuple[Group, ...] | None
    refused: tuple[Refusal, ...] = ()


def known_replicas(spec: RunSpec, world_size: int) -> KnownReplicas:
    """The replica groups as the workers' files tell them. Never raises for what a file holds."""
    folder = Path(spec.logs.log_dir).absolute()
    found = read_group_files(str(folder / "device0" / GROUP_INFO_NAME), world_size)
    every_rank_its_own = tuple(frozenset({rank}) for rank in range(world_size))
    if not found.lists:
        return KnownReplicas(groups=None if spec.recovery.replicas is Replicas.AUTO else every_rank_its_own)
    agreed = agree_on_groups(found.lists, world_size)
    if isinstance(agreed, str):
        why = f"{agreed}; until that is settled every rank needs a file of its own"
        refusal = Refusal(path=str(folder / f"device*/{GROUP_INFO_NAME}"), global_step=None, why=why)
        return KnownReplicas(groups=every_rank_its_own, refused=(refusal,))
    return KnownReplicas(groups=agreed)
