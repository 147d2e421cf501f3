"""The Unix socket: workers report through it, ``faultrun stop`` and friends command through it."""

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultrun.core.control_messages import path, said, seconds, short, whole
from faultrun.model.events import Event, FirstStep, Heartbeat
from faultrun.model.observed.dying_gasp import SaveRequested
from faultrun.model.observed.rejoin import MemoryFaultFound, RankCanRejoin, RankRejoined
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.spec.run_spec import Rendezvous
from faultrun.model.spec.windows import Deadline
from faultrun.model.stop import StopRequested, StopSource
from faultrun.model.topology import NodeId, RunId
from faultrun.model.wire import WINDOW_WORD, message, parse
from faultrun.supervisor.control_connections import (
    ControlPeer,
    identity,
    is_of_same_user,
    listen_at,
    places_in,
)
from faultrun.supervisor.launch.progress_page import ProgressPage
from faultrun.supervisor.rank_connections import RankConnections
from faultrun.supervisor.reactor import BackgroundTasks, Reactor
from faultrun.supervisor.snapshots.memory import NoMemory, SnapshotMemory
from faultrun.supervisor.snapshots.to_files import HeldMemory
from faultrun.supervisor.snapshots.to_next_node import NextNode

_GOODBYE_S, _SAVE_S = 3.0, 60.0
_MOST_GUESTS = 64
"""Connections that are no worker's, half-open ones and those that wait for an answer: so many of each."""
_AGAIN_S, _LOOK_S = 0.5, 2.0


@dataclass(frozen=True, slots=True)
class _GaspAsked:
    """Who was asked to save and leave, until when, and why."""

    ranks: frozenset[int]
    deadline: Deadline
    reason: str


class Control:
    """Listens on ``path``. Only processes of our own user are heard, and only what is well-formed.

    ``next_node``: where there are several, it keeps copies of what is in ``memory``.
    """

    def __init__(
        self,
        log_dir: Path,
        reactor: Reactor,
        stop_window_s: float,
        memory: SnapshotMemory,
        next_node: NextNode | None = None,
    ) -> None:
        self._memory = memory
        self.has_place: Callable[[], bool] = lambda: True
        self.next_node = next_node or NextNode(RunId(""), NodeId(""), Rendezvous(), memory, reactor)
        self.next_node.tell = self._tell
        self._stop_window_s = stop_window_s
        self.path, self._listener = listen_at(*places_in(log_dir))
        self._file, self._gone = identity(self.path), False
        self._reactor, self._looks = reactor, BackgroundTasks(reactor)
        self._peers: dict[int, ControlPeer] = {}
        self._seats = RankConnections(memory)
        self._incarnation = -1
        self._page: ProgressPage | None = None
        self._first_step_told = False
        self._began: dict[int, int] = {}
        self._hears_all = False
        self._stands: dict[int, float] = {}
        """Where each rank that was told to enter a group stands there; infinity: it has not entered it."""
        self._some_stay = False
        self._awaited = frozenset[int]()
        self._gasp: _GaspAsked | None = None
        self._untold: dict[int, bytes] = {}
        reactor.watch(self._listener.fileno(), self._accept)
        reactor.call_at(reactor.now() + _LOOK_S, self._look_after)

    def begin(
        self,
        incarnation: int,
        page: ProgressPage,
        kept: frozenset[int] = frozenset(),
        missing: frozenset[int] = frozenset(),
    ) -> None:
        """Forget the workers of the incarnation before, but those that live on; listen for the others.

        No step is awaited of those that are ``missing``.
        """
        self._incarnation, self._page, self._first_step_told = incarnation, page, False
        self._began.clear()
        self._stands.clear()
        self._gasp = None
        self._some_stay, self._awaited = bool(kept), frozenset(page.ranks) - missing
        if not kept:
            self._memory.drop()
        self._seats.begin(incarnation, page.ranks, kept)
        for rank in self._untold.keys() - kept:
            del self._untold[rank]

    def free_survivors(self, ranks: frozenset[int], timeout_s: float, *, at_boundary: bool = False) -> None:
        """Tell ranks, late ones too, by ``peer_lost`` to leave their group and wait so long for the next."""
        how = {"at_boundary": True} if at_boundary else {}
        line = message("peer_lost", incarnation=self._incarnation, timeout_s=timeout_s, **how)
        for rank in sorted(ranks & self._seats.taken.keys()):
            self._seats.taken[rank].send(line)
        self._untold |= dict.fromkeys(ranks - self._seats.taken.keys(), line)

    def held_memory(self) -> HeldMemory:
        """The memory that ranks were given for snapshots: held until the next ranks begin anew."""
        beside = self.next_node
        return HeldMemory(fds=self._memory.all(), lost=beside.lost, goes_over=beside.goes_over)

    def send_join(self, rank: int, join: Mapping[str, Any], *, parked: bool = False) -> None:
        """Have ``rank`` enter this incarnation's group; a newcomer that is not here yet hears it then.

        ``parked``: its newcomer is the one that waits for that already.
        """
        self._stands[rank] = math.inf
        self._seats.send_join(rank, join, parked=parked)

    def forget_newcomer(self, rank: int) -> None:
        """Forget the standby that waits to take the place of ``rank``: its process is being ended."""
        if (waiting := self._seats.parked(rank)) is not None:
            self._drop(waiting)

    def request_gasp(self, ranks: frozenset[int], deadline: Deadline, *, peers_lost: bool) -> None:
        """Ask ranks to save and leave until then, late comers too. ``peers_lost`` as in RequestGasp."""
        self._gasp = _GaspAsked(ranks, deadline, "peer" if peers_lost else "stop")
        for rank in sorted(ranks & self._seats.taken.keys()):
            self._ask_for_gasp(rank, self._gasp)

    def _ask_for_gasp(self, rank: int, asked: "_GaspAsked") -> None:
        left_s = asked.deadline.left_s(self._reactor.now())
        self._seats.taken[rank].send(message("gasp", **{WINDOW_WORD: round(left_s, 3)}, reason=asked.reason))

    def request_threads(self, ranks: frozenset[int]) -> None:
        """Ask every connected rank for the stacks of its threads."""
        for rank in sorted(ranks & self._seats.taken.keys()):
            self._seats.taken[rank].send(message("threads"))

    def tell_end(self, line: str, exit_code: int) -> None:
        """Tell all verbs that wait for the end, and let them leave first.

        A preStop hook lives in our container: were we PID 1 and gone, it would be killed and count as failed.
        """
        waiting = [peer for peer in self._peers.values() if peer.waits_for_end]
        for peer in waiting:
            peer.send(message("ended", line=line, exit_code=exit_code))
        until_s = self._reactor.now() + _GOODBYE_S
        for peer in waiting:
            peer.wait_for_goodbye(max(0.0, until_s - self._reactor.now()))

    def request_save(self, window_s: float) -> None:
        """Ask every connected rank to save and go on."""
        line = message("save", **{WINDOW_WORD: round(window_s, 3)})
        for rank in self.connected:
            self._seats.taken[rank].send(line)

    @property
    def connected(self) -> tuple[int, ...]:
        """The ranks that can be asked."""
        return tuple(sorted(self._seats.taken))

    def _pass_on(self, rank: int, content: Mapping[str, Any]) -> None:
        """To those who asked for a save without a stop."""
        read = {"step": whole, "path": path, "why": short, "took_s": seconds}
        told = {name: meaning(content[name]) for name, meaning in read.items() if name in content}
        for peer in self._peers.values():
            if peer.watches_saves:
                peer.send(message(str(content["kind"]), rank=rank, **told))

    def close(self) -> None:
        """Stop listening; the socket file goes too."""
        self.next_node.close()
        for peer in list(self._peers.values()):
            self._drop(peer)
        self._stop_listening()
        self._memory.drop()
        if identity(self.path) == self._file:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _stop_listening(self) -> None:
        self._reactor.forget(self._listener.fileno())
        self._listener.close()

    def _look_after(self) -> Iterable[Event]:
        """A cleaner may come where the socket lies: it is made again, for who has not connected yet.

        Not over that of another run, which has the log_dir by now.
        """

        def look() -> Iterable[Event]:
            self._gone = identity(self.path) != self._file
            return ()

        if self._gone and self.has_place():
            with contextlib.suppress(OSError):  # its folder is gone, too, for now
                _, listener = listen_at(self.path)
                self._stop_listening()
                self._listener, self._file, self._gone = listener, identity(self.path), False
                self._reactor.watch(listener.fileno(), self._accept)
        else:
            self._looks.offer(look)
        self._reactor.call_at(self._reactor.now() + _LOOK_S, self._look_after)
        return ()

    def _accept(self) -> Iterable[Event]:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # no descriptor or memory is left: new connections wait in the queue
            yield from self._make_room(0)
            self._pause()
            return
        if not is_of_same_user(connection):
            connection.close()
            return
        connection.setblocking(False)
        peer = ControlPeer(connection)
        self._peers[peer.fd] = peer
        self._reactor.watch(peer.fd, lambda: self._read(peer))
        yield from self._make_room(_MOST_GUESTS)

    def _make_room(self, most: int) -> Iterable[Event]:
        """Hang up on the oldest of those who speak for no rank; those who have asked for something apart."""
        guests = [peer for peer in self._peers.values() if self._is_guest(peer)]
        asked = [peer for peer in guests if peer.waits_for_end or peer.watches_saves]
        silent = [peer for peer in guests if peer not in asked]
        for peer in (*asked[: max(0, len(asked) - most)], *silent[: max(0, len(silent) - most)]):
            yield from self._read(peer)  # a worker says who it is at once, and is none of them from then on
            if self._is_guest(peer):
                self._drop(peer)

    def _is_guest(self, peer: ControlPeer) -> bool:
        return not self._seats.has(peer) and not self._seats.parked_for(peer)

    def _pause(self) -> None:
        """Listen again in a moment: a socket that cannot be accepted is readable for ever."""

        def listen_again() -> Iterable[Event]:
            self._reactor.watch(self._listener.fileno(), self._accept)
            return ()

        self._reactor.forget(self._listener.fileno())
        self._reactor.call_at(self._reactor.now() + _AGAIN_S, listen_again)

    def _read(self, peer: ControlPeer) -> Iterable[Event]:
        for line in peer.lines():
            if (content := parse(line)) is not None:
                yield from self._heard(peer, content)
        if peer.gone:
            self._drop(peer)

    def _heard(self, peer: ControlPeer, content: Mapping[str, Any]) -> Iterable[Event]:
        if (kind := content["kind"]) == "hello":
            yield from self._welcome(peer, content)
        elif kind == "can_join":
            for rank in self._seats.parked_for(peer):
                at_s, state = self._reactor.now(), StandbyPhase.PARKED
                yield StandbyChanged(at_s=at_s, incarnation=self._incarnation, rank=rank, state=state)
        elif peer.rank is not None:
            if self._seats.has(peer):
                yield from self._worker_says(peer.rank, content)
        elif kind == "stop":
            source = StopSource.PRESTOP if content.get("source") == "prestop" else StopSource.CONTROL
            peer.waits_for_end = True
            now_s, late_s = self._reactor.now(), seconds(content.get("late_s"))
            yield StopRequested(at_s=now_s, incarnation=self._incarnation, source=source, late_s=late_s)
            peer.send(message("stopping", window_s=self._stop_window_s))
        elif kind == "save":
            window_s = seconds(content.get(WINDOW_WORD)) or _SAVE_S
            yield SaveRequested(at_s=self._reactor.now(), incarnation=self._incarnation, window_s=window_s)
            peer.watches_saves = True
            peer.send(message("saving", ranks=self.connected, **{WINDOW_WORD: window_s}))

    def _welcome(self, peer: ControlPeer, hello: Mapping[str, Any]) -> Iterable[Event]:
        """Take ``peer`` for the worker that ``hello`` names, and send it what it has missed."""
        rank, known = whole(hello.get("rank")), self._seats.has(peer)
        peer.pid = whole(hello.get("pid"))
        if rank is None:
            return
        if (before := self._seats.taken.get(rank)) is not None and before is not peer:
            yield from self._read(before)  # it may have hung up
        if hello.get("parked") is True:
            self._seats.park(peer, rank)
        elif self._seats.take(peer, rank, whole(hello.get("incarnation"))):
            if rank in self._untold:
                peer.send(self._untold.pop(rank))
            self.next_node.greet(rank)
            if self._gasp is not None and rank in self._gasp.ranks and not known:
                self._ask_for_gasp(rank, self._gasp)

    def _worker_says(self, rank: int, content: Mapping[str, Any]) -> Iterable[Event]:
        if content["kind"] in ("saved", "failed"):
            self._pass_on(rank, content)
        if content["kind"] == "snapshot":
            self._grant(rank, whole(content.get("bytes")) or 0, shard=content.get("whole") is True)
        elif content["kind"] == "next_node":
            self.next_node.goes_to(whole(content.get("incarnation")), short(content.get("at")))
        elif content["kind"] == "step":
            yield from self._first_step(rank, whole(content.get("step")))
        else:
            event = said(content, rank, self._incarnation, self._reactor.now())
            if isinstance(event, RankRejoined) and event.incarnation == self._incarnation:
                self._stands[rank] = event.step
            if isinstance(event, MemoryFaultFound) or (isinstance(event, RankCanRejoin) and event.waits):
                yield from self._said_before(rank)
                yield from self._newest_steps()
            if event is not None:
                yield event

    def _said_before(self, rank: int) -> Iterable[Event]:
        """What all but ``rank`` have said by now: a supervisor that is late reads rank after rank."""
        if self._hears_all:  # one of them is not to have the first read on in the middle
            return
        self._hears_all = True
        for other, peer in sorted(self._seats.taken.items()):
            if other != rank and self._seats.has(peer):
                yield from self._read(peer)
        self._hears_all = False

    def _newest_steps(self) -> Iterable[Event]:
        """How far each rank is, read before a fault is judged, or ranks leave their group for others."""
        steps = () if self._page is None else self._page.steps()
        if steps:
            yield Heartbeat(at_s=self._reactor.now(), incarnation=self._incarnation, steps=steps)

    def _grant(self, rank: int, size_bytes: int, *, shard: bool) -> None:
        given = self._memory.grant(rank, size_bytes)
        if isinstance(given, NoMemory):
            self._seats.taken[rank].send(message("snapshot_refused", why=given.why))
            return
        self._seats.taken[rank].send_with(message("snapshot_fd", fds=1), given)
        if shard:
            self.next_node.granted(rank, given)

    def _tell(self, rank: int, line: bytes) -> None:
        if rank in self._seats.taken:
            self._seats.taken[rank].send(line)

    def _first_step(self, rank: int, step: int | None) -> Iterable[Event]:
        if step is not None and step > self._stands.get(rank, -1):
            self._began.setdefault(rank, step)
        steps = self._page.steps() if self._page is not None and not self._first_step_told else ()
        if not steps or len(steps) < len(self._awaited):
            return
        if len(self._began) < len(self._awaited) and self._some_stay:
            return
        self._first_step_told = True
        newest = max(step.step for step in steps)
        began = min(self._began.values(), default=newest)
        yield FirstStep(at_s=self._reactor.now(), incarnation=self._incarnation, step=newest, began=began)

    def _drop(self, peer: ControlPeer) -> None:
        self._reactor.forget(peer.fd)
        self._peers.pop(peer.fd, None)
        self._seats.leave(peer)
        peer.close()
