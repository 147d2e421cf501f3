"""Who sits where in the next incarnation, and from which point all of them begin.

Pure, over what the nodes stated. With one node both are what that node says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from faultrun.errors import assert_never
from faultrun.model.checkpoint import Live, OnNode, RecoveryPoint, Shared
from faultrun.model.facts import NodeFact
from faultrun.model.topology import NodeId, Topology


def place(
    wanted: Topology, before: Topology | None, facts: Mapping[NodeId, NodeFact], lost: frozenset[NodeId]
) -> Topology | None:
    """Give every seat of the run to a node; None while there are too few.

    Whoever sat somewhere in the incarnation ``before`` stays there. A seat of a ``lost`` node,
    or of one that has not spoken, goes to the spare that arrived first. A run that is
    continued with other slots is placed as it is ``wanted`` now.
    """
    seats = wanted if before is None or _slots(before) != _slots(wanted) else before
    here = {node: fact for node, fact in facts.items() if node not in lost and not fact.status.busy}
    spares = sorted(
        here.keys() - {seat.node for seat in seats.nodes}, key=lambda one: (here[one].arrived, one)
    )
    if sum(seat.node not in here for seat in seats.nodes) > len(spares):
        return None
    free = iter(spares)
    return Topology(
        nodes=tuple(seat if seat.node in here else replace(seat, node=next(free)) for seat in seats.nodes)
    )


def _slots(topology: Topology) -> list[int]:
    return [seat.slots for seat in topology.nodes]


def common_point(topology: Topology, facts: Sequence[NodeFact]) -> RecoveryPoint | None:
    """The furthest point that every node of ``topology`` can load; None: they begin from nothing.

    ``facts`` are the statements of its nodes, in their order. Each node's own order of
    preference is kept; between nodes the step decides, then the epoch.
    """
    best = [next((point for point in fact.points if _reaches_all(point, facts)), None) for fact in facts]
    chosen = max((point for point in best if point is not None), key=_position, default=None)
    if chosen is None or isinstance(chosen.source, Shared):
        return chosen
    own = {fact.node: _copy(chosen, fact) or chosen for fact in facts}
    files = tuple(
        file
        for node, point in own.items()
        for file in point.files
        if len(own) == 1 or file.rank in topology.ranks_of(node)
    )
    return replace(chosen, files=files)


def _reaches_all(point: RecoveryPoint, facts: Sequence[NodeFact]) -> bool:
    match point.source:
        case Shared():
            return True
        case OnNode():
            return all(_copy(point, fact) is not None for fact in facts)
        case Live():
            return False  # nobody lives on into the next incarnation yet
        case _:
            assert_never(point.source)


def _copy(point: RecoveryPoint, fact: NodeFact) -> RecoveryPoint | None:
    """What a node has of the same place in the training on its own disk."""
    return next(
        (
            own
            for own in fact.points
            if own.source == OnNode(node=fact.node) and _position(own) == _position(point)
        ),
        None,
    )


def _position(point: RecoveryPoint) -> tuple[int, int, int]:
    def known(count: int | None) -> int:
        return -1 if count is None else count

    return known(point.global_step), known(point.epoch), known(point.step_in_epoch)
