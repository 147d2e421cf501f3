"""The place where ranks of several nodes meet, as they see it: who gets in, and what there is room for."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from faultrun.model.events import Timer, TimerFired
from faultrun.sdk.stay.tcp_store import RendezvousClient
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.supervisor.stay.rendezvous_store import RendezvousStore

RANKS = 100
GO_ON = TimerFired(at_s=0.0, incarnation=0, timer=Timer.GRACE)
PATIENCE_S = 120.0


@pytest.fixture
def place() -> Iterator[tuple[RendezvousStore, Reactor]]:
    with opened() as place:
        yield place


@contextmanager
def opened(**how: int) -> Iterator[tuple[RendezvousStore, Reactor]]:
    reactor = Reactor(RunClock())
    reactor.start_timer(Timer.GRACE, PATIENCE_S, 0)  # that is the end of any wait
    one = RendezvousStore(reactor, "127.0.0.1", RANKS, **how)
    yield one, reactor
    one.close()
    reactor.close()


def test_all_ranks_may_knock_before_this_node_knows_the_plan(place: tuple[RendezvousStore, Reactor]) -> None:
    """The other nodes have, by some milliseconds. Then all meet."""
    meeting, reactor = place
    knocked = threading.Barrier(RANKS)

    def comes(number: int) -> int:
        store = RendezvousClient(f"127.0.0.1:{meeting.port}", "secret", PATIENCE_S)
        if knocked.wait(PATIENCE_S) == 0:
            reactor.post(GO_ON)
        try:
            return store.add("count", 1)
        finally:
            store.close()

    with ThreadPoolExecutor(RANKS) as ranks:
        come = [ranks.submit(comes, number) for number in range(RANKS)]
        reactor.wait()
        meeting.opens("secret")
        for one in come:
            one.add_done_callback(lambda _: reactor.post(GO_ON))
        while not all(one.done() for one in come):
            reactor.wait()
    assert sorted(one.result() for one in come) == list(range(1, RANKS + 1))


def test_what_is_written_over_or_removed_takes_no_room() -> None:
    told: list[object] = []

    def asks(port: int, reactor: Reactor) -> None:
        store = RendezvousClient(f"127.0.0.1:{port}", "secret", PATIENCE_S)
        try:
            for _ in range(20):
                store.set("one", b"x" * 90)
                store.add("two", 1)
            told.append(store.drop("one"))
            store.set("three", b"x" * 90)
            told.append(store.get(["three"], 0.0))
            store.set("more", b"x" * 90)
        except OSError as error:
            told.append(type(error))
        finally:
            store.close()
            reactor.post(GO_ON)

    with opened(most_bytes=100) as (meeting, reactor):
        meeting.opens("secret")
        rank = threading.Thread(target=asks, args=(meeting.port, reactor))
        rank.start()
        reactor.wait()
        rank.join()
    assert told == [True, [b"x" * 90], ConnectionError]
