"""Whatever the platform says, and in whatever order."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.phases.platform_notices import hold
from faultrun.model.actions import Spawn
from faultrun.model.events import FaultNotice
from faultrun.model.run import Phase
from support.stories.generated import values
from support.stories.story import Story

_NOTICES = values(FaultNotice).map(lambda event: event.notice)


@settings(max_examples=60)
@given(st.lists(_NOTICES, max_size=6), st.lists(_NOTICES, max_size=6))
def test_whatever_the_platform_says_workers_start_only_when_it_has_nothing_against_it(
    first: list[Any], later: list[Any]
) -> None:
    story = Story(3).starts(notices=tuple(first)).chose(None)
    for notice in later:
        against = hold(story.state)
        if story.phase is Phase.PREPARING:
            story = story.prepared()
            assert (story.phase is Phase.RUNNING) == (not against)
        story.noticed(notice, after_s=1)
        if story.phase is Phase.RUNNING:
            assert "not recovered" not in hold(story.state)
            assert "marked as faulty" not in hold(story.state)
    assert all(spawn.plan.incarnation == 0 for spawn in story.performed(Spawn))
