"""Our scheduler with real sockets at its other end: workers that meet, leave, die and talk nonsense."""

import contextlib
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from faultrun.frameworks.mindspore_wire import Frames
from faultrun.model.events import Event, Timer, TimerFired
from faultrun.model.observed.mindspore_rendezvous import ClusterFormed, RankMissed, RanksMet, SchedulerFailed
from faultrun.platforms.ports import fresh_port
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.supervisor.workers.mindspore_scheduler import BuiltinScheduler

_PATIENCE_S = 20.0
_STEP_S = 0.005


@dataclass(slots=True)
class Site:
    """A scheduler for two ranks of incarnation 3, its reactor, and what it reported."""

    scheduler: BuiltinScheduler
    reactor: Reactor
    port: int
    log: Path
    events: list[Event] = field(default_factory=list)
    open_: list[socket.socket] = field(default_factory=list)

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=_PATIENCE_S)
        connection.setblocking(False)
        self.open_.append(connection)
        return connection

    def ask(self, connection: socket.socket, name: bytes, body: bytes) -> None:
        to, sender = b"@127.0.0.1:%d" % self.port, b"9@127.0.0.1:1"
        lengths = (len(name), len(to), len(sender), len(body))
        head = b"RPC0" + b"".join(length.to_bytes(4, "big") for length in lengths)
        connection.sendall(head + name + to + sender + body)

    def answer(self, connection: socket.socket) -> tuple[bytes, bytes]:
        """The next frame that arrives at ``connection``."""
        frames = Frames()
        until_s = self.reactor.clock.now() + _PATIENCE_S
        while self.reactor.clock.now() < until_s:
            self.serve()
            with contextlib.suppress(BlockingIOError):
                found = frames.feed(connection.recv(65536))
                if found:
                    return found[0]
        raise AssertionError("no answer")

    def serve(self) -> None:
        """Let the loop run for a moment, and until it has read all; a timer of ours ends each wait."""
        heard: list[Event] = []
        while True:
            self.reactor.start_timer(Timer.REAP, self.reactor.clock.now() + _STEP_S, 99)
            while not any(isinstance(event, TimerFired) for event in heard):
                heard += self.reactor.wait()
            self.events += [event for event in heard if not isinstance(event, TimerFired)]
            heard.clear()
            if not select.select([self.reactor._epoll.fileno()], [], [], 0)[0]:
                return

    def hangs_up_on(self, connection: socket.socket) -> bool:
        """Whether it does in time, however busy the machine is."""
        until_s = self.reactor.clock.now() + _PATIENCE_S
        while self.reactor.clock.now() < until_s:
            self.serve()
            with contextlib.suppress(BlockingIOError):
                return connection.recv(1) == b""
        return False

    def until(self, kind: type[Event]) -> Event:
        until_s = self.reactor.clock.now() + _PATIENCE_S
        while self.reactor.clock.now() < until_s:
            self.serve()
            for event in self.events:
                if isinstance(event, kind):
                    return event
        raise AssertionError(f"no {kind.__name__} among {self.events}")

    def meet(self) -> list[socket.socket]:
        links = [self.connect(), self.connect()]
        for rank, link in enumerate(links):
            self.ask(link, b"0", b"\n\x01%d\x12\x01h\x1a\tMS_WORKER" % rank)
        assert [self.answer(link) for link in links] == [
            (b"3", b"\x08\x01\x18\x02"),
            (b"3", b"\x08\x01\x10\x01\x18\x02"),
        ]
        return links

    def form(self) -> list[socket.socket]:
        links = self.meet()
        for rank, link in enumerate(links):
            name = b"MCCL_COLLECTIVE_RANK_MS_WORKER_%d" % rank
            self.ask(link, b"6", b"\n" + bytes([len(name)]) + name + b"\x12\x01a")
        for link in links:
            for peer in range(2):
                name = b"MCCL_COLLECTIVE_RANK_MS_WORKER_%d" % peer
                self.ask(link, b"7", b"\n" + bytes([len(name)]) + name)
                assert self.answer(link)[0] == b"11"
        return links


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    reactor = Reactor(RunClock())
    port = fresh_port("127.0.0.1", frozenset())
    scheduler = BuiltinScheduler(reactor, 2, 3, ("127.0.0.1", port), tmp_path / "scheduler.log")
    made = Site(scheduler=scheduler, reactor=reactor, port=port, log=tmp_path / "scheduler.log")
    yield made
    scheduler.close()
    scheduler.close()
    for connection in made.open_:
        connection.close()
    reactor.close()


def test_ranks_meet_form_a_cluster_and_leave_together(site: Site) -> None:
    links = site.form()
    assert [type(event) for event in site.events] == [RanksMet, ClusterFormed]
    assert {event.incarnation for event in site.events} == {3}

    site.ask(links[0], b"1", b"\n\x010")
    site.serve()
    with pytest.raises(BlockingIOError):
        links[0].recv(1)
    site.ask(links[1], b"1", b"\n\x011")
    assert [site.answer(link) for link in links] == [(b"3", b"3")] * 2
    assert "the cluster has formed" in site.log.read_text()


def register(site: Site, rank: int) -> None:
    site.ask(site.connect(), b"0", b"\n\x01%d\x12\x01h\x1a\tMS_WORKER" % rank)


@pytest.mark.parametrize("first", ["it leaves", "the other registers"])
def test_a_rank_that_left_is_missed_once_another_waits_for_it(site: Site, first: str) -> None:
    if first == "it leaves":
        assert list(site.scheduler.left(1)) == []
        register(site, 0)
        told = site.until(RankMissed)
    else:
        register(site, 0)
        site.serve()
        (told,) = site.scheduler.left(1)
    assert isinstance(told, RankMissed)
    assert (told.rank, told.incarnation) == (1, 3)
    assert list(site.scheduler.left(1)) == []
    assert "rank 1 has left" in site.log.read_text()


def test_those_that_leave_after_they_met_are_missed_by_nobody(site: Site) -> None:
    site.form()
    assert list(site.scheduler.left(0)) == []
    assert list(site.scheduler.left(1)) == []


def test_an_unknown_message_is_told_once_and_heartbeats_are_answered_on(site: Site) -> None:
    links = site.form()
    for _ in range(3):
        site.ask(links[0], b"13", b"")
    failed = site.until(SchedulerFailed)
    assert isinstance(failed, SchedulerFailed)
    assert failed.why == "a message called b'13'"

    site.ask(links[1], b"2", b"\n\x011")
    assert site.answer(links[1]) == (b"3", b"\x08\x01\x10\x01\x18\x02")
    assert len([event for event in site.events if isinstance(event, SchedulerFailed)]) == 1


def test_a_stranger_at_the_port_of_a_training_is_sent_away(site: Site) -> None:
    site.form()
    stranger = site.connect()
    stranger.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert site.hangs_up_on(stranger)
    assert not any(isinstance(event, SchedulerFailed) for event in site.events)


def test_another_protocol_before_the_ranks_have_met_is_a_failure(site: Site) -> None:
    site.connect().sendall(b"\x16\x03\x01\x02\x00 a TLS client says hello")
    assert isinstance(site.until(SchedulerFailed), SchedulerFailed)


def test_a_rank_that_died_is_not_waited_for_by_those_who_leave(site: Site) -> None:
    links = site.form()
    site.ask(links[0], b"1", b"\n\x010")
    site.serve()
    links[1].close()
    assert site.answer(links[0]) == (b"3", b"3")


def test_connections_that_say_nothing_are_bounded_and_let_the_ranks_meet(site: Site) -> None:
    silent = [site.connect() for _ in range(10)]
    site.serve()
    links = site.meet()
    assert len(silent) + len(links) == 12
    for _ in range(40):
        site.connect()
    assert site.hangs_up_on(site.open_[-1])
    site.ask(links[0], b"2", b"\n\x010")
    assert site.answer(links[0])[0] == b"3"


def test_it_listens_on_loopback_only_and_lets_the_port_go(site: Site) -> None:
    with pytest.raises(OSError, match="in use"):
        BuiltinScheduler(site.reactor, 2, 4, ("127.0.0.1", site.port), site.log)
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert f"0100007F:{site.port:04X}" in listening
    assert f"00000000:{site.port:04X}" not in listening
    site.meet()
    site.scheduler.close()
    again = BuiltinScheduler(site.reactor, 2, 4, ("127.0.0.1", site.port), site.log)
    again.close()
    assert "before ranks 0 1 had registered" in site.log.read_text()
