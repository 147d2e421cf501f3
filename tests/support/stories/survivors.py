"""Stories of runs whose survivors may stay, and the processes that they tell of."""

from collections.abc import Callable
from dataclasses import replace

from faultrun.model.actions import FreeSurvivors, Kill, Spawn
from faultrun.model.events import Timer
from faultrun.model.exits import Exited, ExitStatus, Signaled, WorkerExitCodes
from faultrun.model.observed.hang import Activity
from faultrun.model.run import Phase
from faultrun.model.spec.run_spec import RestartPolicy
from support.stories.story import POLICY, SIGKILL, SIGTERM, STAYING, Story, checkpoint


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


class World:
    """The processes as they are: started by Spawn, gone by their exit. What is ordered must fit them."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.living = {*story.state.life.alive}
        self.dying: set[int] = set()
        self._seen = len(story.steps)

    def obeys(self) -> None:
        for _, step in self.story.steps[self._seen :]:
            for action in step.actions:
                if isinstance(action, Spawn):
                    assert not self.living & {*action.ranks}
                    assert self.living >= action.plan.kept
                    self.living.update(action.ranks)
                if isinstance(action, FreeSurvivors):
                    assert action.ranks <= self.living - self.dying
                if isinstance(action, Kill):
                    self.dying |= action.ranks & self.living
        self._seen = len(self.story.steps)
        assert self.story.state.life.alive == self.living or self.story.phase.without_workers

    def loses(self, rank: int, status: ExitStatus) -> None:
        if rank in self.living:
            self.living.discard(rank)
            self.dying.discard(rank)
            self.story.ended(rank, status, after_s=1.0)

    def dies_or_is_examined(self) -> None:
        if self.dying:
            self.loses(min(self.dying), Signaled(signum=SIGKILL))
        else:
            self.story.examined()

    def hangs(self, rank: int) -> None:
        self.story.now_s += 1.0
        self.story.hangs(rank, stance=Activity.SLEEPING)

    def ends(self) -> None:
        """Answer whatever the supervisor waits for; every rank that runs finishes."""
        story = self.story
        story.answers_wait = False
        story.hears()
        self.obeys()
        answers: dict[Phase, Callable[[], object]] = {
            Phase.SURVEYING: lambda: story.chose(checkpoint(41)),
            Phase.BACKING_OFF: lambda: story.rang(Timer.BACKOFF),
            Phase.PREPARING: story.prepared,
            Phase.REPLACING: self.dies_or_is_examined,
            Phase.RUNNING: lambda: self.loses(min(self.living), Exited(code=0)),
            Phase.DRAINING: lambda: self.loses(min(self.living), Signaled(signum=SIGTERM)),
            Phase.KILLING: lambda: self.loses(min(self.living), Signaled(signum=SIGKILL)),
            Phase.SWEEPING: story.drained,
        }
        for _ in range(40):
            if story.phase is Phase.FINISHED:
                return
            answers[story.phase]()
            self.obeys()
        raise AssertionError(f"stuck while {story.phase.value}: {story.whys[-3:]}")
