"""Who takes part in a smaller or larger world, and which file each rank of it loads. Pure.

A slot is named by its node and its number there. ``wanted`` is the whole world that the run was asked for;
the rank that a slot has in it never changes, and orders those that are left.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from faultrun.core.recovery.replica_groups import Group
from faultrun.model.checkpoint import RankFile, RecoveryPoint
from faultrun.model.observed.elastic import SetAside
from faultrun.model.topology import NodeId, Topology

Slot = tuple[NodeId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inseparable:
    """No copy of the model can be told from the others, or be done without; ``why`` says which."""

    why: str


def seats_without(wanted: Topology, aside: Iterable[SetAside]) -> Topology:
    """``wanted`` without the slots that are set aside; nodes keep their order, slots theirs."""
    out = {(one.node, one.slot) for one in aside}
    left = []
    for seat in wanted.nodes:
        places = tuple(slot for slot in range(seat.slots) if (seat.node, slot) not in out)
        if len(places) == seat.slots:
            left.append(seat)
        elif places:
            left.append(replace(seat, slots=len(places), places=places))
    return Topology(nodes=tuple(left))


def slots_of(seats: Topology) -> tuple[Slot, ...]:
    """The slot of each rank."""
    return tuple((seat.node, seat.place_of(local)) for seat in seats.nodes for local in range(seat.slots))


def who_leaves(groups: Sequence[Group], bad: Collection[int]) -> frozenset[int] | Inseparable:
    """Which ranks leave a world with those that are ``bad``, or why they cannot be done without.

    Where all hold the same these alone. Else a copy of the model is one rank of each replica group, and
    leaves whole, whatever ranks are bad in it; the last copy stays.
    """
    orders = [sorted(group) for group in groups]
    sizes = sorted({len(order) for order in orders})
    if len(sizes) > 1:
        why = f"its replica groups have {sizes[0]} to {sizes[-1]} ranks, so its copies cannot be told apart"
        return Inseparable(why=why)
    gone = {order.index(rank) for order in orders for rank in bad if rank in order}
    if len(gone) >= sizes[0]:
        alone = next(order for order in orders if any(rank in order for rank in bad))
        held = "the state of " + " ".join(f"rank {rank}" for rank in alone) if len(alone) == 1 else "a copy"
        return Inseparable(why=f"no other rank has {held}" if len(orders) > 1 else "no rank would be left")
    return frozenset(order[number] for order in orders for number in gone)


def groups_in(point: RecoveryPoint | None, world_size: int) -> tuple[Group, ...]:
    """Ranks that hold the same state, as ``point`` serves them; all do where nothing says otherwise."""
    told = json.loads(point.restore_ranks_map) if point is not None and point.restore_ranks_map else {}
    named = tuple(frozenset(int(rank) for rank in ranks.split(",")) for ranks in told)
    return named if len(named) > 1 else (frozenset(range(world_size)),)


def resized(point: RecoveryPoint | None, takes: Sequence[int]) -> RecoveryPoint | None:
    """``point`` for a world whose rank r loads what rank ``takes[r]`` of the old one would have loaded."""
    if point is None:
        return None
    before = {file.rank: file for file in point.files}
    files = tuple(
        replace(before[old], rank=rank) if old in before else RankFile(rank=rank, path=point.path)
        for rank, old in enumerate(takes)
    )
    groups: dict[str, list[RankFile]] = {}
    for file in files:
        groups.setdefault(file.path, []).append(file)
    suppliers = {
        ",".join(str(file.rank) for file in alike): alike[0].rank
        if alike[0].from_rank is None
        else alike[0].from_rank
        for alike in groups.values()
    }
    restore_ranks = ",".join(map(str, sorted(suppliers.values())))
    return replace(point, files=files, restore_ranks=restore_ranks, restore_ranks_map=json.dumps(suppliers))


def takes_from(before: Topology, after: Topology, wanted: Topology, groups: Sequence[Group]) -> list[int]:
    """Say from which rank of ``before`` each rank of ``after`` takes its state.

    It is its own, or that of a rank which holds the same: ``groups`` are by rank of the whole world, none
    where all hold the same. ValueError: no rank has it.
    """
    old_rank = {slot: rank for rank, slot in enumerate(slots_of(before))}
    whole = slots_of(wanted)
    number = {slot: rank for rank, slot in enumerate(whole)}
    taken = []
    for slot in slots_of(after):
        if slot in old_rank:
            taken.append(old_rank[slot])
            continue
        mates = next((group for group in groups if number[slot] in group), frozenset(range(len(whole))))
        known = [old_rank[whole[mate]] for mate in sorted(mates) if whole[mate] in old_rank]
        if not known:
            raise ValueError(f"no rank has the state of rank {number[slot]} of the whole world")
        taken.append(known[0])
    return taken
