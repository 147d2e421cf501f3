"""The platform's protocol as stories: what a notice makes a run do, in whatever phase it comes."""

from dataclasses import replace

import pytest

from faultrun.core.phases.platform_notices import HOLD_S, RETRY_PAUSE_S, hold
from faultrun.core.plan.next_plan import Rules
from faultrun.model.actions import FindRecoveryPoint, Kill, Prepare, RequestGasp, Spawn, StartTimer
from faultrun.model.events import FaultNotice, Timer
from faultrun.model.exits import Exited
from faultrun.model.incident import Cause
from faultrun.model.observed.platform_notice import (
    FaultRanks,
    ResetNotice,
    RestartKind,
    TableVersion,
    UnreadableNotice,
)
from faultrun.model.run import Phase
from faultrun.model.spec.windows import Deadline
from faultrun.model.stop import Stop, StopSource
from faultrun.observe.card.card import render
from support.stories.notice_stories import ends, faulty, phase, told
from support.stories.story import POLICY, SIGKILL, Story, checkpoint, rule


def test_a_rank_that_is_reset_means_save_stop_wait_until_it_is_recovered_and_go_on() -> None:
    story = Story(3).begins().reported(r0=7, r1=7, r2=6)
    story.noticed(told({1: "unrecovered"}), after_s=5)
    assert story.performed(RequestGasp) == [
        RequestGasp(ranks=frozenset({0, 1, 2}), deadline=Deadline(at_s=35), peers_lost=True)
    ]
    assert phase(story) is Phase.DRAINING
    ends(story).drained()
    assert story.performed(FindRecoveryPoint) == [
        FindRecoveryPoint(incarnation=0, continuing=True, lost=(1,), world_size=3, reached=7)
    ]

    story.chose(checkpoint(7))
    assert phase(story) is Phase.HOLDING
    assert story.performed(StartTimer) == [StartTimer(timer=Timer.HOLD, at_s=5 + HOLD_S, incarnation=1)]
    assert story.whys[-1] == "workers wait for the platform: rank 1 is not recovered yet"

    story.noticed(told({1: "recovered"}), after_s=60)
    assert phase(story) is Phase.PREPARING
    story.prepared()
    (spawn,) = story.performed(Spawn)
    assert (spawn.plan.incarnation, spawn.plan.point) == (1, checkpoint(7))
    assert story.state.run.platform.lost == frozenset()


def test_all_must_be_recovered_and_a_cleared_list_means_that_they_are() -> None:
    story = faulty({0: "unrecovered", 1: "unrecovered"})
    story.noticed(told({0: "recovered", 1: "unrecovered"}))
    assert phase(story) is Phase.HOLDING
    story.noticed(told({}))
    assert phase(story) is Phase.PREPARING


def test_recovered_before_the_workers_are_gone_is_no_wait_at_all() -> None:
    story = Story(2).begins().noticed(told({1: "unrecovered"})).noticed(told({1: "recovered"}))
    assert phase(story) is Phase.DRAINING
    ends(story).drained().chose(None)
    assert phase(story) is Phase.PREPARING


def test_the_platforms_restarts_are_not_charged_and_not_held_against_the_checkpoint() -> None:
    story = Story(2, rule(max_restarts=1)).begins(checkpoint(7))
    for _ in range(4):
        story.noticed(told({1: "unrecovered"}))
        ends(story).drained().chose(checkpoint(7)).noticed(told({})).prepared()
        assert phase(story) is Phase.RUNNING
    ledger = story.plan.ledger
    assert (ledger.restarts, ledger.total_restarts, ledger.incidents, ledger.attempts) == ((), 4, 4, ())
    assert all(not request.quarantine for request in story.performed(FindRecoveryPoint))


def test_the_incident_names_the_rank_and_the_platforms_reason() -> None:
    story = Story(3).begins().reported(r0=7, r1=7, r2=6).noticed(told({1: "unrecovered"}))
    ends(story).drained()
    incident = story.incident
    assert (incident.cause, incident.rank, incident.step, incident.followers) == (
        Cause.PLATFORM,
        1,
        7,
        (0, 2),
    )
    card = replace(story.card, point=checkpoint(7))
    assert render(card).splitlines() == [
        "incident 1  rank 1 of 3 stopped for the platform at step 7 (epoch 2)   "
        "ranks 0 2 stopped because of it",
        "  cause     rank 1 is unrecovered, says the platform (policy reset, error 20ff02)",
        "  resume    ckpt/net-7.ckpt   step 7, lost 0 steps",
        "  restart   restarting now; not counted",
    ]


def test_gasps_of_workers_that_were_stopped_for_the_platform_are_trusted() -> None:
    """Nobody had died, so no collective was torn: as after a SIGTERM to all."""
    story = Story(2).begins().noticed(told({1: "unrecovered"}))
    ends(story).drained()
    assert [request.fault_at_s for request in story.performed(FindRecoveryPoint)] == [None]


def test_a_rank_that_dies_before_the_notice_is_two_incidents() -> None:
    story = Story(2).begins().killed(1).noticed(told({1: "unrecovered"}))
    assert phase(story) is Phase.DRAINING
    ends(story).drained()
    (request,) = story.performed(FindRecoveryPoint)
    assert (request.fault_at_s, request.lost) == (0.0, (1,))
    story.chose(None)
    assert phase(story) is Phase.HOLDING
    assert len(story.plan.ledger.restarts) == 1


@pytest.mark.parametrize("status", ["fault", "failed"])
def test_a_rank_that_is_given_up_means_save_and_leave_with_a_code_that_restarts_the_pod(status: str) -> None:
    story = Story(3).begins().noticed(told({1: status}))
    assert story.performed(RequestGasp) == [
        RequestGasp(ranks=frozenset({0, 1, 2}), deadline=Deadline(at_s=20), stop=StopSource.PLATFORM)
    ]
    ends(story).drained()
    assert story.performed(FindRecoveryPoint) == []
    assert (phase(story), story.state.exit_code) == (Phase.FINISHED, 143)
    assert story.state.stop == Stop(source=StopSource.PLATFORM)


def test_a_reset_that_failed_ends_the_wait() -> None:
    story = faulty().noticed(told({1: "failed"}))
    assert (phase(story), story.state.exit_code) == (Phase.FINISHED, 143)
    assert "leaving for another place" in " ".join(story.whys)


def test_a_run_that_left_for_the_platform_is_continued_by_whoever_starts_it_again() -> None:
    story = faulty().noticed(told({1: "failed"}))
    story.starts(notices=(told({}),))
    assert phase(story) is Phase.SURVEYING
    assert story.performed(FindRecoveryPoint)[-1].continuing


def test_a_run_that_was_placed_anew_is_not_held_by_what_the_machine_before_was_told() -> None:
    story = Story(2).begins().noticed(told({1: "fault"}))
    ends(story).drained()
    story.starts().chose().prepared()
    assert story.phase is Phase.RUNNING

    story = Story(2).begins().noticed(told({1: "unrecovered"}))
    story.starts(notices=(told({1: "unrecovered"}),)).chose()
    assert story.phase is Phase.HOLDING, "a supervisor that was lost meanwhile reads the same words again"


def test_a_platforms_word_to_leave_is_never_an_exit_code_that_ends_the_job() -> None:
    story = faulty()
    rules = Rules(topology=story.state.topology, policy=POLICY, exit_code_on_stop=0)
    story.rules = rules
    story.noticed(told({1: "failed"}))
    assert story.state.exit_code == 143


def test_a_restart_in_place_is_one_if_the_platform_and_the_user_want_it() -> None:
    story = Story(2).begins().noticed(told({1: "fault"}, restart_in_place=True, update_time=1))
    assert story.state.stop is None
    ends(story).drained().chose(None)
    assert phase(story) is Phase.PREPARING
    story.prepared()
    assert phase(story) is Phase.RUNNING
    story.noticed(told({1: "fault"}, restart_in_place=True, update_time=1))
    assert phase(story) is Phase.RUNNING, "the same word is obeyed once"
    story.noticed(told({1: "fault"}, restart_in_place=True, update_time=2))
    assert phase(story) is Phase.DRAINING


def test_everybody_is_asked_to_leave_once() -> None:
    story = Story(2).begins().noticed(told(graceful_exit=True))
    asked = RequestGasp(ranks=frozenset({0, 1}), deadline=Deadline(at_s=20), stop=StopSource.PLATFORM)
    assert story.performed(RequestGasp) == [asked]
    story.noticed(told({1: "recovered"}, graceful_exit=True))
    assert story.performed(Kill) == []
    ends(story).drained()
    assert story.state.exit_code == 143
    assert story.state.life.incident is None


def test_nor_does_one_that_is_read_late_and_it_is_what_news_are_compared_with() -> None:
    story = Story(2).begins()
    story.now(FaultNotice, notice=told({0: "unrecovered"}, graceful_exit=True), known=True)
    assert phase(story) is Phase.RUNNING
    assert story.state.run.platform.lost == {0}
    story.noticed(told({0: "recovered"}, graceful_exit=True))
    assert phase(story) is Phase.RUNNING
    story.noticed(told()).noticed(told(graceful_exit=True))
    assert phase(story) is Phase.DRAINING


def test_an_old_word_to_leave_does_not_stop_who_comes_after() -> None:
    story = Story(2).starts(notices=(told(graceful_exit=True),)).chose(None).prepared()
    assert phase(story) is Phase.RUNNING
    story.noticed(told({0: "recovered"}, graceful_exit=True))
    assert phase(story) is Phase.RUNNING
    story.noticed(told()).noticed(told(graceful_exit=True))
    assert phase(story) is Phase.DRAINING


def test_ranks_of_another_world_are_not_ours() -> None:
    story = Story(2).begins().noticed(told({2: "unrecovered", 9: "fault"}))
    assert (phase(story), story.state.run.platform.lost) == (Phase.RUNNING, frozenset())


def test_what_cannot_be_read_changes_nothing() -> None:
    story = Story(2).begins()
    before = story.state
    story.noticed(UnreadableNotice(file="reset.json", why="it is not JSON"))
    assert (story.state, story.actions) == (before, [])
    assert story.whys[-1] == "reset.json: it is not JSON; it changes nothing"


def test_faulty_ranks_of_an_earlier_incarnation_are_remembered_for_one_recovery() -> None:
    faulty_ranks = FaultRanks(ranks=frozenset({0, 9}), created_at=1)
    story = Story(2).starts(notices=(faulty_ranks,))
    assert story.performed(FindRecoveryPoint) == [
        FindRecoveryPoint(incarnation=-1, continuing=False, lost=(0,), world_size=2)
    ]
    story.chose(None).prepared().killed(1)
    ends(story).drained()
    assert story.performed(FindRecoveryPoint)[-1].lost == ()
    story.recovers()
    story.noticed(faulty_ranks)
    assert story.state.run.platform.lost == frozenset()
    story.noticed(FaultRanks(ranks=frozenset({1}), created_at=2))
    assert (phase(story), story.state.run.platform.lost) == (Phase.RUNNING, frozenset({1}))


def test_training_that_ends_well_meanwhile_is_not_forgotten() -> None:
    """OnRequestExit leaves with 0 when it is asked to save: that is not the end of training."""
    story = Story(2).begins().noticed(told({1: "unrecovered"}))
    story.ended(0, Exited(code=0)).ended(1, Exited(code=0)).drained()
    assert phase(story) is Phase.SURVEYING


def test_workers_that_ignore_the_request_are_killed_at_the_deadline() -> None:
    story = Story(2).begins().noticed(told({1: "unrecovered"})).rang(Timer.GRACE, after_s=30)
    assert story.performed(Kill) == [Kill(ranks=frozenset({0, 1}))]
    story.killed(0, SIGKILL).killed(1, SIGKILL).drained().chose(None)
    assert phase(story) is Phase.HOLDING


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
