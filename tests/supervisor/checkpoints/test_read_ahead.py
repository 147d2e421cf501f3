"""New checkpoints are read while workers run, at the cost of a small part of the time, and never after."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest

from faultrun.model.events import Event, FirstStep, IncarnationStarted, WorkerExit
from faultrun.model.exits import Signaled
from faultrun.model.topology import NodeId
from faultrun.supervisor.checkpoints.read_ahead import ReadAhead
from support.stories.story import POLICY, WINDOWS, Story


class Clock:
    """A reactor whose time passes when the test says so; ``errands`` take ``took_s`` and may be busy."""

    def __init__(self, took_s: float) -> None:
        self.now_s, self.took_s, self.busy = 0.0, took_s, False
        self.calls: list[tuple[float, Callable[[], Iterable[Event]]]] = []
        self.looks: list[float] = []
        self.there = 3

    def now(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[[], Iterable[Event]]) -> None:
        self.calls.append((at_s, call))

    def offer(self, task: Callable[[], Iterable[Event]]) -> None:
        if not self.busy:
            assert not list(task())

    def look(self) -> int:
        self.looks.append(self.now_s)
        self.now_s += self.took_s
        return self.there

    def passes(self, until_s: float) -> None:
        while due := sorted((call for call in self.calls if call[0] <= until_s), key=lambda one: one[0]):
            self.calls.remove(due[0])
            self.now_s = max(self.now_s, due[0][0])
            assert not list(due[0][1]())
        self.now_s = until_s


def training(clock: Clock, ranks: int = 1) -> tuple[ReadAhead, Story]:
    everything: Any = clock
    story = Story(ranks, POLICY, WINDOWS).begins()
    story = story.now(IncarnationStarted, ranks=tuple(range(ranks)), master_port=29500).now(FirstStep, step=1)
    ahead = ReadAhead(everything, everything, clock.look)
    for event, step in story.steps:
        ahead.tell(event, step)
    return ahead, story


def test_what_is_quick_is_looked_at_every_second_at_first() -> None:
    clock = Clock(took_s=0.001)
    training(clock)
    clock.passes(until_s=5.5)
    assert [round(at) for at in clock.looks] == [1, 2, 3, 4, 5]


def test_the_longer_all_goes_well_the_more_seldom_somebody_looks() -> None:
    """Every node of a run does: at two seconds a thousand of them would keep a file system from its work."""
    clock = Clock(took_s=0.001)
    training(clock)
    clock.passes(until_s=3600)
    assert len(clock.looks) < 220
    assert [round(later - at) for at, later in pairwise(clock.looks[-9:])] == [30] * 8


def test_looks_take_one_part_in_five_hundred_of_the_time() -> None:
    clock = Clock(took_s=1.0)
    training(clock)
    clock.passes(until_s=2500)
    assert len(clock.looks) == 5


def test_who_is_busy_is_not_given_more() -> None:
    clock = Clock(took_s=0.001)
    training(clock)
    clock.busy = True
    clock.passes(until_s=1.5)
    clock.busy = False
    clock.passes(until_s=2.5)
    assert [round(at) for at in clock.looks] == [2]


@pytest.mark.parametrize(("ranks", "looks"), [(1, []), (3, [0])])
def test_once_workers_have_died_one_more_look_is_made_while_others_save(ranks: int, looks: list[int]) -> None:
    clock = Clock(took_s=0.001)
    ahead, story = training(clock, ranks=ranks)
    for rank in range(ranks)[:2]:
        died = story.now(WorkerExit, node=NodeId("a"), rank=rank, pid=rank + 1, status=Signaled(signum=9))
        ahead.tell(*died.steps[-1])
    clock.passes(until_s=9)
    assert clock.looks == looks


def test_where_there_are_too_many_to_remember_nobody_looks_before_the_next_life() -> None:
    clock = Clock(took_s=0.001)
    ahead, story = training(clock)
    clock.passes(until_s=1.5)
    clock.there = 10_000
    clock.passes(until_s=22)
    assert [round(at) for at in clock.looks] == [1, 2]
    for event, step in story.steps[-2:]:
        ahead.tell(event, step)
    clock.passes(until_s=40)
    assert [round(at) for at in clock.looks] == [1, 2, 23]
