"""Stories of runs whose survivors may stay."""

from faultrun.model.actions import (
    Spawn,
)
from faultrun.model.spec import RestartPolicy
from support.story import POLICY, STAYING, Story, checkpoint


def training(world_size: int = 3, *, able: int | None = None, policy: RestartPolicy = POLICY) -> Story:
    """All run and have done steps; the first ``able`` ranks can rejoin, by default all."""
    story = Story(world_size, policy, STAYING).begins(checkpoint(30))
    story.can_rejoin(*range(world_size if able is None else able))
    story.reported(**{f"r{rank}": 41 for rank in range(world_size)})
    story.performed(Spawn)
    return story
