"""Stories of runs whose survivors may stay."""

from dataclasses import replace

from faultrun.model.actions import Spawn
from faultrun.model.exits import WorkerExitCodes
from faultrun.model.spec import RestartPolicy
from support.story import POLICY, STAYING, Story, checkpoint


def recovering_by_itself(world_size: int = 3, policy: RestartPolicy = POLICY) -> Story:
    """All run and have done steps; their exit codes are torchft's, and none says that it can rejoin."""
    policy = replace(policy, exit_codes=WorkerExitCodes.TORCHFT)
    story = Story(world_size, policy, STAYING)
    story.state = replace(story.state, exit_codes=WorkerExitCodes.TORCHFT)
    story.begins(checkpoint(30)).reported(**{f"r{rank}": 41 for rank in range(world_size)})
    story.performed(Spawn)
    return story


def training(world_size: int = 3, *, able: int | None = None, policy: RestartPolicy = POLICY) -> Story:
    """All run and have done steps; the first ``able`` ranks can rejoin, by default all."""
    story = Story(world_size, policy, STAYING).begins(checkpoint(30))
    story.can_rejoin(*range(world_size if able is None else able))
    story.reported(**{f"r{rank}": 41 for rank in range(world_size)})
    story.performed(Spawn)
    return story
