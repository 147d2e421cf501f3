"""The matrix of ``docs/survivors-stay.md``: a second fault in each phase of a replacement."""

from collections.abc import Callable

import pytest

from faultrun.core.phases.may_stay import MOST_REGROUPS
from faultrun.model.actions import Spawn, StartTimer
from faultrun.model.events import FirstStep, Timer
from faultrun.model.observed.hang import Activity
from faultrun.model.run import Phase
from faultrun.observe.card.card import render
from support.places import DOCS
from support.stories.story import POLICY, Story
from support.stories.survivors import World, training

PAGE = DOCS / "survivors-stay.md"
PHASES = ("told", "left", "comes", "state", "group", "first step")
WITHIN_S = 15.0
"""``--rejoin_timeout`` of these stories."""


def reached(phase: str, earlier: int = 0) -> Story:
    """Rank 1 of three was killed, and so far has the replacement come; ``earlier`` newcomers have fallen."""
    at = PHASES.index(phase)
    story = training(policy=POLICY).killed(1)
    for _ in range(earlier):
        story.examined().killed(1)
    story.answers_wait = phase == "left"
    if at >= PHASES.index("left"):
        story.examined()
    if at >= PHASES.index("state"):
        story.rejoined(0)
    if at >= PHASES.index("group"):
        story.rejoined(2, 1).can_rejoin(0, 1, 2)
    if at >= PHASES.index("first step"):
        story.now(FirstStep, step=42).reported(r0=42, r1=42, r2=42)
    story.actions.clear()
    return story


def no_way_back(story: Story) -> Story:
    """It stands still: seen as a hang where all are one group, else as one that does not come."""
    if story.phase is Phase.RUNNING and not story.state.life.rejoining:
        return story.hangs(2, stance=Activity.SLEEPING).killed(2)
    return story.rang(Timer.REJOIN, after_s=WITHIN_S)


FAULTS: dict[str, Callable[[Story], object]] = {
    "a survivor dies": lambda story: story.killed(2),
    "the newcomer dies, or its standby": lambda story: story.killed(1),
    "the newcomer dies, the third time in a row": lambda story: story.killed(1),
    "the newcomer ends by itself, with an exception, say": lambda story: story.returned(1, 1),
    "a survivor cannot leave its group, or has no memory": lambda story: story.cannot_rejoin(2),
    "the newcomer's state fails its checksum": lambda story: story.cannot_rejoin(
        1, "its checksum is another"
    ),
    "somebody does not come back in `--rejoin_timeout`": lambda story: story.rang(
        Timer.REJOIN, after_s=WITHIN_S
    ),
    "a survivor hangs": no_way_back,
    "a survivor has finished": lambda story: story.returned(2),
    "the run is told to stop": lambda story: story.told_to_stop(),
    "the supervisor dies": lambda story: story.starts(),
}


def table() -> dict[tuple[str, str], str]:
    """Second fault and phase to what follows, as the page says."""
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    words = [[cell.strip() for cell in row] for row in rows]
    first = words.index(["second fault", *PHASES])
    found: dict[tuple[str, str], str] = {}
    for name, *cells in words[first + 2 : first + 2 + len(FAULTS)]:
        found |= {(name, phase): cell for phase, cell in zip(PHASES, cells, strict=True)}
    return found


def test_the_page_names_every_fault_and_no_other() -> None:
    assert list(dict.fromkeys(name for name, _ in table())) == list(FAULTS)


@pytest.mark.parametrize(("fault", "phase", "follows"), [(*cell, way) for cell, way in table().items()])
def test_a_second_fault_in_a_replacement_ends_as_the_page_says(fault: str, phase: str, follows: str) -> None:
    if follows == "-":
        return  # nobody is there yet whom it could befall, or the wait is over
    story = reached(phase, MOST_REGROUPS - 1 if "third" in fault else 0)
    before, living = story.state.life.drain, story.state.life.alive
    FAULTS[fault](story)
    story.hears()
    assert _way(story) == follows, story.whys[-3:]
    assert _is_bounded(story)
    if follows == "all again" and before is not None and story.phase is Phase.DRAINING:
        assert "  stayed    nobody: it was tried; " in render(story.card)
    if follows == "all again" and before is None and fault != "the supervisor dies":
        text = render(story.card)
        assert "  stayed    nobody: " in text or "rejoin" in text
    assert living - {1, 2} <= story.state.life.alive or fault == "the supervisor dies"
    World(story).ends()


def _way(story: Story) -> str:
    """What was decided, once what the dead said has been read."""
    if story.state.stop is not None:
        return "stop"
    if story.phase is Phase.REPLACING:
        story.examined().hears()
    if story.phase in (Phase.DRAINING, Phase.SURVEYING):
        return "all again"
    started = [spawn.ranks for spawn in story.performed(Spawn)]
    if not started:
        return "noted"
    return "both replaced" if started[-1] == (1, 2) else "replaced"


def _is_bounded(story: Story) -> bool:
    """Whoever waits for others has a timer that is not further away than it may be."""
    waits = story.phase in (Phase.REPLACING, Phase.DRAINING) or bool(story.state.life.rejoining)
    timers = [action for _, step in story.steps for action in step.actions if isinstance(action, StartTimer)]
    newest = {timer.timer: timer for timer in timers}
    wanted = Timer.GRACE if story.phase is Phase.DRAINING else Timer.REJOIN
    limit_s = 30.0 if wanted is Timer.GRACE else WITHIN_S
    return not waits or (wanted in newest and newest[wanted].at_s <= story.now_s + limit_s)
