"""A supervisor killed with all its ranks costs a restart only where that speaks against the program."""

import pytest

from faultrun.model.events import RunStarted, Timer
from faultrun.model.run import Phase
from faultrun.model.topology import BootId
from support.stories.story import NODE, Story, checkpoint, rule


def starts(story: Story, *, machine: str = "m", oom_kills: int = 0, came_to: int | None = None) -> Story:
    return story.now(
        RunStarted, node=NODE, boot=BootId("b"), pid=1, machine=machine, oom_kills=oom_kills, came_to=came_to
    )


@pytest.mark.parametrize(
    ("machine", "oom_kills", "came_to", "costs"),
    [
        *(("m", 0, 70, False), ("m", 0, None, False)),
        *(("m", 1, 70, True), ("m", 1, None, True), ("m", 0, 50, True)),
        *(("another", 0, 50, False), ("another", 1, 50, False), ("", 1, 50, False)),
    ],
)
def test_only_want_of_memory_or_one_step_twice_under_one_kernel_costs_a_restart(
    machine: str, oom_kills: int, came_to: int | None, costs: bool
) -> None:
    story = starts(Story(2)).chose(None).prepared()
    starts(story, came_to=50).chose(checkpoint(10)).prepared()
    assert story.phase is Phase.RUNNING
    assert (story.plan.ledger.incidents, story.plan.ledger.restarts) == (0, ())
    starts(story, machine=machine, oom_kills=oom_kills, came_to=came_to).chose(checkpoint(10))
    assert bool(story.plan.ledger.restarts) is costs
    assert story.plan.ledger.incidents == int(costs)


def test_a_run_that_is_killed_at_the_same_step_again_and_again_comes_to_an_end() -> None:
    story = starts(Story(2)).chose(None).prepared()
    for _ in range(9):
        if story.phase is Phase.RUNNING:
            starts(story, came_to=50).chose(checkpoint(10))
        if story.phase is Phase.BACKING_OFF:
            story.now_s = story.plan.start_at_s
            story.rang(Timer.BACKOFF)
        if story.phase is Phase.PREPARING:
            story.prepared()
    assert story.phase is Phase.FINISHED


def test_what_the_kernel_killed_after_a_run_was_given_up_is_no_incident_of_its_next_start() -> None:
    story = starts(Story(2, rule(max_restarts=0))).chose(None).prepared()
    story.killed(0).killed(1).drained().chose(checkpoint(10))
    assert (story.phase, story.state.given_up, story.state.cut_off) == (Phase.FINISHED, True, False)
    starts(story, oom_kills=1)
    assert story.state.life.incident is None
