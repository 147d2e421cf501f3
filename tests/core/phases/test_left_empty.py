"""A slot is set aside while the others train on: its place stays empty, and no rank begins anew for it."""

from dataclasses import replace

import pytest

from faultrun.core.placement.slots import workers_words
from faultrun.core.standby.healing import healed
from faultrun.core.standby.state import StandbyState
from faultrun.journal.codec import decode, encode
from faultrun.model.actions import ParkStandby, Spawn, StartTimer
from faultrun.model.events import FirstStep, PlanAdopted, Timer, TimerFired
from faultrun.model.incident import Cause
from faultrun.model.observed.elastic import Elastic, SlotsUsable
from faultrun.model.observed.evidence import DeathNote, FaultClass, Finding
from faultrun.model.observed.rejoin import RankCanRejoin
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.run import Phase
from support.stories.notice_stories import told
from support.stories.story import NODE, POLICY, STAYING, Story, checkpoint

ECC = Finding(name="ecc", fault_class=FaultClass.HARDWARE, says="uncorrectable memory error")
WHY = "its device failed: uncorrectable memory error"


def training(world_size: int = 4, *, trains_from: int = 2) -> Story:
    """All train and can share what a missing one would do, in a run that may shrink."""
    story = Story(world_size, POLICY, replace(STAYING, trains_from=trains_from))
    story.rules = replace(story.rules, elastic=Elastic(min_workers=1))
    story.state = replace(story.state, shrinks=True)
    can_share(story.begins(checkpoint(30)), *range(world_size))
    return story.reported(**{f"r{rank}": 41 for rank in range(world_size)})


def can_share(story: Story, *ranks: int, why: str = "") -> None:
    for rank in ranks:
        story.now(RankCanRejoin, rank=rank, trains_on=why)


def breaks(story: Story, rank: int) -> Story:
    """The device of ``rank`` breaks; the others form a group again, if they stay, and do a step."""
    story.returned(rank, 1).examined(DeathNote(rank=rank, finding=ECC, reports=True))
    if story.phase is Phase.RUNNING:
        living = sorted(story.state.life.alive)
        can_share(story.rejoined(*living, step=42), *living)
        story.now(FirstStep, step=43)
    return story


def comes(story: Story, rank: int) -> Story:
    """A newcomer for ``rank`` waits at its first step, and the others let it in between two of theirs."""
    story.now(StandbyChanged, rank=rank, state=StandbyPhase.PARKED).rang(Timer.HEAL)
    return story.now(RankCanRejoin, rank=min(story.state.life.alive), trains_on="", waits=True)


def is_well(story: Story, *slots: int) -> Story:
    return story.now(SlotsUsable, node=NODE, slots=slots)


def newcomers(story: Story) -> list[int]:
    """The ranks for which a newcomer is started at the next event."""
    event = TimerFired(at_s=story.now_s, incarnation=story.state.incarnation, timer=Timer.HEAL)
    _, actions = healed(StandbyState(), event, story.state)
    return [action.rank for action in actions if isinstance(action, ParkStandby)]


def test_its_place_is_left_empty_and_no_newcomer_comes_to_the_broken_device() -> None:
    story = breaks(training(), 1)
    assert (story.phase, story.plan.missing, story.plan.barred()) == (
        Phase.RUNNING,
        frozenset({1}),
        frozenset({1}),
    )
    assert (story.plan.kept, story.plan.topology.world_size) == (frozenset({0, 2, 3}), 4)
    assert workers_words(story.plan) == f"3 of 4, without slot 1: {WHY}"
    assert newcomers(story) == []
    event = PlanAdopted(at_s=1.0, incarnation=1, plan=story.plan)
    assert decode(encode(event), PlanAdopted) == event


def test_it_is_not_waited_for_however_long_the_place_is_empty() -> None:
    story = breaks(training(), 1)
    story.now_s += 10 * story.state.windows.heal_s
    story.rang(Timer.HEAL)
    assert (story.phase, story.plan.missing) == (Phase.RUNNING, frozenset({1}))
    assert story.whys[-1] == "no newcomer is waited for while the slots are set aside"


def test_once_the_slot_is_well_a_newcomer_comes_and_is_waited_for_from_then_on() -> None:
    story = breaks(training(), 1)
    story.now_s += 10 * story.state.windows.heal_s
    story.performed(StartTimer)
    is_well(story, 1)
    (timer,) = story.performed(StartTimer)
    assert (timer.timer, timer.at_s) == (Timer.HEAL, story.now_s + story.state.windows.heal_s)
    assert (story.phase, newcomers(story)) == (Phase.RUNNING, [1])
    assert is_well(story, 1).whys[-1] != story.whys[-2]
    story.performed(Spawn)
    comes(story, 1)
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.missing, spawn.plan.kept) == ((1,), frozenset(), frozenset({0, 2, 3}))
    assert workers_words(story.plan) == ""
    assert story.state.life.usable == ()


def test_of_two_places_the_one_that_is_well_is_taken_and_the_other_stays_empty() -> None:
    story = breaks(breaks(training(), 1), 3)
    assert (story.phase, story.plan.barred()) == (Phase.RUNNING, frozenset({1, 3}))
    comes(is_well(story, 3), 3)
    assert (story.plan.missing, story.plan.barred()) == (frozenset({1}), frozenset({1}))
    assert workers_words(story.plan) == f"3 of 4, without slot 1: {WHY}"


@pytest.mark.parametrize("why", ["too few", "cannot share"])
def test_where_the_others_cannot_train_on_all_begin_anew_without_it(why: str) -> None:
    story = breaks(training(trains_from=3), 1)
    if why == "too few":
        story.killed(2).examined()
    else:
        can_share(story, 0, why="batch norm trains")
        story.rang(Timer.HEAL)
        assert story.incident.cause is Cause.UNHEALED
    assert story.phase is Phase.DRAINING
    for rank in sorted(story.state.life.alive):
        story.returned(rank)
    story.drained().chose(checkpoint(41)).prepared()
    assert (story.plan.topology.nodes[0].places, story.plan.missing) == ((0, 2, 3), frozenset())
    slots = story.plan.slots
    assert slots is not None
    assert ([one.slot for one in slots.aside], slots.empty) == ([1], ())


def test_what_the_platform_says_of_a_device_whose_place_is_empty_is_no_news() -> None:
    story = breaks(training(), 1).noticed(told({1: "fault"}))
    phases = [story.phase, story.noticed(told({2: "fault"})).phase]
    assert phases == [Phase.RUNNING, Phase.DRAINING]
