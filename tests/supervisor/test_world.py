"""What is done for survivors and standbys waits for no file system that hangs."""

import threading
from collections.abc import Iterable
from typing import Any

from faultrun.model.actions import StandbyAction, StartStandby
from faultrun.model.events import Event, Timer, TimerFired
from faultrun.supervisor.reactor import BackgroundTasks, Reactor, RunClock
from faultrun.supervisor.world import LocalWorld


class Hands(RunClock):
    """A clock whose time is what the test says."""

    at_s = 0.0

    def now(self) -> float:
        return self.at_s


class Group:
    """Remembers for whom a standby was started; its own standbys, and its own inspector."""

    def __init__(self, reactor: Reactor) -> None:
        self.started: list[int] = []
        self.standbys = self
        self.tasks = BackgroundTasks(reactor)

    def foresee(self, rank: int) -> None:
        assert rank not in self.started

    def perform(self, action: StandbyAction) -> None:
        assert isinstance(action, StartStandby)
        self.started.append(action.rank)


def test_standbys_are_started_beside_a_look_that_hangs_with_its_file_system() -> None:
    clock = Hands()
    reactor = Reactor(clock)
    group: Any = Group(reactor)
    nothing: Any = None
    world = LocalWorld(group, group, nothing, nothing, nothing, reactor)
    hung, comes_back = threading.Event(), threading.Event()

    def look() -> Iterable[Event]:
        hung.set()
        assert comes_back.wait(10)
        return ()

    world.readings.offer(look)
    assert hung.wait(10)
    world.perform(StartStandby(incarnation=0, rank=1))
    assert group.started == []
    clock.at_s = 6.0
    assert [(one.timer, one.incarnation) for one in world.wait() if isinstance(one, TimerFired)] == [
        (Timer.STANDBY, 0)
    ]
    world.perform(StartStandby(incarnation=0, rank=1))
    assert group.started == [1]
    comes_back.set()
    world.readings.settle(10)
    reactor.close()
