"""Fault ranks + replica groups + whole files -> which rank's file restores which rank.

The rule: the newest global step that a healthy member of *every* group can
supply; in each group the least such member. It does not look at the files
(``available`` holds verified ones only) and does not choose between this and
the periodic checkpoint (``core/recover.py`` does).

The text forms are those that MindSpore trainers read: ``RESTORE_RANKS`` and
``RESTORE_RANKS_MAP`` as mindx_elastic sets them, ``restore_ranks.sh`` as its
2.0.4 scripts source it and ``recovery_info.json`` of 2023; but always sorted.
"""

import json
from collections.abc import Collection, Mapping

from faultrun.errors import assert_never
from faultrun.model.restore import (
    Alone,
    Declined,
    NodesByTable,
    NodesByWidth,
    Reach,
    ReplicaGroups,
    Restore,
    RestoreDecision,
    Supplier,
)

Available = Mapping[int, Mapping[int, str]]
"""rank -> global step -> path of the whole (verified) file or directory of that rank at that step."""

NO_RESTORE = "-1"
"""RESTORE_RANKS when there is nothing to restore from replicas. Only in text: decisions are typed."""


def decide_restore(
    groups: ReplicaGroups, faults: Collection[int], available: Available, reach: Reach | None = None
) -> RestoreDecision:
    """Return how every rank is restored after ``faults``, or why replicas cannot do it.

    ``faults`` are global ranks of the incarnation that failed. Files of lost
    ranks are never used, even when listed in ``available``.
    """
    if not faults:
        return Declined(why="no fault ranks")
    lost = lost_ranks(faults, Alone() if reach is None else reach, groups.world_size)
    if isinstance(lost, Declined):
        return lost
    return choose_suppliers(groups, lost, available)


def lost_ranks(faults: Collection[int], reach: Reach, world_size: int) -> frozenset[int] | Declined:
    """Return the ranks whose files are gone with ``faults``: themselves, or all of their nodes."""
    outside = [rank for rank in sorted(faults) if not 0 <= rank < world_size]
    if outside:
        return Declined(why=f"fault rank {outside[0]} is outside the world of {world_size} ranks")
    match reach:
        case Alone():
            return frozenset(faults)
        case NodesByWidth(width=width):
            nodes = {rank // width for rank in faults}
            return frozenset(rank for rank in range(world_size) if rank // width in nodes)
        case NodesByTable(node_of=node_of):
            unplaced = [rank for rank in sorted(faults) if rank not in node_of]
            if unplaced:
                return Declined(why=f"fault rank {unplaced[0]} is not in the rank table")
            dead = {node_of[rank] for rank in faults}
            return frozenset(rank for rank in range(world_size) if node_of.get(rank) in dead)
        case _:
            assert_never(reach)


def choose_suppliers(groups: ReplicaGroups, lost: Collection[int], available: Available) -> RestoreDecision:
    """Return the newest step that every group can supply from members that are not ``lost``.

    ``lost`` may be empty: then it answers where each rank loads a checkpoint
    from when nobody's files are gone.
    """
    gone = frozenset(lost)
    offers: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for group in groups.groups:
        healthy = [rank for rank in group if rank not in gone]
        if not healthy:
            return Declined(why=f"replica group {_text(group)} has no healthy member")
        offers[group] = _holders_by_step(healthy, available)
        if not offers[group]:
            return Declined(why=f"replica group {_text(group)} has no whole checkpoint on a healthy rank")

    common = (
        frozenset.intersection(*(frozenset(steps) for steps in offers.values())) if offers else frozenset()
    )
    if not common:
        return Declined(why=_nothing_in_common(offers))
    step = max(common)
    return Restore(
        global_step=step,
        lost=gone,
        suppliers=tuple(
            Supplier(group=group, holders=tuple(steps[step]), path=available[steps[step][0]][step])
            for group, steps in offers.items()
        ),
    )


def restore_ranks(decision: RestoreDecision) -> str:
    """Return the value of ``RESTORE_RANKS``: the supplying ranks, ascending, or "-1"."""
    if isinstance(decision, Declined):
        return NO_RESTORE
    return ",".join(str(rank) for rank in sorted(supplier.rank for supplier in decision.suppliers))


def restore_ranks_map(decision: RestoreDecision) -> str:
    """Return the value of ``RESTORE_RANKS_MAP``: ``{"0,8": 0, "1,9": 9}``, or "" when declined.

    Keys are whole groups. A reader must split them at the commas: rank 1 is
    not in "10,18".
    """
    if isinstance(decision, Declined):
        return ""
    return json.dumps({_members(supplier.group): supplier.rank for supplier in decision.suppliers})


def restore_ranks_script(decision: RestoreDecision) -> str:
    """Return the text of ``restore_ranks.sh``; it is sourced by a shell, so the map is quoted."""
    script = f"export RESTORE_RANKS={restore_ranks(decision)}\n"
    if isinstance(decision, Declined):
        return script
    return script + f"export RESTORE_RANKS_MAP='{restore_ranks_map(decision)}'\n"


def recovery_info(decision: RestoreDecision) -> str | Declined:
    """Return the text of ``recovery_info.json``: ``{"normal_rank": {"0": 8}, "abnormal_rank": {"8": 0}}``.

    ``abnormal_rank`` gives each lost rank a replacement of its own group and
    ``normal_rank`` is its inverse, so nobody replaces two: declined when a
    group lost more members than it has healthy holders of the common step.
    """
    if isinstance(decision, Declined):
        return decision
    replacement: dict[int, int] = {}
    for supplier in decision.suppliers:
        lost = [rank for rank in supplier.group if rank in decision.lost]
        if len(lost) > len(supplier.holders):
            return Declined(
                why=f"replica group {_text(supplier.group)} lost {len(lost)} ranks "
                f"and has {len(supplier.holders)} to replace them one by one"
            )
        replacement.update(zip(lost, supplier.holders, strict=False))
    return json.dumps(
        {
            "normal_rank": {
                str(replacement[lost]): lost for lost in sorted(replacement, key=replacement.__getitem__)
            },
            "abnormal_rank": {str(lost): replacement[lost] for lost in sorted(replacement)},
        }
    )


def _holders_by_step(healthy: list[int], available: Available) -> dict[int, list[int]]:
    holders: dict[int, list[int]] = {}
    for rank in healthy:
        for step in available.get(rank, {}):
            holders.setdefault(step, []).append(rank)
    return holders


def _nothing_in_common(offers: Mapping[tuple[int, ...], Mapping[int, list[int]]]) -> str:
    """Name the two groups whose newest steps are farthest apart: they show the gap best."""
    newest = sorted((max(steps), group) for group, steps in offers.items())
    if not newest:
        return "there are no replica groups"
    (behind, slow), (ahead, fast) = newest[0], newest[-1]
    return (
        f"no step is whole for every replica group: the newest of {_text(slow)} is {behind}, "
        f"of {_text(fast)} {ahead}, and no step is on both and on all others"
    )


def _text(group: tuple[int, ...]) -> str:
    return "{" + _members(group) + "}"


def _members(group: tuple[int, ...]) -> str:
    return ",".join(str(rank) for rank in group)
