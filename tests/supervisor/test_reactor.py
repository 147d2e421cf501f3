"""The one place to wait: descriptors, timers, and what other threads post."""

import os
import threading
from collections.abc import Iterable, Iterator

import pytest

from faultrun.model.events import Event, FirstStep, Timer, TimerFired
from faultrun.supervisor.reactor import BackgroundTasks, Reactor, RunClock
from support.machine.hands import Hands
from support.machine.processes import no_more_threads


def step(number: int) -> Event:
    return FirstStep(at_s=0, incarnation=0, step=number)


def numbers(events: Iterable[Event]) -> list[int]:
    return [event.step for event in events if isinstance(event, FirstStep)]


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor(RunClock())
    yield reactor
    reactor.close()


class Bell:
    """A pipe that rings the reactor with a number."""

    def __init__(self, reactor: Reactor, number: int) -> None:
        self._read_end, self._write_end = os.pipe()
        self._number, self._reactor = number, reactor
        reactor.watch(self._read_end, self._heard)

    def ring(self) -> None:
        os.write(self._write_end, b"!")

    def close(self) -> None:
        self._reactor.forget(self._read_end)
        os.close(self._read_end)
        os.close(self._write_end)

    def _heard(self) -> Iterable[Event]:
        os.read(self._read_end, 1)
        yield step(self._number)


def test_what_is_posted_comes_in_its_order(reactor: Reactor) -> None:
    for number in range(5):
        reactor.post(step(number))
    assert numbers(reactor.wait()) == [0, 1, 2, 3, 4]


def test_descriptors_come_in_the_order_in_which_they_became_ready(reactor: Reactor) -> None:
    bells = [Bell(reactor, number) for number in range(4)]
    for number in (2, 0, 3, 1):
        bells[number].ring()
    assert numbers(reactor.wait()) == [2, 0, 3, 1]
    for bell in bells:
        bell.close()


def test_what_we_did_comes_before_what_it_led_to(reactor: Reactor) -> None:
    bell = Bell(reactor, 1)
    bell.ring()
    reactor.post(step(0))
    assert numbers(reactor.wait()) == [0, 1]
    bell.close()


def test_a_descriptor_that_was_forgotten_while_others_were_heard_is_not_heard(reactor: Reactor) -> None:
    read_end, write_end = os.pipe()

    def forget_the_other() -> Iterable[Event]:
        reactor.forget(read_end)
        return [step(0)]

    first_read, first_write = os.pipe()
    reactor.watch(first_read, forget_the_other)
    reactor.watch(read_end, lambda: [step(1)])
    os.write(first_write, b"!")
    os.write(write_end, b"!")
    assert numbers(reactor.wait()) == [0]
    reactor.forget(4711)
    for fd in (read_end, write_end, first_read, first_write):
        os.close(fd)


def test_timers_fire_in_the_order_of_their_times(reactor: Reactor) -> None:
    now_s = reactor.clock.now()
    reactor.start_timer(Timer.REAP, now_s + 0.02, 1)
    reactor.start_timer(Timer.GRACE, now_s + 0.01, 2)
    reactor.start_timer(Timer.BACKOFF, now_s - 5, 3)
    fired: list[Event] = []
    while len(fired) < 3:
        fired += reactor.wait()
    assert [event.incarnation for event in fired] == [3, 2, 1]


def test_a_replaced_timer_does_not_fire_and_does_not_end_the_wait(reactor: Reactor) -> None:
    now_s = reactor.clock.now()
    reactor.start_timer(Timer.GRACE, now_s + 0.01, 1)
    reactor.start_timer(Timer.GRACE, now_s + 0.03, 2)
    (fired,) = reactor.wait()
    assert isinstance(fired, TimerFired)
    assert (fired.incarnation, fired.at_s >= now_s + 0.03) == (2, True)


def test_another_thread_wakes_the_loop(reactor: Reactor) -> None:
    threads = [threading.Thread(target=reactor.post, args=(step(number),)) for number in range(20)]
    for thread in threads:
        thread.start()
    heard: list[int] = []
    while len(heard) < 20:
        heard += numbers(reactor.wait())
    assert sorted(heard) == list(range(20))
    for thread in threads:
        thread.join()


def test_the_clock_goes_on_from_where_the_journal_stopped() -> None:
    clock = RunClock(1000.0)
    assert 1000.0 <= clock.now() < 1001.0
    assert all(now_s == round(now_s, 6) for now_s in (clock.now() for _ in range(50)))


def test_tasks_are_run_one_after_the_other(reactor: Reactor) -> None:
    tasks = BackgroundTasks(reactor)
    may_end = threading.Event()

    def slow() -> Iterable[Event]:
        assert may_end.wait(10)
        yield step(1)

    tasks.send(slow)
    tasks.send(lambda: [step(2)])
    reactor.post(step(0))
    assert numbers(reactor.wait()) == [0], "the loop goes on meanwhile"
    may_end.set()
    heard: list[int] = []
    while len(heard) < 2:
        heard += numbers(reactor.wait())
    assert heard == [1, 2]
    tasks.settle(10)


def test_a_bug_in_a_task_is_raised_in_the_loops_thread(reactor: Reactor) -> None:
    tasks = BackgroundTasks(reactor)

    def broken() -> Iterable[Event]:
        yield from ()
        raise ZeroDivisionError("a bug")

    tasks.send(broken)
    with pytest.raises(ZeroDivisionError):
        reactor.wait()


def test_without_a_thread_a_task_is_done_at_once_and_what_may_be_left_out_is_not(reactor: Reactor) -> None:
    tasks = BackgroundTasks(reactor)
    with no_more_threads():
        tasks.offer(lambda: [step(1)])
        tasks.send(lambda: [step(2)])
    assert tasks.idle()
    tasks.settle(None)
    assert numbers(reactor.wait()) == [2]


def test_without_another_thread_a_task_waits_for_the_one_before(reactor: Reactor) -> None:
    tasks = BackgroundTasks(reactor)
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> Iterable[Event]:
        begun.set()
        assert may_end.wait(10)
        yield step(1)

    tasks.send(slow)
    assert begun.wait(10)
    with no_more_threads():
        tasks.offer(lambda: [step(0)])
        may_end.set()
        tasks.send(lambda: [step(2)])
    heard: list[int] = []
    while len(heard) < 2:
        heard += numbers(reactor.wait())
    assert heard == [1, 2]


def test_a_task_that_takes_for_ever_is_waited_for_once() -> None:
    clock = Hands()
    reactor = Reactor(clock)
    tasks = BackgroundTasks(reactor)
    begun, may_end = threading.Event(), threading.Event()

    def hangs() -> Iterable[Event]:
        begun.set()
        assert may_end.wait(10)
        return ()

    clock.at_s = 7.0
    assert tasks.occupied_s(5) == 0, "nothing is under way"
    tasks.send(hangs)
    assert begun.wait(10)
    tasks.send(lambda: ())
    seen = []
    for clock.at_s in (7.0, 10.0, 12.0, 99.0):
        seen.append(tasks.occupied_s(5))
    assert seen == [5, 2, 0, 0]
    assert not tasks.idle()
    may_end.set()
    tasks.settle(10)
    assert tasks.idle()
    reactor.close()
