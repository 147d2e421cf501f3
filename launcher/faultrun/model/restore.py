"""Replica groups, and the decision which rank's file restores which rank.

Values only: ``core/replica_groups.py`` builds the groups, ``core/restore.py``
decides, ``checkpoints/group_info.py`` reads what a worker wrote about them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from faultrun.model.checkpoint import RankFile


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroups:
    """A partition of the ranks 0..world_size-1 into sets that hold the same checkpoint.

    Each group is ascending, and groups are ordered by their least member.
    ValueError when the groups are not such a partition.
    """

    world_size: int
    groups: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Refuse overlapping, incomplete or unordered groups."""
        members = [rank for group in self.groups for rank in group]
        if sorted(members) != list(range(self.world_size)):
            raise ValueError(f"the groups do not cover ranks 0..{self.world_size - 1} exactly once")
        ordered = tuple(sorted((tuple(sorted(group)) for group in self.groups), key=lambda group: group[:1]))
        if ordered != self.groups:
            raise ValueError("the groups are not in ascending order")

    @property
    def by_rank(self) -> Mapping[int, tuple[int, ...]]:
        """The group of each rank."""
        return {rank: group for group in self.groups for rank in group}


@dataclass(frozen=True, slots=True, kw_only=True)
class Supplier:
    """Where one replica group takes its checkpoint from.

    ``holders`` are the healthy members with a whole file at the common step,
    ascending; the first of them supplies the group with ``path``.
    """

    group: tuple[int, ...]
    holders: tuple[int, ...]
    path: str

    @property
    def rank(self) -> int:
        """The rank whose file the whole group loads."""
        return self.holders[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Every group can be restored at ``global_step``; suppliers are ordered by their group's least member."""

    global_step: int
    suppliers: tuple[Supplier, ...]
    lost: frozenset[int] = frozenset()

    @property
    def files(self) -> tuple[RankFile, ...]:
        """The file of each rank, in rank order."""
        chosen = {
            rank: RankFile(rank=rank, path=supplier.path, from_rank=supplier.rank)
            for supplier in self.suppliers
            for rank in supplier.group
        }
        return tuple(chosen[rank] for rank in sorted(chosen))


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """No restore from replicas; ``why`` is a sentence for people."""

    why: str


RestoreDecision = Restore | Declined


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """A fault takes only its own rank's files: checkpoints lie where other nodes can read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesByWidth:
    """A fault takes every rank of its node; node n runs ranks n*width to n*width + width - 1."""

    width: int = 8

    def __post_init__(self) -> None:
        """Refuse a node without devices."""
        if self.width < 1:
            raise ValueError(f"a node runs at least one rank, not {self.width}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesByTable:
    """A fault takes every rank of its node, as the rank table places them (``node_of[rank]``)."""

    node_of: Mapping[int, str]


Reach = Alone | NodesByWidth | NodesByTable
"""How far the loss of a rank's files reaches: node-local disks die with their node."""
