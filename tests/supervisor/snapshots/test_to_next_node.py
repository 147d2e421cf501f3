"""Two nodes keep copies of each other's shards, by the programs beside their supervisors."""

import mmap
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from faultrun.model.events import Timer
from faultrun.model.plan import Ledger, Plan, Reason
from faultrun.model.spec.run_spec import Rendezvous
from faultrun.model.topology import BootId, NodeId, NodeSlots, RunId, Topology
from faultrun.model.wire import parse
from faultrun.sdk.snapshots.buffer import SnapshotOwner, Snapshots, Texts, bytes_needed
from faultrun.sdk.snapshots.exchange import notice_a_dead_host
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.supervisor.snapshots.memory import SnapshotMemory
from faultrun.supervisor.snapshots.to_next_node import NextNode
from support.machine.processes import wait_until

TEXTS = Texts(plan=b"plan")
SIZE = bytes_needed(TEXTS, [1000])
PLAN = Plan(
    incarnation=0,
    topology=Topology(nodes=tuple(NodeSlots(node=NodeId(name), slots=1) for name in ("a", "b"))),
    reason=Reason.FIRST,
    point=None,
    start_at_s=0.0,
    ledger=Ledger(),
    boots=(BootId("boot a"), BootId("boot b")),
)


@dataclass
class Side:
    """One node with a rank, and what that was told."""

    rank: int
    reactor: Reactor
    free: int | None = None
    told: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory = SnapshotMemory(lambda: self.free)
        self.next_node = NextNode(
            RunId("run"), NodeId("ab"[self.rank]), Rendezvous(), self.memory, self.reactor
        )
        self.next_node.tell = lambda rank, line: self.told.append({"to": rank, **(parse(line) or {})})

    def copies(self, *steps: int) -> Snapshots:
        fd = self.memory.grant(self.rank, SIZE)
        assert isinstance(fd, int)
        copies = self.of(self.rank)
        for step in steps:
            self.write(copies, step)
        self.next_node.granted(self.rank, fd)
        return copies

    def write(self, copies: Snapshots, step: int, incarnation: int = 0) -> None:
        copies.write(step, incarnation, TEXTS, [memoryview(bytearray([step]) * 1000)])

    def of(self, rank: int) -> Snapshots:
        fd = self.memory.of(rank)
        memory = bytearray(SIZE) if fd is None else mmap.mmap(fd, 0)
        return Snapshots(memory, SnapshotOwner(run_id="run", rank=rank))

    def said(self, kind: str, incarnation: int = 0) -> dict[str, Any] | None:
        return next(
            (one for one in self.told if (one["kind"], one["incarnation"]) == (kind, incarnation)), None
        )


@dataclass
class Pair:
    reactor: Reactor
    a: Side
    b: Side

    def works_until(self, reached: Any, what: str) -> None:
        """Both supervisors' loop, which is one here."""

        def worked() -> bool:
            self.reactor.start_timer(Timer.GRACE, self.reactor.now() + 0.01, 0)
            self.reactor.wait()
            return bool(reached())

        wait_until(worked, what=what)

    def begins(self, plan: Plan) -> None:
        for side in (self.a, self.b):
            side.next_node.begin(plan)

    def meet(self, incarnation: int = 0) -> None:
        """As the ranks find it out over the store of their group."""
        for side, other in ((self.a, self.b), (self.b, self.a)):
            self.works_until(lambda of=other: of.said("copies_at", incarnation), "a node to listen")
            side.next_node.goes_to(incarnation, other.said("copies_at", incarnation)["at"])  # type: ignore[index]

    def signals_program_of(self, side: Side, *signals: int) -> None:
        program = side.next_node._program
        assert program is not None
        for signum in signals:
            os.kill(program._process.pid, signum)


@pytest.fixture
def pair() -> Iterator[Pair]:
    reactor = Reactor(RunClock())
    both = Pair(reactor, Side(0, reactor), Side(1, reactor))
    yield both
    for side in (both.a, both.b):
        side.next_node.close()
        side.memory.drop()
    reactor.close()


def test_each_has_the_copies_of_the_other_until_one_is_lost_and_what_is_here_of_it_stays(pair: Pair) -> None:
    a, b = pair.a, pair.b
    pair.begins(PLAN)
    theirs, _ = b.copies(6, 7), a.copies(7)
    pair.meet()
    at = a.said("copies_at")
    assert at is not None
    assert (at["to"], at["own"], at["next"], at["asked"]) == (0, 0, 1, True)
    pair.works_until(lambda: theirs.is_elsewhere(7) and a.of(1).steps == {6, 7}, "copies of rank 1 at node a")
    # As Ctrl-C does, or a platform that tells every process; that the node leaves is no loss of it.
    pair.signals_program_of(b, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    b.write(theirs, 8)
    pair.works_until(lambda: a.of(1).steps == {7, 8} and b.of(0).steps == {7}, "the next copy")
    assert not a.next_node.lost
    # Its ranks live on in the next incarnation, and what they have is sent anew.
    stayed = replace(PLAN, incarnation=1, kept=frozenset({0, 1}), since=0)
    pair.begins(stayed)
    theirs.belong_to(1)
    assert a.of(1).steps == {7, 8}
    assert not a.next_node.lost
    pair.meet(1)
    pair.works_until(lambda: a.of(1).newest_incarnation == 1 and a.of(1).steps == {7, 8}, "copies sent anew")
    b.write(theirs, 9, incarnation=1)  # the others may have been sent by the program that was leaving
    pair.works_until(lambda: a.of(1).steps == {8, 9}, "a copy by the program of this incarnation")
    pair.signals_program_of(b, signal.SIGKILL)
    pair.works_until(lambda: a.next_node.lost == {1}, "node a to know that b is lost")
    pair.works_until(lambda: b.said("copies_end", 1), "the rank of b to be told")
    a.next_node.begin(replace(stayed, incarnation=2, kept=frozenset({0})))
    assert a.next_node.lost == {1}
    assert a.of(1).steps == {8, 9}
    a.next_node.begin(replace(stayed, incarnation=3, kept=frozenset()))
    assert not a.next_node.lost


def test_a_node_that_is_replaced_before_it_connects_again_is_lost_and_its_copies_stay(pair: Pair) -> None:
    a, b = pair.a, pair.b
    pair.begins(PLAN)
    theirs, _ = b.copies(6, 7), a.copies(7)
    pair.meet()
    pair.works_until(lambda: theirs.is_elsewhere(7), "copies of rank 1 at node a")
    a.next_node.begin(replace(PLAN, incarnation=1, kept=frozenset({0, 1}), since=0))
    assert not a.next_node.lost
    seats = (PLAN.topology.nodes[0], NodeSlots(node=NodeId("c"), slots=1))
    other = replace(PLAN, topology=Topology(nodes=seats), boots=(BootId("boot a"), BootId("boot c")))
    a.next_node.begin(replace(other, incarnation=2, kept=frozenset({0}), since=0))
    assert a.next_node.lost == {1}
    assert a.of(1).steps == {6, 7}
    a.next_node.begin(replace(other, incarnation=3, kept=frozenset()))
    assert not a.next_node.lost


def test_where_memory_is_short_there_the_ranks_here_are_told_and_none_that_leaves_is_lost(pair: Pair) -> None:
    a, b = pair.a, pair.b
    a.free = 3 * SIZE
    pair.begins(PLAN)
    a.copies(7)
    b.copies(7)
    a.free = SIZE
    pair.meet()
    pair.works_until(lambda: b.said("copies_end"), "rank 1 to hear of it")
    assert "more than half of the" in (b.said("copies_end") or {})["why"]
    pair.works_until(lambda: b.of(0).steps == {7}, "the copy of rank 0")
    a.next_node.close()
    pair.works_until(lambda: a.reactor is not None, "its end")
    assert not b.next_node.lost


def test_a_host_that_dies_is_noticed_whoever_spoke_last() -> None:
    """The kernel probes only while all that was sent has arrived; an answer on its way has another limit."""
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    with socket.socket() as one:
        notice_a_dead_host(one)
        told = {name: one.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names}
    probed_s = told["TCP_KEEPIDLE"] + told["TCP_KEEPCNT"] * told["TCP_KEEPINTVL"]
    assert 0 < told["TCP_USER_TIMEOUT"] <= 1000 * probed_s < 10_000, "less than a lease"


def test_a_node_alone_starts_nothing(pair: Pair, tmp_path: Path) -> None:
    alone = replace(PLAN, topology=Topology(nodes=PLAN.topology.nodes[:1]))
    pair.a.next_node.begin(alone)
    pair.a.copies(7)
    assert pair.a.next_node._program is None
    assert not pair.a.told
