"""A training that recovers by itself: who died is started again, the others are told and left alone."""

from dataclasses import replace

import pytest

from faultrun.model.actions import FreeSurvivors, Kill, RequestGasp, Spawn, StartTimer, SweepRanks
from faultrun.model.events import Timer
from faultrun.model.exits import Exited, Signaled
from faultrun.model.run import Phase
from faultrun.observe.card.card import render
from support.stories.story import POLICY, SIGKILL, Story, checkpoint
from support.stories.survivors import recovering_by_itself


@pytest.mark.parametrize("status", [Exited(code=1), Exited(code=2), Signaled(signum=SIGKILL)])
def test_the_dead_rank_alone_is_started_again_and_nobody_waits_for_anybody(status: Exited | Signaled) -> None:
    story = recovering_by_itself().ended(1, status)
    (told,) = [action for action in story.actions if isinstance(action, FreeSurvivors)]
    assert told.ranks == frozenset({0, 2})
    story.examined()
    timers = [action.timer for action in story.actions if isinstance(action, StartTimer)]
    assert not [action for action in story.actions if isinstance(action, RequestGasp | Kill)]
    assert Timer.REJOIN not in timers
    (swept,) = [action for action in story.actions if isinstance(action, SweepRanks)]
    assert (swept.incarnation, swept.ranks) == (0, frozenset({1}))
    (spawn,) = story.performed(Spawn)
    assert (spawn.ranks, spawn.plan.kept, spawn.plan.started) == ((1,), frozenset({0, 2}), 0)
    assert story.state.life.rejoining == frozenset()
    assert len(spawn.plan.ledger.restarts) == 1


def test_an_error_of_the_program_is_no_reason_against_it_but_the_budget_is() -> None:
    policy = replace(POLICY, max_restarts=2)
    story = recovering_by_itself(policy=policy)
    for _ in range(2):
        story.ended(2, Exited(code=1)).examined()
        assert story.phase is Phase.RUNNING
    story.ended(2, Exited(code=1)).examined()
    assert story.phase is Phase.DRAINING, "all save"
    ends(story, 0, 1)
    assert story.state.exit_code == 93, "the same failure again and again"


def test_3_ends_the_run_with_it_once_the_others_have_saved() -> None:
    story = recovering_by_itself().ended(1, Exited(code=3)).examined()
    assert story.phase is Phase.DRAINING
    assert [action.ranks for action in story.actions if isinstance(action, RequestGasp)] == [
        frozenset({0, 2})
    ]
    ends(story, 0, 2)
    assert story.state.exit_code == 3
    assert "do not start me again (--worker_exit_codes=torchft)" in story.whys[-1]


def test_the_card_does_not_say_what_the_others_have_in_memory() -> None:
    story = recovering_by_itself()
    story.answers_wait = True
    card = replace(story.killed(1).card, kept=(0, 2), recovers_itself=True)
    assert "resume    in the training's own way: ranks 0 2 stayed" in render(card)


def ends(story: Story, *ranks: int) -> None:
    for rank in ranks:
        story.ended(rank, Exited(code=143))
    story.drained().chose(checkpoint(30))
