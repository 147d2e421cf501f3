"""Stories of what the platform says in ``reset.json``."""

from collections.abc import Mapping
from typing import Any

from faultrun.model.observed.platform_notice import RankStatus, ReportedRank, ResetNotice
from faultrun.model.run import Phase
from support.stories.story import SIGTERM, Story, checkpoint


def told(ranks: Mapping[int, str] | None = None, **fields: Any) -> ResetNotice:
    """What ``reset.json`` says: rank -> status."""
    reported = tuple(
        ReportedRank(rank=rank, status=RankStatus(status), policy="reset", error="20ff02")
        for rank, status in sorted((ranks or {}).items())
    )
    return ResetNotice(ranks=reported, **fields)


def phase(story: Story) -> Phase:
    return story.phase


def ends(story: Story) -> Story:
    """Every worker that still lives leaves by the request."""
    for rank in sorted(story.state.life.alive):
        story.killed(rank, SIGTERM)
    return story


def faulty(ranks: Mapping[int, str] | None = None, **fields: Any) -> Story:
    """Rank 1 of 3 is reported while all run; the workers have left and the recovery point is chosen."""
    story = Story(3).begins().reported(r0=7, r1=7, r2=6)
    story.noticed(told(ranks or {1: "unrecovered"}, **fields), after_s=5)
    return ends(story).drained().chose(checkpoint(7))
