"""Has shards' memory snapshots kept by the next node: starts and feeds the program that sends and takes in.

Nothing is started before a rank asks for memory for a state that no other has, nor on a node alone. What
comes from the node before lies in memory of ours (``SnapshotMemory``), like what our own ranks keep.
"""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from faultrun.core.control_messages import short, whole
from faultrun.model.events import Event
from faultrun.model.observed.rendezvous_store import meeting_secret
from faultrun.model.plan import Plan
from faultrun.model.spec.run_spec import Rendezvous
from faultrun.model.topology import BootId, NodeId, RunId
from faultrun.model.wire import message, parse
from faultrun.platforms.ports import port_in
from faultrun.supervisor.control_connections import ControlPeer
from faultrun.supervisor.reactor import Reactor
from faultrun.supervisor.snapshots.memory import NoMemory, SnapshotMemory

_PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path);"
    " from faultrun.sdk.snapshots.exchange import main; main()"
)
"""Not ``-m``, which imports from the folder of the training first."""
_GONE_S = 1.0
_AFTER_START_S = 1.0
"""Ranks that form a group again need the processors first."""
_MOST_BYTES = 1 << 46


class NextNode:
    """Sends copies of the node ``node``, which listens where its workers do. Main thread."""

    def __init__(
        self, run_id: RunId, node: NodeId, meeting: Rendezvous, memory: SnapshotMemory, reactor: Reactor
    ) -> None:
        self._run_id, self._node, self._host, self._ports = run_id, node, meeting.master_addr, meeting.ports
        self._memory, self._reactor = memory, reactor
        self._plan: Plan | None = None
        self._shards: set[int] = set()
        self._program: _Program | None = None
        self._leaving: list[_Program] = []
        self._at = ""
        self._goes_out = False
        self.lost: frozenset[int] = frozenset()
        """Ranks of the node before, of which copies are here: it has gone without a word."""
        self.tell: Callable[[int, bytes], None] = lambda _rank, _line: None
        """Says something to a rank that is there."""

    @property
    def goes_over(self) -> bool:
        """Whether the next node was found, in this incarnation or one that its ranks have outlived."""
        return self._goes_out

    def begin(self, plan: Plan) -> None:
        """An incarnation begins. What is kept of a node that is lost stays while any rank does."""
        self._end_program()
        before, self._plan, self._at = self._plan, plan, ""
        if plan.kept:
            self.lost |= self._moved(before)
        else:
            self._shards.clear()
            self.lost, self._goes_out = frozenset(), False
        if self._shards & frozenset(self._ranks):
            self._reactor.call_at(self._reactor.now() + _AFTER_START_S, lambda: self._send_kept(plan))

    def _moved(self, before: Plan | None) -> frozenset[int]:
        """Ranks with copies here whose place another supervisor has now.

        Theirs may have gone before its program of that incarnation had connected: nothing else tells of it.
        """
        if before is None or self._plan is None:
            return frozenset()
        old, new = _supervisors(before), _supervisors(self._plan)
        copied = (rank for rank in self._memory.all() if self._is_foreign(rank))
        return frozenset(rank for rank in copied if rank in old and old[rank] != new.get(rank))

    def _send_kept(self, plan: Plan) -> Iterable[Event]:
        if plan is self._plan:
            for rank in sorted(self._shards & frozenset(self._ranks)):
                if (fd := self._memory.of(rank)) is not None:
                    self._send(rank, fd)
        return ()

    def granted(self, rank: int, fd: int) -> None:
        """This rank of ours has memory for a state that no other has."""
        self._shards.add(rank)
        self._send(rank, fd)

    def goes_to(self, incarnation: int | None, at: str) -> None:
        """A rank has found out where the next node listens."""
        if self._plan is not None and incarnation == self._plan.incarnation and self._program is not None:
            self._goes_out = True
            self._program.say("next", at=at)

    def greet(self, rank: int) -> None:
        """A rank is there: copies are taken in. The first is to find out where the next node listens."""
        if self._plan is None or not self._at or rank not in self._ranks:
            return
        nodes, own = len(self._plan.topology.nodes), self._plan.topology.node_rank(self._node)
        number, following = self._plan.incarnation, (own + 1) % nodes
        asked = rank == self._ranks[0]
        line = message("copies_at", incarnation=number, at=self._at, own=own, next=following, asked=asked)
        self.tell(rank, line)

    def close(self) -> None:
        """End the program; the node before hears that this one leaves as it should."""
        self._end_program()
        for program in self._leaving:
            program.close()
        self._leaving.clear()

    @property
    def _ranks(self) -> tuple[int, ...]:
        plan = self._plan
        seated = plan is not None and any(seat.node == self._node for seat in plan.topology.nodes)
        return tuple(plan.topology.ranks_of(self._node)) if plan is not None and seated else ()

    def _send(self, rank: int, fd: int) -> None:
        if self._plan is None or len(self._plan.topology.nodes) < 2:
            return
        if self._program is None:
            secret = f"copies {meeting_secret(self._run_id, self._plan)}"
            try:
                port = port_in(self._host, self._ports)
                program = _Program(self._reactor, self._heard)
            except OSError as error:
                self._tell_end(f"its program cannot be started: {error.strerror}")
                return
            self._program = program
            program.say("begin", run_id=self._run_id, secret=secret, host=self._host, port=port)
        self._program.say_with(fd, "rank", rank=rank, fds=1)

    def _heard(self, program: "_Program", told: dict[str, Any] | None) -> None:
        """None: the program has ended."""
        if told is None and program in self._leaving:
            self._leaving.remove(program)
        if program is not self._program:
            return
        match told:
            case None:
                self._program = None
                self._tell_end("its program has ended")
            case {"kind": "listens", "port": int(port)}:
                host = f"[{self._host}]" if ":" in self._host else self._host
                self._at = f"{host}:{port}"
                for rank in self._ranks:
                    self.greet(rank)
            case {"kind": "room", "rank": int(rank), "bytes": int(size)}:
                self._make_room(program, rank, size)
            case {"kind": "alone", "ranks": list(ranks)}:
                known = (whole(rank) for rank in ranks)
                self.lost = frozenset(rank for rank in known if rank is not None and self._is_foreign(rank))
            case {"kind": "beside"}:
                self.lost = frozenset()
            case {"kind": "ended"}:
                self._tell_end(short(told.get("why", "")))

    def _is_foreign(self, rank: int) -> bool:
        world = 0 if self._plan is None else self._plan.topology.world_size
        return 0 <= rank < world and rank not in self._ranks

    def _make_room(self, program: "_Program", rank: int, size_bytes: int) -> None:
        given: int | NoMemory = NoMemory("it is no rank of another node")
        if self._is_foreign(rank) and 0 < size_bytes < _MOST_BYTES:
            given = self._memory.grant_again(rank, size_bytes)
        if isinstance(given, NoMemory):
            program.say("no_room", rank=rank, why=given.why)
        else:
            program.say_with(given, "room", rank=rank, fds=1)

    def _tell_end(self, why: str) -> None:
        if self._plan is not None:
            line = message("copies_end", incarnation=self._plan.incarnation, why=why)
            for rank in self._ranks:
                self.tell(rank, line)

    def _end_program(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            program.say("end")
            self._leaving.append(program)


def _supervisors(plan: Plan) -> dict[int, tuple[NodeId, BootId]]:
    """Map each rank to its node and that node's boot; journals that do not tell give none."""
    seats = zip(plan.topology.nodes, plan.boots, strict=False)
    return {rank: (seat.node, boot) for seat, boot in seats for rank in plan.topology.ranks_of(seat.node)}


class _Program:
    """The process, and our end of its standard input."""

    def __init__(self, reactor: Reactor, heard: "Callable[[_Program, dict[str, Any] | None], None]") -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        # It leaves with us: a Ctrl-C, or a platform that tells every process to stop, means the ranks.
        usual = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, usual)
            its.close()
        ours.setblocking(False)
        self._peer = ControlPeer(ours)
        self._reactor, self._tell = reactor, heard
        reactor.watch(self._peer.fd, self._read)

    def say(self, kind: str, **fields: Any) -> None:
        self._peer.send(message(kind, **fields))

    def say_with(self, fd: int, kind: str, **fields: Any) -> None:
        self._peer.send_with(message(kind, **fields), fd)

    def _read(self) -> Iterable[Event]:
        for line in self._peer.lines():
            if (content := parse(line)) is not None:
                self._tell(self, content)
        if self._peer.gone:
            self.close()
            self._tell(self, None)
        return ()

    def close(self) -> None:
        """Wait for its end, and kill it if that does not come soon."""
        self._reactor.forget(self._peer.fd)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GONE_S)
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        self._peer.close()
