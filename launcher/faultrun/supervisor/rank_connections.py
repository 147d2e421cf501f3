"""Who speaks for which rank: workers, newcomers on their way, and those that are parked for later."""

from collections.abc import Collection, Mapping
from typing import Any

from faultrun.model.wire import message
from faultrun.supervisor.control_connections import ControlPeer
from faultrun.supervisor.snapshots.memory import SnapshotMemory


class RankConnections:
    """The connections of this node's ranks. Main thread only.

    A plan names a rank before its new process speaks, and the next plan may keep it by then; a rank that has
    just died may still be kept, beside who is parked for it. So each seat knows which process it waits for:
    the one that was started for this incarnation or since, and whether that one was parked.
    """

    def __init__(self, memory: SnapshotMemory) -> None:
        self._memory = memory
        self.taken: dict[int, ControlPeer] = {}
        self._parked: dict[int, ControlPeer] = {}
        self._incarnation = -1
        self._kept: frozenset[int] = frozenset()
        self._since: dict[int, int] = {}
        """In which incarnation each rank's process was started."""
        self._silent: dict[int, bool] = {}
        """The ranks whose process has not spoken yet, and whether it is the one that was parked for them."""
        self._joins: dict[int, dict[str, Any]] = {}

    def begin(self, incarnation: int, ranks: Collection[int], kept: frozenset[int]) -> None:
        """Forget the workers of the incarnation before, but those that live on; await the others."""
        self._incarnation, self._kept = incarnation, kept
        self._joins.clear()
        for rank in self.taken.keys() - kept:
            del self.taken[rank]
        self._since = {rank: self._since.get(rank, 0) if rank in kept else incarnation for rank in ranks}
        self._silent = {
            rank: rank in kept and self._silent[rank]
            for rank in ranks
            if rank not in kept or rank in self._silent
        }

    def take(self, peer: ControlPeer, rank: int, incarnation: int | None) -> bool:
        """``peer`` is the worker of ``rank``, by its own word.

        False: of a process that is no more, or one that a worker has started and that has its environment.
        """
        if incarnation is None or not self._is_of_now(rank, incarnation):
            return False
        speaks = self.taken.get(rank)
        if speaks is not None and speaks is not peer and speaks.pid != peer.pid:
            return False
        self._seat(peer, rank)
        return True

    def park(self, peer: ControlPeer, rank: int) -> None:
        """``peer`` has run ahead: it takes the place of ``rank`` when a plan says so, or one has."""
        if rank not in self._since:
            return
        if self._silent.get(rank) and rank in self._joins:
            self._seat(peer, rank)
        else:
            self._parked[rank] = peer

    def send_join(self, rank: int, join: Mapping[str, Any], *, parked: bool) -> None:
        """Have ``rank`` enter this incarnation's group, now or as soon as it speaks.

        ``parked``: who takes its place is the one that was parked for it.
        """
        told = {"incarnation": self._incarnation, **join}
        if (worker := self.taken.get(rank)) is not None:
            worker.send(message("join", **told))
            return
        self._joins[rank] = told
        # Else it has just died: who is parked for it waits for the plan that says so.
        if rank in self._silent:
            self._silent[rank] |= parked
            if self._silent[rank] and rank in self._parked:
                self._seat(self._parked.pop(rank), rank)

    def has(self, peer: ControlPeer) -> bool:
        """Whether it speaks for its rank."""
        return peer.rank is not None and self.taken.get(peer.rank) is peer

    def parked(self, rank: int) -> ControlPeer | None:
        """Who waits to take this place."""
        return self._parked.get(rank)

    def parked_for(self, peer: ControlPeer) -> tuple[int, ...]:
        """The place that ``peer`` waits to take, if it does."""
        return tuple(rank for rank, one in self._parked.items() if one is peer)

    def leave(self, peer: ControlPeer) -> None:
        """It has hung up."""
        if peer.rank is not None and self.has(peer):
            del self.taken[peer.rank]
        for rank in self.parked_for(peer):
            del self._parked[rank]

    def _is_of_now(self, rank: int, incarnation: int) -> bool:
        """One that stays may speak first, or again, after a peer has died."""
        if rank not in self._since:
            return False
        late = rank in self._kept and rank not in self.taken and incarnation >= self._since[rank]
        return incarnation == self._incarnation or (late and incarnation < self._incarnation)

    def _seat(self, peer: ControlPeer, rank: int) -> None:
        """From now on ``peer`` is ``rank``; what is kept of that one's state goes to who is new."""
        self.taken[rank] = peer
        peer.rank = rank
        is_new = self._silent.pop(rank, None) is not None
        if (join := self._joins.pop(rank, None)) is None:
            return
        memory = self._memory.of(rank) if is_new else None
        if memory is None:
            peer.send(message("join", **join))
        else:
            peer.send_with(message("join", fds=1, **join), memory)
