"""What the platform has against a start, and how long it is waited for."""

import pytest

from faultrun.core.phases.platform_notices import HOLD_S, RETRY_PAUSE_S, hold
from faultrun.model.actions import Prepare, Spawn, StartTimer
from faultrun.model.events import Timer
from faultrun.model.observed.platform_notice import ResetNotice, RestartKind, TableVersion
from faultrun.model.run import Phase
from support.stories.notice_stories import ends, faulty, phase, told
from support.stories.story import Story


def test_a_request_to_restart_everything_is_obeyed_after_a_minute() -> None:
    story = Story(2).begins().noticed(told(retry_time=1), after_s=5)
    assert (story.incident.rank, story.incident.explanation) == (
        None, "the platform asks to restart all workers (RetryTime 1)",
    )  # fmt: skip
    story.now_s += 3
    ends(story).drained()
    story.performed(StartTimer)
    story.chose(None)
    assert phase(story) is Phase.BACKING_OFF
    assert story.performed(StartTimer) == [
        StartTimer(timer=Timer.BACKOFF, at_s=5 + RETRY_PAUSE_S, incarnation=1)
    ]
    story.now_s = 5 + RETRY_PAUSE_S
    story.rang(Timer.BACKOFF).prepared()
    assert phase(story) is Phase.RUNNING
    story.noticed(told(retry_time=1))
    assert phase(story) is Phase.RUNNING


def test_requests_that_were_made_before_this_supervisor_are_old() -> None:
    story = Story(2).starts(notices=(told(retry_time=4),)).chose(None).prepared()
    story.noticed(told({0: "recovered"}, retry_time=4))
    assert phase(story) is Phase.RUNNING
    story.noticed(told(retry_time=5))
    assert phase(story) is Phase.DRAINING


@pytest.mark.parametrize(
    ("notice", "why"),
    [
        (told(flushing=True), "faults are still being collected (FaultFlushing)"),
        (told({0: "unrecovered", 2: "unrecovered"}), "ranks 0 2 are not recovered yet"),
        (told({1: "fault"}), "rank 1 is marked as faulty"),
        (told({1: "failed"}, restart_in_place=True), "rank 1 is marked as faulty"),
    ],
)
def test_no_worker_is_started_while_the_platform_is_against_it(notice: ResetNotice, why: str) -> None:
    story = Story(3).starts(notices=(notice,)).chose(None)
    assert (phase(story), hold(story.state)) == (Phase.HOLDING, why)
    assert story.performed(Prepare) == []
    story.noticed(told({})).prepared()
    assert phase(story) is Phase.RUNNING


def test_a_word_that_comes_while_the_start_is_prepared_still_counts() -> None:
    story = Story(2).starts().chose(None)
    assert phase(story) is Phase.PREPARING
    story.noticed(told(flushing=True))
    assert phase(story) is Phase.PREPARING
    story.prepared()
    assert (phase(story), story.performed(Spawn)) == (Phase.HOLDING, [])
    story.noticed(told())
    assert len(story.performed(Prepare)) == 1
    story.prepared()
    assert phase(story) is Phase.RUNNING


def test_a_wait_that_takes_too_long_is_given_up_for_another_place() -> None:
    story = faulty().rang(Timer.HOLD, after_s=HOLD_S)
    assert (phase(story), story.state.exit_code) == (Phase.FINISHED, 143)
    assert story.performed(Spawn) == []


def test_a_stop_ends_the_wait() -> None:
    story = faulty().told_to_stop()
    assert (phase(story), story.state.exit_code) == (Phase.FINISHED, 143)


def test_after_a_pod_was_placed_anew_the_rank_table_must_be_a_new_one() -> None:
    story = Story(2).starts(notices=(TableVersion(version=3),)).chose(None).prepared()
    story.noticed(told({1: "unrecovered"}, kind=RestartKind.POD_RESCHEDULE))
    ends(story).drained().chose(None)
    story.noticed(told({1: "recovered"}, kind=RestartKind.POD_RESCHEDULE))
    assert (phase(story), hold(story.state)) == (Phase.HOLDING, "the rank table is still at version 3")
    story.noticed(TableVersion(version=4))
    assert phase(story) is Phase.PREPARING


def test_a_hot_reset_or_a_table_without_a_version_needs_no_new_table() -> None:
    for kind, version in (
        (RestartKind.HOT_RESET, (TableVersion(version=3),)),
        (RestartKind.POD_RESCHEDULE, ()),
    ):
        story = Story(2).starts(notices=version).chose(None).prepared()
        story.noticed(told({1: "unrecovered"}, kind=kind))
        ends(story).drained().chose(None).noticed(told({1: "recovered"}, kind=kind))
        assert phase(story) is Phase.PREPARING
