"""The keeper of standbys with a reactor and real processes, some of which betray it in the hand-over.

They are actors: with -S they never come to the hook, and play their part by themselves.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from faultrun.core.standby.policy import decide_standbys
from faultrun.core.standby.state import StandbyState
from faultrun.model.actions import ParkStandby, SeatStandbys, StandbyAction, StartStandby, StartTimer
from faultrun.model.events import Event, IncarnationStarted, Timer, TimerFired
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase, StandbyWish
from faultrun.model.run import Phase, Step
from faultrun.supervisor.reactor import Reactor, RunClock
from faultrun.supervisor.standby.pool import Standbys
from faultrun.workers.fork_server import ForkServer
from faultrun.workers.launch import Launch
from faultrun.workers.process import Process
from support.machine.processes import wait_until
from support.stories.story import in_phase

ACTOR = """#!{python} -S
import json, os, signal, socket, sys
if "-c" in sys.argv:
    sys.exit({probed})
channel = socket.socket(fileno=int(os.environ["FAULTRUN_STANDBY_CHANNEL"].split()[0]))
def say(**message):
    channel.sendall(json.dumps(message).encode() + b"\\n")
def hear():
    return json.loads(channel.makefile("rb").readline())
{part}
"""
GIVEN_UP = 99
PATIENCE_S = 60.0


@dataclass(slots=True)
class House:
    """``standbys`` for rank 0, whose process plays ``part``; ``told`` is everything that was said of it."""

    folder: Path
    standbys: Standbys
    reactor: Reactor
    launch: Launch
    told: list[StandbyChanged] = field(default_factory=list)
    state: StandbyState = field(default_factory=lambda: StandbyState(ranks=(0,)))
    employed: list[Process] = field(default_factory=list)

    def hears(self, event: Event) -> None:
        running = in_phase(Phase.RUNNING)
        self.state, step = decide_standbys(self.state, event, Step(state=running, why=""))
        for action in step.actions:
            if isinstance(action, StartTimer):
                self.reactor.start_timer(action.timer, action.at_s, action.incarnation)
            elif isinstance(action, StandbyAction):
                self.standbys.perform(action)
        if isinstance(event, StandbyChanged):
            self.told.append(event)
        if isinstance(event, TimerFired) and event.incarnation == GIVEN_UP:
            raise AssertionError(f"it never happened; told: {self.told}")

    def until(self, reached: Callable[[], bool]) -> None:
        self.reactor.start_timer(Timer.REAP, self.reactor.clock.now() + PATIENCE_S, GIVEN_UP)
        while not reached():
            for event in self.reactor.wait():
                self.hears(event)

    def states(self) -> list[StandbyPhase]:
        return [change.state for change in self.told]

    def is_ready(self) -> "House":
        self.standbys.remember(0, self.launch)
        self.hears(IncarnationStarted(at_s=0.0, incarnation=0, ranks=(0,), master_port=1))
        self.hears(TimerFired(at_s=0.0, incarnation=0, timer=Timer.STANDBY))
        self.until(lambda: StandbyPhase.READY in self.states())
        return self

    def employ(self) -> Process:
        """Give it rank 0, and answer its end as the worker group does."""
        process = self.standbys.take(0, self.launch, None)
        assert process is not None
        self.employed.append(process)
        return process

    def replaced(self, process: Process) -> Launch | None:
        """What is to be started instead, once the process has ended."""
        instead: list[Launch | None] = []

        def end() -> tuple[Event]:
            self.reactor.forget(process.pidfd)
            process.reap()
            self.employed.remove(process)
            instead.append(self.standbys.unanswered(0, restart=True))
            return (TimerFired(at_s=self.reactor.now(), incarnation=0, timer=Timer.REAP),)  # it wakes us

        self.reactor.watch(process.pidfd, end)
        self.until(lambda: self.told[-1].state in (StandbyPhase.LOST, StandbyPhase.TAKEN) and bool(instead))
        return instead[0]


def _reaped(process: Process) -> bool:
    return process.reap() is not None


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Callable[..., House]]:
    houses: list[House] = []

    def build(part: str, *, probed: int = 73, free: int | None = 1 << 40) -> House:
        actor = tmp_path / "actor"
        actor.write_text(ACTOR.format(python=sys.executable, probed=probed, part=part))
        actor.chmod(0o755)
        patience_s = 0.1 if part is HANGS else PATIENCE_S
        reactor = Reactor(RunClock())
        wish = StandbyWish(count=1, framework="plain", program_at=1, arguments_at=1, estimate_bytes=1 << 20)
        standbys = Standbys(wish, tmp_path, lambda: free, reactor, handover_s=patience_s)
        launch = Launch(argv=(str(actor),), env={"PATH": "/usr/bin:/bin"}, stdout=tmp_path / "out")
        built = House(folder=tmp_path, standbys=standbys, reactor=reactor, launch=launch)
        houses.append(built)
        return built

    yield build
    for built in houses:
        built.standbys.close()
        for process in built.employed:
            process.kill_group()
            wait_until(partial(_reaped, process), what="the end")
        built.reactor.close()


READY = 'say(kind="ready", note="")\n'
ANSWERS = READY + 'hear(); say(kind="taken"); signal.pause()'
DIES = READY + "hear(); os.kill(os.getpid(), 9)"
HANGS = READY + "hear(); signal.pause()"
REFUSES = READY + 'hear(); say(kind="refuse", why="another torch")'
ANSWERS_AND_DIES = READY + 'hear(); say(kind="taken"); os.kill(os.getpid(), 9)'


def test_one_that_answers_is_the_worker_and_is_replaced_later(house: Callable[..., House]) -> None:
    actors = house(ANSWERS).is_ready()
    process = actors.employ()
    actors.until(lambda: StandbyPhase.TAKEN in actors.states())
    assert actors.standbys.unanswered(0, restart=True) is None
    process.kill_group()
    assert process.pid not in actors.standbys.pids()


@pytest.mark.parametrize(
    ("part", "why"),
    [(DIES, "it ended in the hand-over"), (HANGS, "no answer within 0.1 s"), (REFUSES, "another torch")],
)
def test_one_without_an_answer_is_replaced_cold(house: Callable[..., House], part: str, why: str) -> None:
    actors = house(part).is_ready()
    assert actors.replaced(actors.employ()) == actors.launch
    assert actors.told[-1].why == f"{why}; a cold start takes its place"


@pytest.mark.long
def test_a_worker_that_answered_and_died_is_a_fault_and_no_lost_standby(house: Callable[..., House]) -> None:
    actors = house(ANSWERS_AND_DIES).is_ready()
    assert actors.replaced(actors.employ()) is None
    assert actors.told[-1].state is StandbyPhase.TAKEN


def test_one_that_dies_while_it_waits_is_lost_and_another_one_comes(house: Callable[..., House]) -> None:
    actors = house(READY + "signal.pause()").is_ready()
    (pid,) = actors.standbys.pids()
    os.kill(pid, signal.SIGKILL)
    actors.until(lambda: StandbyPhase.LOST in actors.states())
    assert actors.told[-1].why == "its process was killed by SIGKILL"
    assert actors.standbys.take(0, actors.launch, None) is None


def test_a_python_that_passes_the_hook_by_gets_no_standby(house: Callable[..., House]) -> None:
    actors = house(READY, probed=0)
    actors.standbys.remember(0, actors.launch)
    actors.hears(IncarnationStarted(at_s=0.0, incarnation=0, ranks=(0,), master_port=1))
    actors.hears(TimerFired(at_s=0.0, incarnation=0, timer=Timer.STANDBY))
    actors.until(lambda: bool(actors.told))
    assert actors.told[0].state is StandbyPhase.OFF
    assert "does not read PYTHONPATH" in actors.told[0].why


@pytest.mark.parametrize("free", [1000, -1, None])
def test_auto_starts_none_if_memory_is_low_or_unknown(house: Callable[..., House], free: int | None) -> None:
    actors = house(READY, free=free)
    actors.standbys.remember(0, actors.launch)
    actors.hears(IncarnationStarted(at_s=0.0, incarnation=0, ranks=(0,), master_port=1))
    actors.hears(TimerFired(at_s=0.0, incarnation=0, timer=Timer.STANDBY))
    actors.until(lambda: bool(actors.told))
    assert actors.told[0].state is StandbyPhase.OFF
    assert actors.told[0].why == (
        "how much memory is free cannot be read"
        if free is None
        else "1 would need about 1 MiB, and none may be used beside a reserve"
    )
    assert actors.standbys.pids() == frozenset()


def test_whoever_is_asked_for_twice_is_started_once(house: Callable[..., House]) -> None:
    actors = house(READY + "signal.pause()")
    actors.standbys.remember(0, actors.launch)
    actors.hears(IncarnationStarted(at_s=0.0, incarnation=0, ranks=(0,), master_port=1))
    for _ in range(2):  # while the probe runs, and before the first answer is heard
        actors.standbys.perform(StartStandby(incarnation=0, rank=0))
    actors.until(lambda: StandbyPhase.READY in actors.states())
    assert actors.states() == [StandbyPhase.STARTING, StandbyPhase.READY]
    actors.standbys.perform(StartStandby(incarnation=0, rank=0))
    assert len(actors.standbys.pids()) == 1


def test_what_it_has_imported_and_why_it_is_a_plainer_one_is_told(house: Callable[..., House]) -> None:
    said = 'say(kind="ready", note="no group", plain="its imports started a thread", imported=["torch"])\n'
    actors = house(said + "signal.pause()").is_ready()
    assert actors.told[-1].imported == ("torch",)
    assert actors.told[-1].why == "its imports started a thread; no group"
    assert actors.told[-1].memory_bytes > 0


@pytest.mark.parametrize(
    ("free", "short", "why"),
    [
        (10 << 20, "", "kept ready: 1 would need about 64 MiB, and only 10 MiB may be used beside a reserve"),
        (1 << 40, "cuda 0 is full", "kept ready: cuda 0 is full"),
    ],
)
def test_one_without_room_for_what_its_rank_needs_waits_as_it_is(
    house: Callable[..., House], free: int, short: str, why: str
) -> None:
    """That imports have room says nothing of what the worker needs."""
    actors = house(READY + "signal.pause()", free=free).is_ready()
    order = ParkStandby(incarnation=0, rank=0, needs_bytes=64 << 20, short=short)
    with closing(ForkServer()) as forks:
        actors.standbys.park(order, actors.launch, forks)
    actors.until(lambda: len(actors.told) == 3)
    assert (actors.told[-1].state, actors.told[-1].why) == (StandbyPhase.READY, why)
    assert not actors.standbys.is_parked(0)


TELLS_WHAT_IT_KNOWS = """
known = {name: value for name, value in os.environ.items() if name in ("RANK", "SHARED", "HIS_OWN")}
sets = json.loads(os.environ["FAULTRUN_STANDBY_CHANNEL"].split(" ", 2)[2])["sets"]
say(kind="ready", note="", plain=json.dumps([known, sets]))
go = hear()
open("went", "w").write(json.dumps([go["set"]]))
say(kind="taken"); signal.pause()
"""


def test_fewer_than_one_a_rank_are_nobodys_and_get_all_of_a_rank_with_it(
    house: Callable[..., House], tmp_path: Path
) -> None:
    actors = house(TELLS_WHAT_IT_KNOWS)
    plain = replace(actors.launch, cwd=str(tmp_path))
    for rank, own in ((1, {"RANK": "1"}), (2, {"RANK": "2", "HIS_OWN": "x"})):
        env = {**plain.env, "SHARED": "s", **own}
        actors.standbys.remember(rank, replace(plain, env=env))
    actors.launch = replace(plain, env={**plain.env, "SHARED": "s", "RANK": "0"})
    actors.is_ready()
    assert json.loads(actors.told[-1].why) == [{"SHARED": "s"}, ["HIS_OWN", "RANK"]]
    actors.standbys.perform(SeatStandbys(ranks=((0, 2),)))
    taken = actors.standbys.take(2, replace(plain, env=env), None)
    assert taken is not None
    actors.employed.append(taken)
    actors.until(lambda: StandbyPhase.TAKEN in actors.states())
    assert json.loads((tmp_path / "went").read_text())[0] == {"RANK": "2", "HIS_OWN": "x"}
