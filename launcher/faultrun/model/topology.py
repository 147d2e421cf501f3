"""Who takes part in a run: nodes, their slots, and the ranks that follow from them."""

import re
from dataclasses import dataclass, field
from typing import NewType

from faultrun.model.event_base import UNLESS_USED

RunId = NewType("RunId", str)
"""One user request. Comes from outside when a platform has an id for the job."""

NodeId = NewType("NodeId", str)
"""A machine or pod, stable over restarts of its supervisor (pod name, node rank, host name)."""

BootId = NewType("BootId", str)
"""Names one supervisor process, not a start of its machine; random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSlots:
    """One node and how many workers it runs.

    ``places`` are the numbers of its slots that have a worker, in the order of local ranks, where some were
    set aside; empty: local rank i has slot i. A slot's device and processors stay its own.
    """

    node: NodeId
    slots: int
    places: tuple[int, ...] = field(default=(), metadata=UNLESS_USED)

    def place_of(self, local_rank: int) -> int:
        """The slot of a local rank."""
        return self.places[local_rank] if self.places else local_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Nodes in node-rank order; global ranks are the prefix sums of their slots, which may differ."""

    nodes: tuple[NodeSlots, ...]

    @property
    def world_size(self) -> int:
        """Number of workers of the whole run."""
        return sum(entry.slots for entry in self.nodes)

    @property
    def all_ranks(self) -> frozenset[int]:
        """Every global rank."""
        return frozenset(range(self.world_size))

    def node_rank(self, node: NodeId) -> int:
        """Index of ``node``; ValueError if it takes no part."""
        return [entry.node for entry in self.nodes].index(node)

    def ranks_of(self, node: NodeId) -> range:
        """Global ranks that run on ``node``, in local-rank order."""
        index = self.node_rank(node)
        first = sum(entry.slots for entry in self.nodes[:index])
        return range(first, first + self.nodes[index].slots)


NODE_FOLDER = "node_"
"""How the folder of one of several nodes begins."""


def node_folder(node: NodeId) -> str:
    """Where one of several nodes keeps its files, below the log_dir that all of them may share."""
    return f"{NODE_FOLDER}{re.sub(r'[^A-Za-z0-9._-]+', '-', node)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """``by`` has the seat, and so the ranks, that ``node`` had in the incarnation before."""

    node: NodeId
    by: NodeId
    ranks: tuple[int, ...]
