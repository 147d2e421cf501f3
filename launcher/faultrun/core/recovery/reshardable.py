"""Whether a checkpoint can be resumed by another number of workers than wrote it. Pure.

What every rank held alike serves any number, and so does what its code cuts anew as it loads: a folder of
``torch.distributed.checkpoint``, MindFormers' format 2.0, tensors by name. The shard of a rank serves its
place in its own world only.
"""

from collections.abc import Sequence

from faultrun.core.humanize import rank_names
from faultrun.core.recovery.replica_groups import Group
from faultrun.model.checkpoint import Entry


def serves_any_world(entry: Entry, groups: tuple[Group, ...] | None, resharded: bool | None) -> bool:
    """Whether ``entry`` says itself that it serves any number, or its recipe does (``resharded``)."""
    alike = entry.replicated and resharded is not False
    together = entry.rank is None and not entry.replica_group
    return (alike and (groups is None or len(groups) == 1)) or (
        together and (resharded or (resharded is None and entry.fits_any_world))
    )


def fixed_by(entry: Entry, last_rank: int, groups: tuple[Group, ...] | None, resharded: bool | None) -> str:
    """Why only as many workers as wrote ``entry`` can resume from it; empty if any number can.

    ``last_rank`` is the highest of which there is a file of the same step. ``groups`` are the replica groups
    that the workers named, None where they named none: where there are several, whole copies of the model
    may come and go (``core/placement/resize.py``), if each has files of its own.
    """
    several = groups is not None and len(groups) > 1
    if serves_any_world(entry, groups, resharded) or (several and entry.rank is not None):
        return ""
    if entry.replica_group and not entry.replicated:
        return f"its state is sharded: {entry.path} holds that of {rank_names(entry.replica_group)} only"
    if resharded is False:
        return "its recipe says that it loads into the same number of workers only (world_size: same)"
    if entry.rank is None:
        return "" if entry.world_size is None else f"{entry.path} has the parts of {entry.world_size} ranks"
    if last_rank > 0 and groups is None:
        return f"{entry.path} is one of a file for each rank, and nothing says that these are alike"
    return ""


def cut_anew(
    service: tuple[tuple[Group, Entry], ...], groups: tuple[Group, ...] | None, resharded: bool | None
) -> tuple[tuple[Group, Entry], ...]:
    """``service``, as one for all ranks where they load one folder that is cut anew for them.

    That other files of the run are shards, such as the dying gasps beside it, says nothing then: no rank has
    what another lacks. Where the workers themselves have told who holds the same (``groups``), or ranks hold
    copies of one another's shards, their plan has a shape that only whole copies keep.
    """
    first = service[0][1]
    same = {entry.path for _, entry in service} == {first.path}
    shards = all(len(group) == 1 for group, _ in service)
    if groups is not None or not (same and shards) or first.rank is not None:
        return service
    if fixed_by(first, 0, groups, resharded):
        return service
    return ((frozenset().union(*(group for group, _ in service)), first),)


def written_by(entries: Sequence[Entry], world_size: int) -> int | None:
    """How many workers wrote every one of ``entries``, where that is known and not ``world_size``."""
    told = {entry.world_size for entry in entries}
    if told == {None} and all(entry.rank is not None for entry in entries):
        told = {1 + max(entry.rank or 0 for entry in entries)}
    (size,) = told if len(told) == 1 else (None,)
    return size if size != world_size else None
