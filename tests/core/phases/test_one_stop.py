"""Ranks and supervisor hear of one stop in any order: it is one stop, and no incident."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.actions import FindRecoveryPoint
from faultrun.model.events import Timer
from faultrun.model.exits import Exited
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.run import Phase
from faultrun.model.stop import SAME_STOP_S, STOP_EXIT_CODES, StopSource
from support.stories.story import SIGKILL, Story

SIGNALS = {
    1: StopSource.SIGHUP,
    2: StopSource.SIGINT,
    10: StopSource.SIGUSR1,
    12: StopSource.SIGUSR2,
    15: StopSource.SIGTERM,
}


@given(
    signum=st.sampled_from(sorted(SIGNALS)),
    ends=st.lists(st.sampled_from(["by the signal", "as told", "with 1"]), min_size=3, max_size=3),
    first=st.integers(0, 3),
    late_s=st.floats(0.01, 1.5),
)
def test_whoever_hears_of_it_first_it_is_one_stop(
    signum: int, ends: list[str], first: int, late_s: float
) -> None:
    """``first`` ranks end before the supervisor hears of it."""
    story = Story(3).begins()
    for rank in range(3):
        if rank == first:
            story.told_to_stop(SIGNALS[signum], after_s=late_s)
        _ends(story, rank, ends[rank], signum)
    if first < 3:
        story.drained()
    elif ends[0] == "with 1":
        return  # nothing but the rank's own words could say that a stop may follow
    else:
        story.drained()
        assert story.phase is Phase.SWEEPING
        story.told_to_stop(SIGNALS[signum], after_s=late_s)
    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, STOP_EXIT_CODES[SIGNALS[signum]])
    assert (story.state.life.incident, story.state.incidents) == (None, 0)
    assert story.performed(FindRecoveryPoint)[1:] == []


def _ends(story: Story, rank: int, how: str, signum: int) -> None:
    match how:
        case "by the signal":
            story.killed(rank, signum)
        case "as told":
            story.returned(rank, 128 + signum)
        case _:
            story.returned(rank, 1)


@given(
    signum=st.sampled_from(sorted(SIGNALS)),
    ago_s=st.lists(st.none() | st.floats(0, 60), min_size=3, max_size=3),
    done=st.booleans(),
    on=st.sampled_from([None, True, False]),
)
def test_ranks_that_end_with_0_are_stopped_if_one_did_not_train_on_after_a_signal_or_took_a_window_at_most(
    signum: int, ago_s: list[float | None], done: bool, on: bool | None
) -> None:
    story = Story(3).begins()
    for rank in range(3):
        story.ended(rank, Exited(code=0), done=done, after_s=100)
    ends = {end.rank: end.at_s for end in story.state.life.exits}
    taken = [None if ago is None else (signum, ends[rank] - ago) for rank, ago in enumerate(ago_s)]
    story.drained(*(DeathNote(rank=rank, told=told, trained_on=on) for rank, told in enumerate(taken)))
    window_s = story.state.windows.stop_grace_s if signum in (2, 15) else SAME_STOP_S
    stopped = not done and any(ago is not None and (on is False or ago <= window_s) for ago in ago_s)
    assert story.state.exit_code == (STOP_EXIT_CODES[SIGNALS[signum]] if stopped else 0)
    assert story.state.trained is not stopped


@pytest.mark.parametrize("signum", sorted(SIGNALS))
def test_a_rank_that_somebody_told_alone_is_started_again_when_no_stop_has_followed(signum: int) -> None:
    story = Story(1).begins().killed(0, signum).drained()
    assert story.performed(FindRecoveryPoint)[1:] == [], "a stop may be on its way"
    story.rang(Timer.GRACE, after_s=2)
    assert story.phase is Phase.SURVEYING
    assert story.state.incidents == 1


def test_what_no_stop_can_have_done_stays_an_incident_and_waits_for_none() -> None:
    story = Story(2).begins().killed(0, SIGKILL).returned(1, 143).drained()
    assert story.phase is Phase.SURVEYING
    story = Story(2).begins().killed(0, SIGKILL).told_to_stop(after_s=0.1).returned(1, 143).drained()
    assert story.state.life.incident is not None
