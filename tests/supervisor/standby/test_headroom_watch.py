"""The watch for room with a real reactor and made samples of the processors."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from faultrun.core.standby.headroom import ProcessorSample
from faultrun.core.standby.policy import SETTLE_S, UNSEEN_ROOM_S
from faultrun.model.events import Event, FirstStep, IncarnationStarted, Timer, TimerFired
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.model.observed.standby import EVERY_RANK, RoomFound, StandbyChanged, StandbyPhase, StandbyWish
from faultrun.model.run import Phase, Step
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.supervisor.standby.headroom_watch import HeadroomWatch
from support.stories.story import in_phase

WISH = StandbyWish(count=2, framework="torch")
PATIENCE_S = 60.0
INTERVAL_S = 0.02


class Machine:
    """Two processors. Between two samples a second passes, in which ``idle`` of them did nothing."""

    def __init__(self) -> None:
        self.idle = [0.0]
        self._last = ProcessorSample(at_s=0.0, allowed=2, idle_s=0.0)

    def sample(self) -> ProcessorSample:
        idle = self.idle.pop(0) if len(self.idle) > 1 else self.idle[0]
        was = self._last
        self._last = replace(was, at_s=was.at_s + 1.0, idle_s=(was.idle_s or 0.0) + idle)
        return self._last


class Scene:
    """A watch of the standbys of ``workers``, told by hand."""

    def __init__(self, *, workers: int = 2, wish: StandbyWish = WISH, started_s: float = 0.0) -> None:
        self.machine = Machine()
        self.reactor = Reactor(RunClock(started_s))
        self.watch = HeadroomWatch(wish, workers, self.machine.sample, self.reactor, INTERVAL_S)

    def tell(self, event: Event, phase: Phase = Phase.RUNNING) -> "Scene":
        self.watch.tell(event, Step(state=in_phase(phase, 2), why=""))
        return self

    def workers_start(self, ago_s: float = 0.0) -> "Scene":
        at_s = self.reactor.now() - ago_s
        return self.tell(IncarnationStarted(at_s=at_s, incarnation=0, ranks=(0, 1), master_port=1))

    def train(self) -> "Scene":
        return self.tell(FirstStep(at_s=self.reactor.now(), incarnation=0, step=1))

    def next_event(self) -> Event:
        """RoomFound, or the end of patience."""
        self.reactor.start_timer(Timer.REAP, self.reactor.now() + PATIENCE_S, 99)
        return self.reactor.wait()[0]

    def is_quiet(self) -> bool:
        """Whether nothing comes for longer than the watch waits between two looks."""
        self.reactor.start_timer(Timer.REAP, self.reactor.now() + 4 * INTERVAL_S, 99)
        return isinstance(self.reactor.wait()[0], TimerFired)


@pytest.fixture
def scenes() -> Iterator[list[Scene]]:
    made: list[Scene] = []
    yield made
    for scene in made:
        scene.reactor.close()


def test_idle_processors_are_told_of_at_the_first_step(scenes: list[Scene]) -> None:
    scenes.append(Scene())
    scenes[0].machine.idle = [0.0, 1.4]
    found = scenes[0].workers_start().train().next_event()
    assert isinstance(found, RoomFound)
    assert (found.at_once, found.why, found.incarnation) == (1, "1.4 of 2 processors stood idle", 0)
    assert scenes[0].is_quiet(), "once a life"


def test_a_step_in_a_log_will_do(scenes: list[Scene]) -> None:
    scenes.append(Scene(workers=1))
    logged = FirstStepLogged(at_s=scenes[0].reactor.now(), incarnation=0, rank=0, step=1)
    assert isinstance(scenes[0].workers_start().tell(logged).next_event(), RoomFound)


def test_a_busy_machine_is_looked_at_again_until_others_leave_it(scenes: list[Scene]) -> None:
    scenes.append(Scene())
    scenes[0].machine.idle = [0.0, 0.1, 0.2, 1.0]
    found = scenes[0].workers_start().train().next_event()
    assert isinstance(found, RoomFound)
    assert found.why == "1.0 of 2 processors stood idle"


def test_nothing_is_told_before_there_is_a_step_however_much_room_there_is(scenes: list[Scene]) -> None:
    scenes.append(Scene(workers=1))
    assert scenes[0].workers_start().is_quiet()


def test_where_nobody_tells_of_steps_the_start_of_the_workers_must_be_over(scenes: list[Scene]) -> None:
    scenes.append(Scene(workers=1, started_s=100.0))
    assert isinstance(scenes[0].workers_start(ago_s=UNSEEN_ROOM_S).next_event(), RoomFound)


@pytest.mark.parametrize("ends", ["life", "standbys"])
def test_what_has_ended_is_looked_at_no_longer(scenes: list[Scene], ends: str) -> None:
    scenes.append(Scene())
    scene = scenes[0].workers_start().train()
    if ends == "life":
        scene.tell(TimerFired(at_s=0.0, incarnation=0, timer=Timer.GRACE), Phase.DRAINING)
    else:
        off = StandbyChanged(at_s=0.0, incarnation=0, rank=EVERY_RANK, state=StandbyPhase.OFF, why="")
        scene.tell(off)
    scene.machine.idle = [2.0]
    assert scene.is_quiet()


def test_nobody_looks_for_longer_than_standbys_wait_for_room(scenes: list[Scene]) -> None:
    scenes.append(Scene(started_s=100.0))
    scene = scenes[0].workers_start()
    scene.tell(FirstStep(at_s=scene.reactor.now() - SETTLE_S - 1.0, incarnation=0, step=1))
    assert scene.is_quiet()
    scene.machine.idle = [2.0]
    assert scene.is_quiet()


def test_without_a_wish_nobody_looks(scenes: list[Scene]) -> None:
    scenes.append(Scene(wish=StandbyWish()))
    scenes[0].machine.idle = [2.0]
    assert scenes[0].workers_start().train().is_quiet()
