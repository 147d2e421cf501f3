"""What is done for survivors and standbys waits for no file system that hangs."""

import threading
from collections.abc import Iterable
from typing import Any

from faultrun.model.actions import FindRecoveryPoint, StandbyAction, StartStandby, Sweep
from faultrun.model.events import Drained, Event, Timer, TimerFired
from faultrun.model.spec.windows import Deadline
from faultrun.supervisor.executor import LocalExecutor
from faultrun.supervisor.reactor import BackgroundTasks, Reactor, RunClock
from support.machine.hands import Hands


class Group:
    """Remembers for whom a standby was started; its own standbys, and its own inspector."""

    def __init__(self, reactor: Reactor) -> None:
        self.started: list[int] = []
        self.standbys = self
        self.tasks = self.looks = BackgroundTasks(reactor)

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
    world = LocalExecutor(group, group, nothing, nothing, nothing, reactor)
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


def test_what_is_known_to_be_lost_only_after_the_sweep_is_written_before_the_next_look() -> None:
    done: list[str] = []

    class Keeps:
        """A group with copies of another node's rank, and a finder."""

        lost: frozenset[int] = frozenset()

        def dismiss_helpers(self) -> None:
            done.append("dismissed")

        def held_states(self) -> Any:
            return Held(self.lost)

        def sweep(self, _order: Sweep, held: "Held") -> Iterable[Event]:
            done.append(f"swept, lost {sorted(held.lost)}")
            return ()

        def find(self, _request: FindRecoveryPoint, _at_s: float) -> Any:
            done.append("looked")
            return Drained(at_s=0, incarnation=0, stragglers=(), swept=0, notes=())

    class Held:
        def __init__(self, lost: frozenset[int]) -> None:
            self.lost = lost

        def lost_since(self, before: "Held") -> "Held | None":
            late = self.lost - before.lost
            return Held(late) if late else None

        def write(self, *_more: object) -> Iterable[Event]:
            done.append(f"wrote {sorted(self.lost)}")
            return ()

    reactor = Reactor(RunClock())
    group: Any = Keeps()
    inspector: Any = Group(reactor)
    group.looks = inspector.tasks
    nothing: Any = None
    world = LocalExecutor(group, inspector, nothing, group, nothing, reactor)
    look = FindRecoveryPoint(incarnation=0, continuing=True)
    world.perform(Sweep(incarnation=0, dead=(0,), write_by=Deadline(at_s=9.0)))
    world.perform(look)
    group.lost = frozenset({1})
    for _ in range(2):
        world.perform(look)
    world.settle()
    assert done == ["dismissed", "swept, lost []", "looked", "wrote [1]", "looked", "looked"]
    done.clear()
    group.lost = frozenset()
    world.perform(Sweep(incarnation=0, dead=(0,), write_by=Deadline(at_s=0.0)))
    group.lost = frozenset({1})
    world.perform(look)
    world.settle()
    assert done == ["dismissed", "swept, lost []", "looked"], "a fence leaves no time to write"
