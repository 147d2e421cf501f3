"""From which point all nodes of the next incarnation begin: the furthest that every one of them can load.

Pure, over what the nodes stated. With one node it is what that node says.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from faultrun.core.humanize import node_names, rank_names
from faultrun.errors import assert_never
from faultrun.model.checkpoint import Identity, Live, OnNode, RankFile, RecoveryPoint, Shared
from faultrun.model.observed.node_fact import NodeFact
from faultrun.model.plan import Attempt
from faultrun.model.topology import NodeId, Topology


def common_point(
    topology: Topology, facts: Sequence[NodeFact], avoids: Sequence[Attempt] = ()
) -> RecoveryPoint | None:
    """The furthest point that every node of ``topology`` can load; None: there is none.

    ``facts`` are the statements of its nodes, in their order. Each node's own order of
    preference is kept; between nodes the step decides, then the epoch. Where each has its own
    file of that step, each node's ranks get what lies on that node. Of a state that is sharded over the disks
    of the nodes, each must have the files of its own ranks. ``avoids`` are left out while there is another: a
    node alone does not know how the ranks of the others failed.
    """
    if avoids:
        trusted = common_point(topology, [_without(avoids, fact) for fact in facts])
        return trusted or common_point(topology, facts)
    found = (_whole_point(topology, facts), _sharded_point(topology, facts))
    return max((point for point in found if point is not None), key=_position, default=None)


def _without(avoids: Sequence[Attempt], fact: NodeFact) -> NodeFact:
    points = fact.resume.points
    kept = [one for one in points if not any(bad.accuses(one.path, one.identity) for bad in avoids)]
    return fact.able_to_resume(kept)


def _sharded_point(topology: Topology, facts: Sequence[NodeFact]) -> RecoveryPoint | None:
    """The furthest state of which every node has the files of its own ranks, and none of all."""
    parts = [point for fact in facts for point in fact.resume.points if point.part_of]
    for first in sorted(parts, key=_position, reverse=True):
        state = (first.part_of, _position(first))
        own = [
            next((one for one in fact.resume.points if (one.part_of, _position(one)) == state), None)
            for fact in facts
        ]
        both = ((fact, part) for fact, part in zip(facts, own, strict=True) if part is not None)
        held = ((topology.ranks_of(fact.node), file) for fact, part in both for file in part.files)
        files = tuple(file for ranks, file in held if file.rank in ranks)
        if len(files) == topology.world_size:
            return _put_together([part for part in own if part is not None], files, facts[0].node)
    return None


def _put_together(parts: Sequence[RecoveryPoint], files: tuple[RankFile, ...], node: NodeId) -> RecoveryPoint:
    suppliers: dict[str, int] = {}
    for part in parts:
        suppliers |= json.loads(part.restore_ranks_map or "{}")
    return replace(
        parts[0],
        part_of="",
        source=OnNode(node=node),
        files=tuple(sorted(files, key=lambda file: file.rank)),
        restore_ranks=",".join(str(rank) for rank in sorted(set(suppliers.values()))),
        restore_ranks_map=json.dumps(suppliers),
        unverified=any(part.unverified for part in parts),
    )


def _whole_point(topology: Topology, facts: Sequence[NodeFact]) -> RecoveryPoint | None:
    apart = on_own_disks(facts)
    able = ((point for point in fact.resume.points if _reaches_all(point, facts, apart)) for fact in facts)
    best = [next(points, None) for points in able]
    chosen = max((point for point in best if point is not None), key=_position, default=None)
    if chosen is None:
        return None
    copies = [_copy(chosen, fact) or chosen for fact in facts]
    if isinstance(chosen.source, Shared) and not apart and not _differ(copies):
        return chosen
    files = (
        next((file for file in copy.files if file.rank == rank), RankFile(rank=rank, path=copy.path))
        for fact, copy in zip(facts, copies, strict=True)
        for rank in topology.ranks_of(fact.node)
    )
    node = next(fact.node for fact in facts if chosen in fact.resume.points)
    return replace(chosen, source=OnNode(node=node), files=tuple(sorted(files, key=lambda file: file.rank)))


def goes_back(point: RecoveryPoint | None, facts: Sequence[NodeFact], avoids: Sequence[Attempt]) -> bool:
    """Whether one of these nodes told of something further, which is not among ``avoids``."""
    start = (-1, -1, -1) if point is None else _position(point)
    return any(_position(own) > start for fact in facts for own in _without(avoids, fact).resume.points)


def begun_anew(has_saved: str, seated: Sequence[NodeFact]) -> str:
    """Why nodes that know of no checkpoint may not begin anew: the run ``has_saved`` one.

    A node that came after that, with a log_dir of its own, has left it alone: those who knew that it is the
    run's may all be gone.
    """
    return (
        f"no checkpoint of this run is known to {node_names([fact.node for fact in seated])}\n"
        f"  because: it had {has_saved} before; that is gone, or was left alone by a node that came later, "
        "as it may be another run's\n"
        "  try:     --resume=always with another --log_dir, on all nodes: it takes the newest whole one; "
        "another --rdzv-id begins from nothing"
    )


def nothing_in_common(seated: Sequence[NodeFact]) -> str:
    """Why nodes without a point in common may not begin from nothing; empty: they may.

    That would hide what each has, and so would a different step on each node.
    """
    parts = any(own.part_of for fact in seated for own in fact.resume.points)
    if not parts and not on_own_disks(seated) and not any(fact.resume.unseen for fact in seated):
        return ""

    def has(fact: NodeFact) -> str:
        return ", ".join(map(_place_of, fact.resume.points)) or "nothing"

    found = "; ".join(f"node {fact.node} has {has(fact)}" for fact in seated)
    return (
        "the nodes have no checkpoint of the same step\n"
        f"  because: each keeps its own, and they differ: {found}\n"
        "  try:     --checkpoint_dir=DIR on a file system that all nodes share, or keep more saves"
    )


def _place_of(point: RecoveryPoint) -> str:
    ranks = f" of {rank_names([file.rank for file in point.files])}" if point.part_of else ""
    return f"{point.path} ({point.position}{ranks})"


def on_own_disks(facts: Sequence[NodeFact]) -> bool:
    """Whether two nodes see different files under one path, or no path in common: each sees its own disk.

    Who sees none proves nothing, nor does an older statement: a spare may have looked long ago. Nor does who
    sees files of some ranks where another sees those of all: the rest was not written yet when it looked.
    """
    newest = max((fact.incarnation for fact in facts), default=-1)
    new = (fact.resume.points for fact in facts if fact.incarnation == newest)
    wholes = any(not point.part_of for points in new for point in points)
    seen = [
        {point.path: point.identity for point in fact.resume.points}
        for fact in facts
        if fact.incarnation == newest
        and fact.resume.points
        and not (wholes and all(point.part_of for point in fact.resume.points))
    ]
    return any(not _same_folder(seen[0], other) for other in seen[1:])


def _same_folder(one: Mapping[str, Identity | None], other: Mapping[str, Identity | None]) -> bool:
    both = [(one[path], other[path]) for path in one.keys() & other.keys()]
    return bool(both) and all(one is None or other is None or one.same_as(other) for one, other in both)


def _reaches_all(point: RecoveryPoint, facts: Sequence[NodeFact], apart: bool) -> bool:
    match point.source:
        case _ if point.part_of:
            return False
        case Shared() if not apart:
            return all(point.path not in one.resume.unseen or _copy(point, one) for one in facts)
        case Shared() | OnNode():
            return all(_copy(point, fact) is not None for fact in facts)
        case Live():
            return False  # no rank lives on into the next incarnation yet
        case _:
            assert_never(point.source)


def _differ(copies: Sequence[RecoveryPoint]) -> bool:
    """Whether nodes named different files of one step, each of which serves every rank."""
    paths = {file.path for copy in copies for file in copy.files} | {copy.path for copy in copies}
    alone = all(copy.path_for(file.rank) == copy.path for copy in copies for file in copy.files)
    return alone and len(paths) > 1


def _copy(point: RecoveryPoint, fact: NodeFact) -> RecoveryPoint | None:
    """What a node has of the same place in the training."""
    return next(
        (
            own
            for own in fact.resume.points
            if own.source in (Shared(), OnNode(node=fact.node))
            and not own.part_of
            and _position(own) == _position(point)
        ),
        None,
    )


def _position(point: RecoveryPoint) -> tuple[int, int, int]:
    def known(count: int | None) -> int:
        return -1 if count is None else count

    step = point.global_step if point.named_step is None else point.named_step
    return known(step), known(point.epoch), known(point.step_in_epoch)
