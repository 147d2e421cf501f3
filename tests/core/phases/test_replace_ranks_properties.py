"""Whatever happens to survivors and newcomers: no rank lives twice, and the run comes to its end."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.events import FirstStep, Timer
from faultrun.model.exits import Exited, Signaled
from support.stories.story import SIGKILL
from support.stories.survivors import World, training

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
def test_no_rank_lives_twice_and_the_end_is_reached(what: "list[tuple[str, int]]", waits: bool) -> None:
    world = World(training())
    world.story.answers_wait = waits
    for name, rank in what:
        HAPPENINGS[name](world, rank)
        world.obeys()
    world.ends()
