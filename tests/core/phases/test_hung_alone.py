"""A rank hangs and the others stay: it is killed first, and replaced like one that died by itself."""

from dataclasses import replace

import pytest

from faultrun.model.actions import ExamineDeaths, FreeSurvivors, Kill, RequestGasp, Spawn
from faultrun.model.events import Timer
from faultrun.model.incident import Cause
from faultrun.model.observed.hang import Activity
from faultrun.model.run import Phase
from faultrun.observe.card.card import render
from support.stories.story import POLICY, SIGTERM, WINDOWS, Story, checkpoint
from support.stories.survivors import recovering_by_itself, training

NO_QUESTION = ("survivors are not to stay", "no other rank lives")


def hung(story: Story, rank: int = 1, stance: Activity = Activity.SLEEPING) -> Story:
    return story.is_silent(rank).hangs(rank, stance=stance)


def test_it_is_killed_before_the_others_are_freed_and_replaced_as_any_that_died() -> None:
    story = hung(training())
    assert story.phase is Phase.REPLACING
    assert [kill.ranks for kill in story.performed(Kill)] == [frozenset({1})]
    assert not story.performed(FreeSurvivors)
    story.killed(1)
    kinds = [type(action) for action in story.actions]
    assert kinds.index(FreeSurvivors) < kinds.index(ExamineDeaths)
    assert [one.ranks for one in story.performed(FreeSurvivors)] == [frozenset({0, 2})]
    (spawn,) = story.examined().performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept, spawn.plan.incarnation) == ((1,), frozenset({0, 2}), 1)
    assert len(spawn.plan.ledger.restarts) == 1
    # Unless the kernel proved it: it may have been a pause, and at this step the next one gets more time.
    assert (spawn.patience.hung_step, spawn.patience.hung_limit_s) == (41, 1.0)
    assert story.state.life.standstill.suspicion is None


def test_the_incident_and_its_card_tell_of_the_hang_and_of_who_stayed() -> None:
    story = training()
    story.answers_wait = True
    hung(story).killed(1).examined()
    assert (story.incident.cause, story.incident.rank, story.incident.status) == (Cause.HANG, 1, None)
    text = render(replace(story.card, kept=(0, 2), rejoined_step=41))
    assert text.startswith("incident 1  rank 1 of 3 hung at step 41 (epoch 2)\n")
    assert "stacks    rank 1 is at train.py:57 in forward" in text
    assert "resume    step 41 in the memory of ranks 0 2, which stayed, lost 0 steps" in text


@pytest.mark.parametrize(
    ("why", "story", "stance"),
    [
        ("survivors are not to stay", lambda: Story(3, POLICY, WINDOWS).begins(), Activity.SLEEPING),
        ("rank 2 cannot leave its group alive", lambda: training(able=2), Activity.SLEEPING),
        ("no other rank lives", lambda: training(1), Activity.SLEEPING),
        ("a rank has finished", lambda: training().returned(2), Activity.SLEEPING),
        ("on their way into this group", lambda: training().killed(0).examined(), Activity.SPINNING),
        ("no rank was found that the others wait for", training, Activity.WAITING),
        ("no rank was found that the others wait for", training, Activity.ENDED),
    ],
)
def test_else_all_save_and_begin_anew_and_say_why(why: str, story: "type[Story]", stance: Activity) -> None:
    told = story()
    told.actions.clear()
    rank = 0 if len(told.state.life.alive) == 1 else 1
    hung(told, rank, stance)
    assert told.phase is Phase.DRAINING
    assert not told.performed(Kill)
    told_why = f"  stayed    nobody: {'ranks are still ' if why.startswith('on') else ''}{why}\n"
    assert (told_why in render(told.card)) == (why not in NO_QUESTION)


def test_one_that_sigkill_does_not_end_is_waited_for_so_long_and_no_longer() -> None:
    story = hung(training())
    story.performed(Kill)
    story.rang(Timer.REJOIN, after_s=15)
    assert story.phase is Phase.DRAINING
    assert story.whys[-1].startswith("rank 1, which hung, did not end by SIGKILL within 15 s")
    assert story.performed(RequestGasp)[0].ranks == frozenset({0, 1, 2})
    assert (story.incident.cause, story.incident.rank) == (Cause.HANG, 1)


def test_another_that_dies_while_it_is_being_killed_is_replaced_with_it() -> None:
    story = hung(training()).killed(2)
    assert not story.performed(ExamineDeaths)
    (examine,) = story.killed(1).performed(ExamineDeaths)
    assert examine.dead == (2, 1)
    (spawn,) = story.examined().performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept) == ((1, 2), frozenset({0}))
    assert len(spawn.plan.ledger.restarts) == 1


def test_one_that_finishes_although_it_seemed_to_hang_is_not_done_again() -> None:
    story = hung(training()).returned(1)
    assert (story.phase, story.performed(Spawn)) == (Phase.DRAINING, [])


def test_a_stop_while_it_is_being_killed_is_a_stop() -> None:
    story = hung(training()).told_to_stop()
    assert story.phase is Phase.DRAINING
    story.killed(0, SIGTERM).killed(1).killed(2, SIGTERM).drained()
    assert story.state.exit_code == 143


def test_when_all_are_gone_the_run_begins_anew_and_the_hang_is_the_incident() -> None:
    story = hung(training()).killed(0).killed(2)
    assert story.phase is Phase.REPLACING
    assert story.killed(1).phase is Phase.SWEEPING
    assert story.drained().incident.cause is Cause.HANG
    story.chose(checkpoint(41))
    assert story.plan.kept == frozenset()


def test_a_training_that_recovers_by_itself_gets_the_hung_rank_back() -> None:
    story = hung(recovering_by_itself()).killed(1).examined()
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept) == ((1,), frozenset({0, 2}))
