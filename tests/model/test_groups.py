"""Whatever dies whenever it likes, nobody trains in two groups and no step is counted by some alone."""

from dataclasses import replace

import pytest

from faultrun.model.observed.rejoin import RankCanRejoin
from model.groups import WORLD, World, explore, first_moment
from support.stories.story import POLICY, STAYING, Story, checkpoint

pytestmark = pytest.mark.long
ENOUGH = 20_000


def begun(*away: str, kills: int = 1, trains_from: int = 1, finishes: bool = False) -> World:
    windows = replace(STAYING, trains_from=trains_from)
    story = Story(WORLD, replace(POLICY, max_restarts=9), windows).begins(checkpoint(30))
    for rank in range(WORLD):
        story.now(RankCanRejoin, rank=rank, trains_on="")
    return replace(first_moment(story.state, story.rules, frozenset(away)), kills=kills, finishes=finishes)


def test_no_law_breaks_whoever_dies_whenever() -> None:
    bad, way, seen, complete = explore(begun(), ENOUGH)
    assert (bad, complete) == ("", True), "\n".join(way)
    assert seen >= {"trains on", "healed"}


@pytest.mark.parametrize("trains_from", [1, 2])
def test_no_law_breaks_where_two_die(trains_from: int) -> None:
    bad, way, seen, _ = explore(begun(kills=2, trains_from=trains_from), ENOUGH)
    assert not bad, "\n".join(way)
    assert "trains on" in seen


def test_no_rank_begins_anew_whoever_dies_as_others_finish() -> None:
    bad, way, seen, complete = explore(begun(finishes=True), 3 * ENOUGH)
    assert (bad, complete) == ("", True), "\n".join(way)
    assert seen >= {"finished", "healed"}


@pytest.mark.parametrize(
    ("guard", "law"), [("takes back", "another count"), ("common step", "another count"), ("all", "not all")]
)
def test_without_this_guard_a_law_breaks(guard: str, law: str) -> None:
    bad, _, _, _ = explore(begun(guard), ENOUGH)
    assert bad.startswith(law)


@pytest.mark.parametrize(("guard", "reached"), [("frees", set()), ("names missing", set())])
def test_without_this_guard_nobody_trains_on(guard: str, reached: set[str]) -> None:
    bad, _, seen, complete = explore(begun(guard), ENOUGH)
    assert (bad, seen, complete) == ("", reached, True)
