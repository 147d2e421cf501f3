"""A rank dies, the others stay, somebody takes its place; and every way in which that is left."""

from dataclasses import replace

import pytest

from faultrun.core.phases.may_stay import MOST_IN_A_LIFE, MOST_REGROUPS, WAY_TO_STAY, why_not_stay
from faultrun.model.actions import (
    ExamineDeaths,
    FindRecoveryPoint,
    FreeSurvivors,
    Kill,
    Prepare,
    RequestGasp,
    Spawn,
    StartTimer,
    SweepRanks,
)
from faultrun.model.events import FirstStep, Timer, WorkerExit
from faultrun.model.exits import Exited, Signaled
from faultrun.model.incident import Cause
from faultrun.model.observed.rejoin import DeathsExamined, RankCannotRejoin
from faultrun.model.plan import Reason
from faultrun.model.run import Phase
from faultrun.model.stop import StopSource
from faultrun.observe.card.card import render
from support.stories.story import NODE, POLICY, SIGKILL, SIGTERM, STAYING, WINDOWS, Story, checkpoint
from support.stories.survivors import training


def test_the_others_are_freed_at_once_and_only_the_dead_rank_is_started() -> None:
    story = training().killed(1)
    assert story.phase is Phase.REPLACING
    (freed,) = [action for action in story.actions if isinstance(action, FreeSurvivors)]
    assert (freed.incarnation, freed.ranks) == (0, frozenset({0, 2}))
    assert not [action for action in story.actions if isinstance(action, RequestGasp | Kill)]
    (examine,) = story.performed(ExamineDeaths)
    assert examine.dead == (1,)
    story.examined()
    assert story.state.phase is Phase.RUNNING
    assert not [action for action in story.actions if isinstance(action, FindRecoveryPoint | Prepare)]
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept, spawn.plan.incarnation) == ((1,), frozenset({0, 2}), 1)
    assert (spawn.plan.started, spawn.plan.reason, spawn.plan.point) == (0, Reason.FAULT, None)
    assert spawn.master_port == 29500
    assert len(spawn.plan.ledger.restarts) == 1  # charged like a restart of all


@pytest.mark.parametrize("asked", [False, True])
def test_why_nobody_stays_where_no_script_spoke_of_it_is_told_to_who_asked_for_it(asked: bool) -> None:
    story = Story(3, POLICY, replace(STAYING, stay_asked=asked)).begins().killed(1)
    drain = story.state.life.drain
    assert drain is not None and drain.incident is not None
    told = f"no rank that lives has said that it can ({WAY_TO_STAY})"
    assert drain.incident.unkept == (told if asked else "")


def test_once_all_are_one_group_what_the_dead_left_behind_is_swept() -> None:
    story = training().killed(1).examined().rejoined(0, 2)
    assert not story.performed(SweepRanks)
    assert story.state.life.rejoining == frozenset({1})
    (swept,) = story.rejoined(1).performed(SweepRanks)
    assert (swept.ranks, swept.incarnation) == (frozenset({1}), 0)
    story.rang(Timer.REJOIN)
    assert (story.phase, story.whys[-1]) == (Phase.RUNNING, "all have rejoined")


def test_what_a_rank_left_behind_is_swept_though_another_died_before_all_were_one_group() -> None:
    story = training().killed(1).examined().rejoined(0).killed(2).examined()
    assert not story.performed(SweepRanks)
    swept = story.rejoined(0, 1, 2).performed(SweepRanks)
    assert [(one.ranks, one.incarnation) for one in swept] == [(frozenset({1}), 0), (frozenset({2}), 1)]
    story.can_rejoin(0, 1, 2).killed(1).examined()
    assert [one.ranks for one in story.rejoined(0, 1, 2).performed(SweepRanks)] == [frozenset({1})]


def test_the_same_processes_survive_one_death_after_the_other() -> None:
    story = training()
    for number, rank in enumerate((1, 0, 2, 1), 1):
        story.killed(rank).examined()
        assert (story.plan.incarnation, story.plan.kept) == (number, frozenset({0, 1, 2}) - {rank})
        assert story.plan.started == 0
        story.rejoined(0, 1, 2, step=41 + number).can_rejoin(0, 1, 2)
        story.now(FirstStep, step=42 + number).reported(r0=42 + number, r1=42 + number, r2=42 + number)
    assert story.plan.ledger.total_restarts == 4
    story.returned(0).returned(1).returned(2).drained()
    assert story.state.exit_code == 0


def test_two_that_die_at_once_are_replaced_together() -> None:
    story = training(4).killed(1).killed(3)
    assert [action.dead for action in story.performed(ExamineDeaths)] == [(1,), (1, 3)]
    story.now_s += 0.1
    story.examined()
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept) == ((1, 3), frozenset({0, 2}))


def test_words_of_the_first_death_alone_answer_nothing_once_there_are_two() -> None:
    story = training(3).killed(1)
    first = story.performed(ExamineDeaths)[0]
    story.killed(2)
    story.now(DeathsExamined, dead=first.dead, notes=())
    assert (story.phase, story.whys[-1]) == (Phase.REPLACING, "another rank has died meanwhile")


def test_a_death_that_was_noticed_as_the_plan_came_is_no_stale_news() -> None:
    story = training().killed(1).examined()
    status = Signaled(signum=SIGKILL)
    story.now(WorkerExit, incarnation=0, node=NODE, rank=2, pid=102, status=status)
    assert story.phase is Phase.REPLACING
    story.examined()
    (_, spawn) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept, spawn.plan.incarnation) == ((2,), frozenset({0, 1}), 2)


def test_a_newcomer_that_dies_before_it_is_in_is_replaced_too() -> None:
    story = training().killed(1).examined().rejoined(0, 2).killed(1).examined()
    (_, spawn) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept, spawn.plan.incarnation) == ((1,), frozenset({0, 2}), 2)


@pytest.mark.parametrize("is_in", [False, True])
def test_who_has_no_state_yet_is_no_survivor_that_others_could_go_on_from(is_in: bool) -> None:
    story = training(2).killed(1).examined().rejoined(0)
    story = (story.rejoined(1).can_rejoin(0, 1) if is_in else story).killed(0)
    assert story.phase is (Phase.REPLACING if is_in else Phase.DRAINING)


@pytest.mark.parametrize("is_in", [False, True])
def test_a_newcomer_that_ends_by_itself_in_its_first_step_is_not_tried_again(is_in: bool) -> None:
    story = training().killed(1).examined().rejoined(0, 2, *([1] if is_in else [])).returned(1, 1)
    assert story.phase is Phase.DRAINING
    why = "it came in for another, and ended by itself before all had finished a step"
    assert (story.incident.rank, story.incident.unkept) == (1, why)


def test_a_survivor_that_ends_by_itself_and_a_newcomer_that_has_done_a_step_are_replaced() -> None:
    story = training().killed(1).examined().rejoined(0, 1, 2).can_rejoin(0, 1, 2).returned(2, 1)
    assert story.phase is Phase.REPLACING
    story.examined().rejoined(0, 1, 2).can_rejoin(0, 1, 2).reported(r0=44, r1=44, r2=44)
    assert story.now(FirstStep, step=44).returned(2, 1).phase is Phase.REPLACING


def test_a_newcomer_is_said_to_fail_at_its_own_step_and_not_at_the_dead_ranks() -> None:
    story = training().killed(1).examined()
    assert [one.rank for one in story.state.life.steps] == [0, 2]
    story.rejoined(0, 1, 2, step=57).killed(1)
    assert story.incident.step == 57


def test_what_kills_a_rank_each_time_is_not_fed_for_ever() -> None:
    story = training(policy=replace(POLICY, max_restarts=99))
    for _ in range(MOST_REGROUPS):
        story.killed(1, after_s=400).examined()
        if story.phase is not Phase.RUNNING:
            break
    else:
        story.killed(1)
    assert story.phase is Phase.DRAINING


@pytest.mark.parametrize(
    ("why", "story"),
    [
        ("not wanted", lambda: Story(3, POLICY, WINDOWS).begins().can_rejoin(0, 1, 2)),
        ("one cannot", lambda: training(able=2)),
        ("nobody else lives", lambda: training(1)),
        ("one has finished", lambda: training().returned(2)),
    ],
)
def test_where_survivors_cannot_stay_they_save_and_leave(why: str, story: "type[Story]") -> None:
    told = story().killed(0)
    assert told.phase in (Phase.DRAINING, Phase.SWEEPING), why
    assert not told.performed(FreeSurvivors)


def test_who_does_not_come_back_in_time_is_named_and_all_begin_anew() -> None:
    story = training().killed(1).examined().rejoined(0)
    story.performed(Spawn)
    story.rang(Timer.REJOIN, after_s=15)
    assert story.phase is Phase.DRAINING
    assert story.incident.cause is Cause.REJOIN
    assert story.incident.explanation == "ranks 1 2 did not rejoin within 15 s"
    (asked,) = story.performed(RequestGasp)
    assert asked.ranks == frozenset({0, 1, 2})
    for rank in (0, 1, 2):
        story.killed(rank, SIGTERM)
    story.recovers(checkpoint(30))
    assert (story.plan.kept, story.plan.incarnation, story.plan.started) == (frozenset(), 2, 2)
    assert story.performed(Spawn)[-1].ranks == (0, 1, 2)
    assert story.state.life.rejoinable == frozenset()


def test_whoever_cannot_rejoin_says_so_and_nobody_waits_for_the_others() -> None:
    story = training().killed(1).examined().cannot_rejoin(2)
    assert story.phase is Phase.DRAINING
    assert story.incident.explanation == "rank 2 cannot rejoin: out of memory"


def test_what_a_survivor_says_before_it_has_heard_of_the_plan_counts() -> None:
    story = training().killed(1).examined()
    story.now(RankCannotRejoin, incarnation=0, rank=2, why="no memory")
    assert story.phase is Phase.DRAINING


def test_a_survivor_that_cannot_ends_it_before_a_plan_came_and_the_death_stays_the_incident() -> None:
    story = training().killed(1).cannot_rejoin(2)
    assert story.phase is Phase.DRAINING
    assert (story.incident.rank, story.incident.cause) == (1, Cause.SIGNAL)
    why = "  stayed    nobody: it was tried; rank 2 cannot rejoin: out of memory\n"
    assert why in render(story.card)


def test_a_rank_that_has_done_all_its_steps_cannot_rejoin_and_that_ends_nothing() -> None:
    story = training().cannot_rejoin(2, "all its steps are done")
    assert story.phase is Phase.RUNNING
    assert story.killed(0).phase is Phase.DRAINING


def test_without_a_restart_left_the_survivors_save_and_the_run_ends_as_ever() -> None:
    story = training(policy=replace(POLICY, max_restarts=0)).killed(1).examined()
    assert story.phase is Phase.DRAINING
    assert story.performed(RequestGasp)[0].ranks == frozenset({0, 2})
    story.killed(0, SIGTERM).killed(2, SIGTERM).drained().chose(checkpoint(41))
    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 137)


def test_a_stop_in_the_middle_is_a_stop() -> None:
    story = training().killed(1).told_to_stop(StopSource.SIGTERM)
    assert story.phase is Phase.DRAINING
    assert story.performed(RequestGasp)[0].ranks == frozenset({0, 2})
    story.killed(0, SIGTERM).killed(2, SIGTERM).drained()
    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 143)


def test_the_wait_for_the_dead_ranks_words_is_bounded() -> None:
    story = training().killed(1)
    (timer,) = [one for one in story.performed(StartTimer) if one.timer is Timer.REJOIN]
    assert timer.at_s == story.now_s + 15
    assert story.rang(Timer.REJOIN, after_s=15).phase is Phase.DRAINING


def test_one_that_dies_as_the_plan_is_made_is_replaced_with_the_first_and_charged_once() -> None:
    story = training()
    story.answers_wait = True
    story.killed(1).examined().killed(2).hears()
    assert (story.phase, story.performed(Spawn)) == (Phase.REPLACING, [])
    story.examined().hears()
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept, spawn.plan.incarnation) == ((1, 2), frozenset({0}), 2)
    assert len(spawn.plan.ledger.restarts) == 1


@pytest.mark.parametrize("last", ["all die", "one cannot"])
def test_survivors_given_up_as_the_plan_is_made_begin_anew_and_are_charged_once(last: str) -> None:
    story = training()
    story.answers_wait = True
    story.killed(1).examined()
    if last == "all die":
        story.killed(0).killed(2).hears()
    else:
        story.cannot_rejoin(2).hears().killed(0, SIGTERM).killed(2, SIGTERM)
    story.answers_wait = False
    story.recovers(checkpoint(30))
    assert (story.plan.kept, story.plan.incarnation) == (frozenset(), 2)
    assert (len(story.plan.ledger.restarts), story.plan.ledger.alike) == (1, 1)


@pytest.mark.parametrize("planned", [False, True])
def test_a_rank_that_finishes_in_the_middle_is_not_started_again_beside_the_others(planned: bool) -> None:
    story = training().killed(1)
    if planned:
        story.examined().rejoined(0)
    story.performed(Spawn)
    story.returned(2)
    assert (story.phase, story.performed(Spawn)) == (Phase.DRAINING, [])
    assert "rank 2 finished before all were one group again" in story.whys[-1]


def test_a_rank_with_bad_memory_keeps_its_process_and_all_form_one_group_again() -> None:
    story = training().has_bad_memory(1)
    (freed,) = [action for action in story.actions if isinstance(action, FreeSurvivors)]
    assert freed.ranks == frozenset({0, 1, 2})
    assert not [action for action in story.actions if isinstance(action, ExamineDeaths)]  # nobody died
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept, spawn.plan.incarnation) == ((), frozenset({0, 1, 2}), 1)
    assert len(spawn.plan.ledger.restarts) == 1  # charged like a restart of all
    assert not story.rejoined(0, 1, 2).performed(SweepRanks)
    assert story.state.life.rejoining == frozenset()


def test_after_so_many_groups_all_begin_anew_and_may_stay_again() -> None:
    story = training().killed(1).examined().rejoined(0, 1, 2).can_rejoin(0, 1, 2)
    worn = replace(story.plan, incarnation=MOST_IN_A_LIFE)
    state = replace(story.state, run=replace(story.state.run, plan=worn))
    assert why_not_stay(state, 1) == "the survivors have left 100 groups, which is enough for one process"
    anew = replace(worn, kept=frozenset())
    assert why_not_stay(replace(state, run=replace(state.run, plan=anew)), 1) == ""


def test_the_card_of_a_repair_says_that_it_was_one() -> None:
    story = training()
    story.answers_wait = True
    text = render(replace(story.has_bad_memory(1).card, kept=(0, 1, 2), rejoined_step=41))
    assert "rank 1 of 3 has bad memory at step 41" in text
    assert "cause     persistent memory fault in 0.weight" in text
    assert "step 41 in the memory of all ranks: rank 1 was repaired in place, lost 0 steps" in text


def test_bad_memory_again_before_a_step_of_all_is_left_to_the_ranks_end_and_it_is_replaced() -> None:
    story = training().has_bad_memory(1).rejoined(0, 1, 2)
    story.performed(Spawn)
    story.has_bad_memory(1)
    assert (story.phase, story.performed(Spawn)) == (Phase.RUNNING, [])
    assert "no step of all was finished since the last fault" in story.whys[-1]
    story.ended(1, Exited(code=1)).examined()
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept) == ((1,), frozenset({0, 2}))
    story.rejoined(0, 1, 2).can_rejoin(0, 1, 2).now(FirstStep, step=42)
    assert story.has_bad_memory(2).performed(Spawn)[-1].ranks == ()


def test_a_rank_that_dies_while_another_is_repaired_is_replaced_beside_it() -> None:
    story = training()
    story.answers_wait = True
    story.has_bad_memory(1).killed(2).hears().examined().hears()
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept, spawn.plan.incarnation) == ((2,), frozenset({0, 1}), 2)
    assert len(spawn.plan.ledger.restarts) == 1


def test_where_nobody_is_in_the_newcomer_is_named_and_no_survivor_blamed() -> None:
    story = training().killed(1).examined().rang(Timer.REJOIN, after_s=15)
    assert (story.phase, story.incident.rank) == (Phase.DRAINING, 1)
    assert story.incident.explanation == "rank 1 did not come in beside ranks 0 2 within 15 s"


def test_the_step_of_an_incident_in_which_no_rank_died_is_how_far_all_had_come_when_they_were_told() -> None:
    story = training().killed(1).examined().rang(Timer.REJOIN, after_s=15).reported(r0=63, r2=63)
    for rank in (0, 1, 2):
        story.killed(rank, SIGTERM)
    assert story.drained().incident.step == 63


def test_a_rank_that_is_not_repaired_in_time_ends_the_wait_and_all_begin_anew() -> None:
    story = training().has_bad_memory(1).rejoined(0, 2).rang(Timer.REJOIN, after_s=15)
    assert story.phase is Phase.DRAINING
    assert story.incident.explanation == "rank 1 did not rejoin within 15 s"


def test_where_ranks_cannot_stay_bad_memory_is_the_ranks_own_affair() -> None:
    story = Story(3, POLICY, WINDOWS).begins().can_rejoin(0, 1, 2).has_bad_memory(1)
    assert story.phase is Phase.RUNNING
    assert story.whys[-1] == "rank 1 is not repaired in place: survivors are not to stay (--on_fault=restart)"
