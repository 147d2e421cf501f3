"""Whatever happens to survivors and newcomers: no rank lives twice, and the run comes to its end."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.actions import FreeSurvivors, Kill, Spawn
from faultrun.model.events import FirstStep, Timer
from faultrun.model.exits import Exited, ExitStatus, Signaled
from faultrun.model.hang import Activity
from faultrun.model.run import Phase
from support.story import SIGKILL, SIGTERM, Story, checkpoint
from support.survivors import training


class World:
    """The processes as they are: started by Spawn, gone by their exit. What is ordered must fit them."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.living = {*range(story.state.topology.world_size)}
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


RANKS = st.integers(0, 2)


HAPPENINGS: "dict[str, Callable[[World, int], object]]" = {
    "killed": lambda world, rank: world.loses(rank, Signaled(signum=SIGKILL)),
    "failed": lambda world, rank: world.loses(rank, Exited(code=3)),
    "can rejoin": lambda world, rank: world.story.can_rejoin(rank),
    "rejoined": lambda world, rank: world.story.rejoined(rank),
    "hangs": lambda world, rank: world.hangs(rank),
    "has bad memory": lambda world, rank: world.story.has_bad_memory(rank),
    "cannot": lambda world, rank: world.story.cannot_rejoin(rank),
    "examined": lambda world, _: world.story.examined(),
    "late": lambda world, _: world.story.rang(Timer.REJOIN, after_s=20),
    "told to stop": lambda world, _: world.story.told_to_stop(),
    "finished": lambda world, rank: world.loses(rank, Exited(code=0)),
    "heard": lambda world, _: world.story.hears(),
    "stepped": lambda world, _: world.story.now(FirstStep, step=50),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(HAPPENINGS)), RANKS), max_size=25), st.booleans())
def test_whatever_happens_no_rank_lives_twice_and_the_end_is_reached(
    what: "list[tuple[str, int]]", waits: bool
) -> None:
    world = World(training())
    world.story.answers_wait = waits
    for name, rank in what:
        HAPPENINGS[name](world, rank)
        world.obeys()
    world.ends()
