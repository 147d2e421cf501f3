"""Which ranks hold the same state in this run: what the workers wrote about it, agreed on.

Reads the ``device<rank>/group_info.pb`` that workers write under the log_dir; on Ascend MindSpore does so
itself. Of several nodes each has the files of its own ranks, below ``node_<name>/``. Wrong groups would give
a rank another's shard, so doubt always means that no rank has a replica.
"""

from dataclasses import dataclass
from pathlib import Path

from faultrun.checkpoints.formats.mindspore.group_info import GROUP_INFO_NAME, GroupFiles, read_group_files
from faultrun.core.humanize import rank_names
from faultrun.core.recovery.replica_groups import Disagreement, Group, agree_on_groups
from faultrun.journal.logdir import beside
from faultrun.model.checkpoint import Refusal
from faultrun.model.spec.run_spec import Replicas, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownReplicas:
    """``groups`` is None for pure data parallel. ``refused`` are the lists that were not believed."""

    groups: tuple[Group, ...] | None
    refused: tuple[Refusal, ...] = ()


def known_replicas(spec: RunSpec, world_size: int) -> KnownReplicas:
    """The replica groups as the workers' files tell them. Never raises for what a file holds."""
    folder = Path(spec.logs.log_dir).absolute()
    others = beside(folder) if len(spec.topology.nodes) > 1 else ()
    found = read_group_files(str(folder / "device0" / GROUP_INFO_NAME), world_size, others)
    every_rank_its_own = tuple(frozenset({rank}) for rank in range(world_size))
    if not found.lists:
        return KnownReplicas(groups=None if spec.recovery.replicas is Replicas.AUTO else every_rank_its_own)
    agreed = agree_on_groups(found.lists, world_size)
    if isinstance(agreed, Disagreement):
        missing = _missing(spec, found, (folder, *others))
        why = f"{missing}{agreed.why}; until that is settled every rank needs a file of its own"
        refusal = Refusal(path=str(folder / f"device*/{GROUP_INFO_NAME}"), global_step=None, why=why)
        return KnownReplicas(groups=every_rank_its_own, refused=(refusal,))
    return KnownReplicas(groups=agreed)


def _missing(spec: RunSpec, found: GroupFiles, folders: tuple[Path, ...]) -> str:
    """Which ranks' files no folder has, and what would bring them here; empty on a node alone."""
    named = {member for ranks in found.lists.values() for member in ranks}
    lacking = tuple(rank for rank in sorted(found.unreadable) if rank not in named)
    if len(spec.topology.nodes) == 1 or not lacking:
        return ""
    looked = " ".join(map(str, folders))
    shared = "" if len(folders) > 1 else ", and no other node of the run has a folder beside it"
    return (
        f"{GROUP_INFO_NAME} of {rank_names(lacking)} is not in {looked}{shared}"
        " (--log_dir=DIR on a file system that all nodes share); "
    )
