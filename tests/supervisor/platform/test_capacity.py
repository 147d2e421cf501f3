"""Slots are asked about right after a whole save, and by a real command."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.checkpoints.format import Stamp
from faultrun.model.checkpoint import Depth, Verdict
from faultrun.model.events import Event, IncarnationStarted, Timer, TimerFired
from faultrun.model.observed.agreement import OwnNodeAside
from faultrun.model.observed.elastic import (
    Elastic,
    Grow,
    NodesWaiting,
    SaveWhileNodesWait,
    SetAside,
    SlotLedger,
    SlotsUsable,
)
from faultrun.model.observed.platform_notice import Platform
from faultrun.model.run import Phase, Run, Step
from faultrun.model.topology import NodeId
from faultrun.supervisor.platform.capacity import CapacityWatch
from faultrun.supervisor.reactor import BackgroundTasks, Reactor, Ready, RunClock
from support.stories.story import NODE, first_plan, in_phase

PATIENCE_S = 60.0
OUT = SetAside(node=NODE, slot=1, incarnation=1, why="its device failed")
LESS = SlotLedger(aside=(OUT, replace(OUT, slot=2), replace(OUT, slot=3, well=True)))


class Later(Reactor):
    """What is put off happens when the test says so."""

    def __init__(self) -> None:
        super().__init__(RunClock(0.0))
        self.put_off: list[Ready] = []

    def call_at(self, at_s: float, ready: Ready) -> None:
        self.put_off.append(ready)

    def goes_on(self) -> None:
        now, self.put_off = self.put_off, []
        for ready in now:
            ready()


class Scene:
    """A watch beside checkpoints that are only names here."""

    def __init__(
        self,
        check: str,
        *,
        grow: Grow = Grow.AT_SAVE,
        whole: bool = True,
        devices: tuple[int, ...] = (),
        reactor: Reactor | None = None,
    ) -> None:
        self.there = {"old": stamp(1)}
        self.looked = 0
        self.reactor = reactor or Reactor(RunClock(0.0))
        self.checks = BackgroundTasks(self.reactor)
        tasks = BackgroundTasks(self.reactor), self.checks
        verdict = Verdict(whole=whole, why="", depth=Depth.CHECKSUM)
        elastic = Elastic(min_workers=1, grow=grow, health_check=check)
        self.watch = CapacityWatch(
            elastic, self.reactor, tasks, (self.listed, lambda _: verdict), dict(os.environ), devices
        )

    def listed(self) -> dict[str, Stamp]:
        """The save comes after the first look."""
        self.looked += 1
        return self.there if self.looked == 1 else {**self.there, "new": stamp(2)}

    def starts(self, ledger: SlotLedger | None = LESS, given_up: frozenset[int] = frozenset()) -> None:
        state = in_phase(Phase.RUNNING, 2)
        state = replace(
            state,
            run=Run(plan=first_plan(2, slots=ledger), platform=Platform(given_up=given_up)),
            shrinks=True,
        )
        started = IncarnationStarted(at_s=0.0, incarnation=0, ranks=(0, 1), master_port=1)
        self.watch.tell(started, Step(state=state, why=""))

    def next_event(self, within_s: float = PATIENCE_S) -> Event:
        self.reactor.start_timer(Timer.REAP, self.reactor.now() + within_s, 99)
        return self.reactor.wait()[0]


def stamp(number: int) -> Stamp:
    return Stamp(size_bytes=number, mtime_ns=number, inode=number)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield


def test_the_slots_whose_check_passes_are_told_of_after_a_new_save() -> None:
    scene = Scene('echo "$FAULTRUN_SLOT $DEVICE_ID" >>asked; test "$FAULTRUN_SLOT" = 2')
    scene.starts()
    told = scene.next_event()
    assert isinstance(told, SlotsUsable), told
    assert (told.node, told.slots, told.path, told.incarnation) == (NODE, (2,), "new", 0)
    assert Path("asked").read_text() == "1 1\n2 2\n"  # nothing is held against slot 3


def test_the_slot_of_an_empty_place_is_asked_about_without_a_save() -> None:
    scene = Scene('test "$FAULTRUN_SLOT" = 2')
    scene.starts(SlotLedger(empty=LESS.bad))
    told = scene.next_event()
    assert isinstance(told, SlotsUsable), told
    assert (told.slots, told.path, scene.looked) == ((2,), "", 0)


@pytest.mark.parametrize(
    ("grow", "check", "ledger"),
    [(Grow.NEVER, "true", LESS), (Grow.AT_SAVE, "", LESS), (Grow.AT_SAVE, "true", None)],
)
def test_nobody_looks_where_none_can_come_back(grow: Grow, check: str, ledger: SlotLedger | None) -> None:
    scene = Scene(check, grow=grow)
    scene.starts(ledger)
    assert isinstance(scene.next_event(within_s=0.05), TimerFired)
    assert scene.looked == 0


def test_a_whole_save_is_told_while_nodes_wait_whatever_the_check_is() -> None:
    scene = Scene("")
    scene.starts(None)
    state = in_phase(Phase.RUNNING, 2)
    waits = NodesWaiting(at_s=0.0, incarnation=0, nodes=(NodeId("d"),))
    scene.watch.tell(waits, Step(state=state, why=""))
    told = scene.next_event()
    assert isinstance(told, SaveWhileNodesWait), told
    assert (told.path, told.incarnation) == ("new", 0)


def test_only_one_goes_on_looking_however_often_nodes_come_and_go_or_a_node_is_set_aside() -> None:
    reactor = Later()
    scene, state = Scene("false", whole=False, reactor=reactor), in_phase(Phase.RUNNING, 2)
    for nodes in [(NodeId("d"),), (), (NodeId("d"),)]:
        scene.watch.tell(NodesWaiting(at_s=0.0, incarnation=0, nodes=nodes), Step(state=state, why=""))
    reactor.goes_on()
    assert len(reactor.put_off) == 1
    reactor.put_off.clear()
    state = in_phase(Phase.AWAITING_PLAN, 2)
    aside = OwnNodeAside(at_s=0.0, incarnation=state.incarnation, why="its ranks failed")
    for _ in range(2):
        scene.watch.tell(aside, Step(state=state, why=""))
    reactor.goes_on()
    assert len(reactor.put_off) == 1


def test_a_node_that_was_set_aside_is_well_if_all_its_slots_are() -> None:
    scene = Scene('echo "$FAULTRUN_SLOT" >>asked; test -e well || test "$FAULTRUN_SLOT" = 0')
    state = in_phase(Phase.AWAITING_PLAN, 2)
    aside = OwnNodeAside(at_s=0.0, incarnation=state.incarnation, why="its ranks failed")
    scene.watch.tell(aside, Step(state=state, why=""))
    scene.checks.settle(PATIENCE_S)
    assert Path("asked").read_text() == "0\n1\n"
    assert isinstance(scene.next_event(within_s=0), TimerFired)
    Path("well").touch()
    scene.watch.tell(aside, Step(state=state, why=""))
    told = scene.next_event()
    assert isinstance(told, SlotsUsable), told
    assert (told.node, told.slots) == (NODE, (0, 1))
    assert Path("asked").read_text() == "0\n1\n0\n1\n"


@pytest.mark.parametrize(
    ("check", "given_up", "well"),
    [
        ("", (), (2,)),
        ("", (2,), ()),
        ("true", (), (1, 2)),
        ("true", (2,), (1,)),
        ("test $DEVICE_ID = 6", (), (2,)),
    ],
)
def test_what_the_platform_has_given_up_is_well_when_it_says_so_and_the_command_does_not_say_no(
    check: str, given_up: tuple[int, ...], well: tuple[int, ...]
) -> None:
    scene = Scene(check, devices=(4, 5, 6))
    scene.starts(SlotLedger(aside=(OUT, replace(OUT, slot=2, named=True))), frozenset(given_up))
    if well:
        told = scene.next_event()
        assert isinstance(told, SlotsUsable), told
        assert told.slots == well
    else:
        assert isinstance(scene.next_event(within_s=0.3), TimerFired)
