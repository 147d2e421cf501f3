"""What each rank says about its replicas -> one agreed partition, or the reason there is none.

Does not read files; ``checkpoints/formats/mindspore/group_info.py`` does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Group = frozenset[int]
"""Ranks that hold the same state: the file of one serves all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """The lists describe no groups; ``why`` names the first that does not fit."""

    why: str


def agree_on_groups(
    lists: Mapping[int, Iterable[int]], world_size: int, distrusted: frozenset[int] = frozenset()
) -> tuple[Group, ...] | Disagreement:
    """Return the replica groups that the per-rank lists describe, by their least member, or why not.

    ``lists[r]`` are the ranks whose checkpoint equals that of r, itself included. A rank without a list takes
    the group its peers give it, and so does a rank in ``distrusted`` (the dead: its file may be older than
    its peers') unless no peer names it. There is no agreement when a list is of another world size, when two
    lists contradict each other, or when a rank is in no list.
    """
    claims = {rank: frozenset(members) for rank, members in lists.items()}
    for rank in sorted(claims):
        if why := _impossible(rank, claims[rank], world_size):
            return Disagreement(why=why)

    group_of: dict[int, frozenset[int]] = {}
    for rank in sorted(set(claims) - distrusted) + sorted(set(claims) & distrusted):
        if rank in distrusted and rank in group_of:
            continue
        for member in sorted(claims[rank]):
            if (known := group_of.setdefault(member, claims[rank])) != claims[rank]:
                said = f"rank {rank} says {_text(claims[rank])}, but rank {member} is also in {_text(known)}"
                return Disagreement(why=f"the group_info lists contradict each other: {said}")

    if uncovered := sorted(set(range(world_size)) - set(group_of)):
        why = f"rank {uncovered[0]} is in no group_info list, neither its own nor a peer's"
        return Disagreement(why=why)
    return tuple(sorted(set(group_of.values()), key=min))


def _impossible(rank: int, members: frozenset[int], world_size: int) -> str:
    if not 0 <= rank < world_size:
        return f"there is a group_info list of rank {rank}, but the world has {world_size} ranks"
    if outside := [member for member in sorted(members) if not 0 <= member < world_size]:
        return f"the list of rank {rank} names rank {outside[0]}, but the world has {world_size} ranks"
    if rank not in members:
        return f"the list of rank {rank} does not name rank {rank} itself"
    return ""


def _text(members: frozenset[int]) -> str:
    return "{" + ",".join(str(member) for member in sorted(members)) + "}"
