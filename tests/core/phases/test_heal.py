"""A place is empty and the others train on: who takes it, when, and what follows where nobody does."""

from dataclasses import replace

import pytest

from faultrun.core.phases.may_stay import why_not_train_on
from faultrun.journal.codec import decode, encode
from faultrun.model.actions import FreeSurvivors, Kill, RequestGasp, Spawn, StartTimer, SweepRanks
from faultrun.model.events import Event, FirstStep, PlanAdopted, Timer, WorkerExit
from faultrun.model.exits import Signaled
from faultrun.model.incident import Cause
from faultrun.model.observed.rejoin import RankCannotRejoin, RankCanRejoin
from faultrun.model.observed.standby import StandbyChanged, StandbyPhase
from faultrun.model.plan import Reason
from faultrun.model.run import Phase
from support.stories.story import NODE, POLICY, SIGKILL, STAYING, Story, checkpoint

PARKED, LOST = StandbyPhase.PARKED, StandbyPhase.LOST
SHARING = replace(STAYING, trains_from=2)


def shares(story: Story, *ranks: int, why: str | None = "", waits: bool = False) -> Story:
    for rank in ranks:
        story.now(RankCanRejoin, rank=rank, trains_on=why, waits=waits)
    return story


def sharing(world_size: int = 3, *, windows: object = SHARING) -> Story:
    """All train, can outlive one another and share what a missing one would do."""
    story = Story(world_size, POLICY, windows).begins(checkpoint(30))  # type: ignore[arg-type]
    shares(story, *range(world_size)).reported(**{f"r{rank}": 41 for rank in range(world_size)})
    story.performed(Spawn)
    return story


def standby(story: Story, rank: int, state: StandbyPhase = PARKED) -> Story:
    return story.now(StandbyChanged, rank=rank, state=state)


def comes(story: Story) -> Story:
    """Those that live are asked to let newcomers in, and stand between two steps."""
    story.rang(Timer.HEAL)
    return shares(story, min(story.state.life.alive), waits=True)


def train_on(story: Story, *living: int, step: int = 42) -> Story:
    """Those that live are one group again, and do a step in it."""
    story.rejoined(*living, step=step)
    shares(story, *living)
    return story.now(FirstStep, step=step + 1)


def without(rank: int, world_size: int = 3) -> Story:
    """``rank`` was killed, and the others train on without it."""
    story = sharing(world_size).killed(rank).examined()
    story.performed(Spawn)
    return train_on(story, *({*range(world_size)} - {rank}))


def test_the_others_go_on_at_once_and_nobody_is_started_whom_they_would_wait_for() -> None:
    story = sharing().killed(1).examined()
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept, spawn.plan.missing) == ((), frozenset({0, 2}), frozenset({1}))
    assert spawn.plan.topology.world_size == 3
    assert story.phase is Phase.RUNNING
    assert story.state.life.alive == story.state.life.rejoining == frozenset({0, 2})
    assert len(spawn.plan.ledger.restarts) == 1
    (swept,) = story.rejoined(0, 2).performed(SweepRanks)
    assert (swept.ranks, swept.incarnation) == (frozenset({1}), 0)


def test_who_waits_at_its_first_step_takes_the_place_at_once_and_nothing_is_charged_for_it() -> None:
    story = without(1)
    restarts = story.plan.ledger
    standby(story, 1)
    timers = [one for one in story.performed(StartTimer) if one.timer is Timer.HEAL]
    assert timers[-1].at_s == story.now_s
    comes(story)
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept, spawn.plan.missing) == ((1,), frozenset({0, 2}), frozenset())
    assert (spawn.plan.heals, spawn.plan.ledger, spawn.plan.incarnation) == (True, restarts, 2)
    assert story.state.life.incident is None
    story.rejoined(0, 1, 2)
    shares(story, 0, 1, 2).now(FirstStep, step=50)
    assert (story.state.life.alive, story.state.life.empty_since_s) == (frozenset({0, 1, 2}), None)
    assert not story.performed(SweepRanks)


def test_the_others_are_freed_for_it_once_all_of_them_stand_between_two_steps() -> None:
    story = standby(without(1), 1)
    story.performed(FreeSurvivors)
    freed = story.rang(Timer.HEAL).performed(FreeSurvivors)
    assert [(one.incarnation, one.ranks, one.at_boundary) for one in freed] == [(1, frozenset({0, 2}), True)]
    assert story.phase is Phase.RUNNING
    story.now_s += 10 * SHARING.rejoin_s  # one of them evaluates, and nobody is told to hurry
    freed = shares(story, 2, waits=True).performed(FreeSurvivors)
    assert [(one.incarnation, one.ranks, one.at_boundary) for one in freed] == [(1, frozenset({0, 2}), False)]


def test_who_is_there_at_the_death_comes_at_once_and_nobody_trains_without_it() -> None:
    story = standby(sharing(), 1).killed(1).examined()
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.missing, spawn.plan.heals) == ((1,), frozenset(), False)


def test_a_newcomer_that_is_told_of_between_two_incarnations_is_heard_and_so_is_its_end() -> None:
    story = without(1)
    story.now(StandbyChanged, incarnation=0, rank=1, state=PARKED)
    assert story.state.life.parked == frozenset({1})
    story.now(StandbyChanged, incarnation=0, rank=1, state=LOST)
    story.performed(Spawn)
    story.rang(Timer.HEAL)
    assert (story.phase, story.performed(Spawn)) == (Phase.RUNNING, [])


def test_nobody_comes_in_before_the_others_have_done_a_step_together() -> None:
    story = sharing().killed(1).examined()
    standby(story.rejoined(0, 2), 1)
    story.rang(Timer.HEAL)
    assert story.phase is Phase.RUNNING
    comes(story.now(FirstStep, step=43))
    assert story.plan.heals


def test_nobody_comes_in_any_more_once_a_rank_has_done_all_its_steps() -> None:
    story = without(1)
    story.now(RankCannotRejoin, rank=0, why="all its steps are done")
    standby(story, 1).rang(Timer.HEAL)
    assert not [one for one in story.performed(FreeSurvivors) if one.at_boundary]
    story.returned(0).returned(2).drained()
    assert story.state.exit_code == 0


@pytest.mark.parametrize("parked", [False, True])
def test_another_that_dies_meanwhile_is_missing_too(parked: bool) -> None:
    story = without(1, 4)
    if parked:
        standby(story, 1)
    story.killed(3).examined()
    assert story.plan.missing == (frozenset({3}) if parked else frozenset({1, 3}))
    assert story.plan.newcomers == (frozenset({1}) if parked else frozenset())
    assert story.state.life.alive == frozenset({0, 2} | ({1} if parked else set()))
    assert len(story.plan.ledger.restarts) == 2


def test_too_few_never_train_on() -> None:
    story = without(1).killed(0).examined()
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept, spawn.plan.missing) == ((0, 1), frozenset({2}), frozenset())


def test_who_is_only_on_its_way_has_no_state_that_all_could_go_on_from() -> None:
    story = without(1).killed(0).examined()
    assert (story.plan.newcomers, story.plan.kept) == (frozenset({0, 1}), frozenset({2}))
    story.killed(2)
    assert story.phase is Phase.DRAINING


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("batch norm trains", "rank 0 cannot share: batch norm trains"),
        (None, "no rank that lives has said that it can"),
    ],
)
def test_where_a_rank_cannot_share_all_wait_as_ever(word: str | None, reason: str) -> None:
    story = shares(sharing(), 0, 1, 2, why=word)
    assert why_not_train_on(story.state) == reason
    story.killed(1).examined()
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.missing) == ((1,), frozenset())


def test_by_default_all_wait_and_no_word_of_it_is_in_the_journal() -> None:
    assert why_not_train_on(sharing(windows=STAYING).state) == (
        "all wait for a newcomer (--while_missing=wait)"
    )
    story = sharing(windows=STAYING).killed(1).examined()
    told = [encode(event) for event, _ in story.steps if isinstance(event, PlanAdopted)]
    assert not [one for one in told if {"missing", "heals"} & one["plan"].keys()]
    assert story.plan.newcomers == frozenset({1})


def test_the_journal_of_a_run_with_an_empty_place_leads_to_the_state_that_it_had() -> None:
    story = comes(standby(without(1), 1))
    again = sharing()
    for event, _ in story.steps[len(again.steps) :]:
        again.tell(decode(encode(event), Event))
    assert again.state == story.state


def test_a_rank_that_finds_that_it_cannot_go_on_alone_has_all_wait_for_the_newcomer() -> None:
    story = without(1)
    story.performed(FreeSurvivors)
    shares(story, 2, why="all_gather needs rank 1").rang(Timer.HEAL)
    assert story.performed(FreeSurvivors)
    assert (story.plan.missing, story.plan.newcomers, story.plan.heals) == (frozenset(), frozenset({1}), True)
    assert len(story.plan.ledger.restarts) == 1


def test_a_newcomer_for_whom_all_wait_has_the_whole_time_for_it_is_not_at_its_first_step_yet() -> None:
    story = shares(without(1), 2, why="all_gather needs rank 1")
    story.performed(StartTimer)
    story.rang(Timer.HEAL)
    waits = [one.at_s - story.now_s for one in story.performed(StartTimer) if one.timer is Timer.REJOIN]
    assert waits == [SHARING.rejoin_s] * 2


def test_a_newcomer_that_dies_as_it_comes_in_costs_a_pause_and_no_restart() -> None:
    story = comes(standby(without(1), 1)).rejoined(0, 2)
    charged = story.plan.ledger.restarts
    story.performed(Spawn)
    story.killed(1).examined()
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.missing, spawn.plan.ledger.restarts) == ((), frozenset({1}), charged)
    story.rejoined(0, 2).now(FirstStep, step=60)
    assert not story.state.life.parked


def test_a_newcomer_that_ends_by_itself_as_it_comes_in_is_no_reason_to_begin_anew() -> None:
    story = comes(standby(without(1), 1)).returned(1, 1).examined()
    assert (story.phase, story.plan.missing) == (Phase.RUNNING, frozenset({1}))


@pytest.mark.parametrize("how", ["silent", "says that it cannot"])
def test_a_newcomer_that_does_not_come_in_is_killed_and_the_others_go_on(how: str) -> None:
    story = standby(without(1), 1)
    story.performed(StartTimer)
    comes(story)
    (wait,) = [one for one in story.performed(StartTimer) if one.timer is Timer.REJOIN][-1:]
    assert wait.at_s - story.now_s == SHARING.rejoin_s / 2
    if how == "silent":
        story.rang(Timer.REJOIN)
    else:
        story.now(RankCannotRejoin, rank=1, why="its state is damaged")
    assert {one.ranks for one in story.performed(Kill)} == {frozenset({1})}
    story.killed(1).examined()
    assert (story.phase, story.plan.missing) == (Phase.RUNNING, frozenset({1}))


def test_a_survivor_that_dies_while_the_others_are_free_for_a_newcomer_is_missing_then() -> None:
    story = comes(standby(without(1, 4), 1))
    story.now(WorkerExit, incarnation=1, node=NODE, rank=3, pid=103, status=Signaled(signum=SIGKILL))
    story.examined()
    assert (story.plan.kept, story.plan.missing) == (frozenset({0, 1, 2}), frozenset({3}))


def test_a_newcomer_that_is_gone_before_all_stand_between_two_steps_is_not_waited_for() -> None:
    story = standby(without(1), 1).rang(Timer.HEAL)
    shares(standby(story, 1, LOST), 0, waits=True)
    assert (story.phase, story.plan.missing, story.state.life.waits) == (Phase.RUNNING, frozenset({1}), False)


def test_a_place_that_stays_empty_for_too_long_is_waited_for() -> None:
    story = without(1)
    story.now_s += SHARING.heal_s
    story.performed(FreeSurvivors)
    story.rang(Timer.HEAL)
    (asked,) = story.performed(FreeSurvivors)
    assert (asked.at_boundary, story.phase) == (
        True,
        Phase.RUNNING,
    )  # who evaluates is called away from nothing
    shares(story, 0, waits=True)
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.missing, story.phase) == ((1,), frozenset(), Phase.RUNNING)
    story.returned(1, 1)
    assert story.phase is Phase.DRAINING


def test_a_place_that_stays_empty_for_too_long_has_all_begin_again_where_the_run_may_shrink() -> None:
    story = without(1)
    story.state = replace(story.state, shrinks=True)
    story.now_s += SHARING.heal_s
    story.rang(Timer.HEAL)
    assert (story.phase, story.incident.cause, story.incident.rank) == (Phase.DRAINING, Cause.UNHEALED, 1)
    assert story.incident.explanation == "no newcomer took the place of rank 1 within 10 min"
    (asked,) = story.performed(RequestGasp)
    assert not asked.peers_lost


def test_before_that_the_wait_goes_on_from_when_the_first_place_was_empty() -> None:
    story = without(1, 4)
    began_s = story.state.life.empty_since_s
    assert began_s is not None
    story.now_s += 100.0
    train_on(story.killed(3).examined(), 0, 2)
    assert story.state.life.empty_since_s == began_s
    story.performed(StartTimer)
    story.rang(Timer.HEAL)
    (again,) = story.performed(StartTimer)
    assert (again.timer, again.at_s) == (Timer.HEAL, began_s + SHARING.heal_s)


@pytest.mark.parametrize("when", ["free", "on the way"])
def test_a_rank_that_finishes_as_somebody_comes_back_is_left_out_and_nobody_begins_anew(when: str) -> None:
    story = standby(without(1), 1)
    if when == "on the way":
        comes(story).rejoined(2)
    else:
        story.answers_wait = True
        comes(story)
    story.returned(0)
    story.answers_wait = False
    story.hears()
    assert (story.phase, story.plan.missing) == (Phase.RUNNING, frozenset({0}))
    assert story.state.life.alive == frozenset({1, 2})
    story.rejoined(1, 2).returned(2).returned(1).drained()
    assert story.state.exit_code == 0


def test_where_the_last_that_live_die_at_once_the_next_plan_answers_for_both_and_keeps_nobody() -> None:
    story = without(1).killed(2)
    story.answers_wait = True
    story.examined().killed(0)
    story.answers_wait = False
    assert story.phase is Phase.SWEEPING
    story.hears().drained().chose(checkpoint(30))
    plan, number = story.plan, story.plan.incarnation
    assert (plan.kept, plan.missing, plan.reason) == (frozenset(), frozenset(), Reason.FAULT)
    assert (number, plan.ledger.incidents, plan.ledger.total_restarts) == (3, 2, 2)
    assert len(plan.ledger.restarts) == 2


@pytest.mark.parametrize("trained", [False, True])
def test_what_all_ranks_raise_in_one_step_is_one_fault_until_they_have_done_another(trained: bool) -> None:
    story = sharing().returned(2, 1).examined()
    charged, alike = story.plan.ledger.restarts, story.plan.ledger.alike
    assert story.plan.missing == frozenset({2})
    shares(story.rejoined(0, 1), 0, 1)
    if trained:
        train_on(story, 0, 1).reported(r0=43, r1=43)
    story.now_s += 1.0
    story.returned(0, 1).returned(1, 1).drained().chose(checkpoint(30))
    assert story.plan.kept == frozenset()
    assert (story.plan.ledger.restarts == charged) is not trained
    assert (story.plan.ledger.incidents, story.plan.ledger.alike) == (2, alike)


@pytest.mark.parametrize("when", ["once a plan is there", "before", "at first"])
def test_where_the_others_finish_as_they_are_to_form_a_group_the_run_ends_well(when: str) -> None:
    story = sharing()
    if when == "at first":
        story.returned(0).killed(1).examined()
    elif when == "before":
        story.killed(1).returned(0).examined()
    else:
        story.killed(1).examined().returned(0)
    assert (sorted(story.plan.kept), sorted(story.plan.missing)) == ([2], [0, 1])
    assert story.performed(Spawn)[-1].finished == frozenset({0})
    story.rang(Timer.REJOIN)
    assert story.phase is Phase.RUNNING  # it evaluates, and waits for nobody
    story.returned(2).drained()
    assert (story.state.exit_code, len(story.plan.ledger.restarts)) == (0, 1)
    assert not story.performed(Spawn)


def test_who_came_for_another_is_ended_where_all_that_had_a_state_for_it_have_finished() -> None:
    story = standby(sharing(), 1).killed(1).examined().returned(0)
    story.performed(Kill)
    story.returned(2)
    assert [one.ranks for one in story.performed(Kill)] == [frozenset({1})]
    story.killed(1).drained()
    assert story.state.exit_code == 0


@pytest.mark.parametrize("last", [0, 1])
def test_a_rank_that_is_killed_as_all_others_finish_is_not_needed(last: int) -> None:
    story = sharing().returned(2)
    story = (story.returned(0).killed(1) if last else story.killed(1).returned(0)).drained()
    assert (story.state.exit_code, story.incident.rank) == (0, 1)


@pytest.mark.parametrize("how", ["first of the group", "all wait", "asked to leave", "its own exception"])
def test_a_lost_rank_is_needed_at_the_end_where_another_may_have_done_less(how: str) -> None:
    story = sharing(windows=STAYING if how == "all wait" else SHARING)
    if how == "first of the group":
        story.killed(0).examined().returned(1)
    elif how == "asked to leave":
        story.returned(0).returned(1, 1).returned(2)
    elif how == "its own exception":
        story.returned(0).returned(2).returned(1, 1)
    else:
        story.killed(1).examined().returned(0)
    for rank in story.state.life.alive:
        story.killed(rank)
    assert story.drained().phase is Phase.SURVEYING


@pytest.mark.parametrize("before", ["the plan without the dead", "the plan without who has finished"])
def test_ranks_that_all_finish_before_a_plan_comes_that_keeps_them_end_the_run(before: str) -> None:
    story = sharing().killed(1)
    if before == "the plan without the dead":
        story.answers_wait = True
        story.examined().returned(0).returned(2)
    else:
        story.examined().answers_wait = True
        story.returned(0).returned(2)
    story.answers_wait = False
    story.hears().drained()
    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 0)
