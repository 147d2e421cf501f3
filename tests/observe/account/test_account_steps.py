"""What is known of the steps of a run, and what of its time nobody may call training."""

from dataclasses import replace

import pytest

from faultrun.core.recovery.resume_verdict import place_of
from faultrun.model.exits import Exited, WorkerExitCodes
from faultrun.model.observed.evidence import DeathNote
from faultrun.model.observed.recovery import FirstStepLogged
from faultrun.observe.account.timeline import Spending
from support.stories.account_stories import account_of, begins, first_step, lines_of, logs_a_step, passes
from support.stories.notice_stories import ends, told
from support.stories.story import POLICY, STAYING, Story, checkpoint


def test_what_nobody_reported_is_unknown_and_never_called_training() -> None:
    story = Story(2).begins().all_run()
    passes(story, 30).killed(0).killed(1)
    story.recovers(checkpoint(5)).all_run()
    passes(story, 20).returned(0).returned(1).drained()
    account = account_of(lines_of(story))
    assert account.spent[Spending.UNREPORTED] == pytest.approx(50)
    assert account.spent[Spending.TRAINING] == 0
    assert (account.productive_share, account.lost_steps) == (None, None)
    assert (account.faults[0].end, account.faults[0].recovery_s) == ("running again", None)
    assert (account.high_step, account.unknown_because) == (None, "the script reports no steps")


def test_a_run_that_never_began_to_work_was_not_productive() -> None:
    story = Story(1, replace(POLICY, max_restarts=0)).begins().all_run()
    passes(story, 5).killed(0).drained().chose(None)
    account = account_of(lines_of(story))
    assert (account.productive_share, account.unknown_because) == (None, "it failed before a step was seen")
    assert account_of([]).productive_share is None


def test_where_others_stayed_and_nobody_reports_it_says_what_is_not_known() -> None:
    story = Story(2, replace(POLICY, exit_codes=WorkerExitCodes.TORCHFT), STAYING)
    story.state = replace(story.state, exit_codes=WorkerExitCodes.TORCHFT)
    logs_a_step(passes(story.begins().all_run(), 5), 1)
    passes(story, 30).ended(1, Exited(code=1)).examined().all_run()
    logs_a_step(passes(story, 5), 40)
    passes(story, 5).returned(0).returned(1).drained()
    why = account_of(lines_of(story)).unknown_because
    assert why == "how far training was when a rank died and the others stayed is not known"


def test_a_life_without_a_step_was_start_where_later_lives_report_theirs() -> None:
    story = Story(2).begins().all_run()
    passes(story, 30).killed(0).killed(1)
    first_step(passes(story.recovers(checkpoint(5)).all_run(), 4), 6)
    account = account_of(lines_of(story))
    assert account.spent[Spending.START] == pytest.approx(34)
    assert account.spent[Spending.UNREPORTED] == 0
    assert account.productive_share is not None


def test_steps_that_only_the_logs_tell_are_counted_as_trained_twice() -> None:
    lines = lines_of(Story(2).begins().all_run().killed(0).killed(1).drained())
    logged = [{"rank": 0, "logged_step": 85}, {"rank": 1, "logged_step": 84}]
    lines = [{**line, "notes": logged} if line["event"] == "Drained" else line for line in lines]
    story = Story(2).begins().all_run().killed(0).killed(1)
    rest = lines_of(story.recovers(checkpoint(80)).all_run().returned(0).returned(1).drained())
    account = account_of([*lines, *rest[len(lines) :]])
    assert [life.reached_step for life in account.lives] == [85, None]
    assert account.lost_steps == 5


@pytest.mark.parametrize(("in_epoch", "twice"), [(None, None), (6, 0)])
def test_a_step_that_may_be_of_its_epoch_only_is_no_count(in_epoch: int | None, twice: int | None) -> None:
    story = logs_a_step(passes(Story(1).begins().all_run(), 10), 1)
    passes(story, 100).killed(0).drained().chose(checkpoint(80)).prepared().all_run()
    story = logs_a_step(passes(story, 10), 6)
    lines = lines_of(passes(story, 50).returned(0).drained())
    epochs = iter((1, 3))
    lines = [
        {**line, "epoch": next(epochs), "in_epoch": in_epoch} if line["event"] == "FirstStepLogged" else line
        for line in lines
    ]
    account = account_of(lines)
    assert [life.repeated_steps for life in account.lives] == [0, twice]
    told = None if twice == 0 else "its logs do not tell which steps were trained twice"
    assert account.unknown_because == told


def test_a_step_of_an_epoch_that_nobody_names_is_no_count() -> None:
    story = logs_a_step(passes(Story(1).begins().all_run(), 10), 1)
    passes(story, 100).killed(0).drained().chose(checkpoint(80)).prepared().all_run()
    story = logs_a_step(passes(story, 10), 31)
    lines = [
        {**line, "step": None, "in_epoch": line["step"]} if line["event"] == "FirstStepLogged" else line
        for line in lines_of(passes(story, 50).returned(0).drained())
    ]
    account = account_of(lines)
    assert (account.lives[1].repeated_steps, account.lost_steps) == (None, None)
    assert place_of(FirstStepLogged(at_s=1, incarnation=1, rank=0, step=None, in_epoch=31)).words == (
        "step 31 of an epoch by its log"
    )


def test_logs_that_tell_the_first_step_and_the_last_tell_what_was_training() -> None:
    story = Story(1).begins().all_run()
    story = logs_a_step(passes(story, 10), 1)
    passes(story, 100).killed(0).drained()
    known = len(story.steps)
    story.chose(checkpoint(80)).prepared().all_run()
    story = logs_a_step(passes(story, 10), 81)
    passes(story, 50).returned(0).drained()
    lines = lines_of(story)
    last = {"Drained": 101, "later": 131}
    noted = [
        {**line, "notes": [{"rank": 0, "logged_step": last["Drained" if at < known else "later"]}]}
        if line["event"] == "Drained"
        else line
        for at, line in enumerate(lines)
    ]
    account = account_of(noted)
    assert account.spent[Spending.UNREPORTED] == 0
    assert account.spent[Spending.START] == pytest.approx(20)
    assert account.spent[Spending.RECOMPUTE] == pytest.approx(50 * 21 / 51, rel=0.05)
    assert (account.lost_steps, account.faults[0].end) == (21, "training again")
    assert account.faults[0].recovery_s is not None
    assert account_of(lines[: len(lines) - 3]).spent[Spending.RECOMPUTE] <= 51


def test_a_first_step_that_is_read_in_the_log_of_a_dead_life_ends_no_recovery() -> None:
    story = Story(1).begins().all_run()
    story = logs_a_step(passes(story, 5), 1)
    passes(story, 20).killed(0).recovers(checkpoint(10)).all_run()
    logs_a_step(passes(story, 1).killed(0), 11)
    assert account_of(lines_of(story)).faults[-1].end == "not over"


def test_a_recovery_that_a_lost_supervisor_left_unfinished_has_no_length() -> None:
    story = begins(Story(1))
    passes(story, 50).reported(r0=51).killed(0).recovers(checkpoint(40)).all_run()
    account = account_of(lines_of(passes(story, 500).starts()))
    assert (account.faults[0].end, account.faults[0].recovery_s) == ("supervisor lost", None)


def test_workers_that_the_platform_asks_to_leave_are_a_stop_and_no_incident() -> None:
    story = passes(begins(Story(2)), 10).reported(r0=11, r1=11).noticed(told(graceful_exit=True))
    account = account_of(lines_of(ends(story).drained()))
    assert (account.stops, account.faults, account.lives[-1].end) == (1, [], "stopped")


def test_steps_that_come_late_end_the_recovery_that_running_workers_seemed_to_end() -> None:
    story = Story(1).begins().all_run()
    passes(story, 30).killed(0).recovers().all_run()
    story = logs_a_step(passes(story, 12), 1)
    (fault,) = account_of(lines_of(story)).faults
    assert fault.end == "training again"
    assert fault.recovery_s == pytest.approx(12)


def test_a_life_that_died_before_its_first_step_repeated_nothing() -> None:
    story = begins(Story(2))
    passes(story, 50).reported(r0=51, r1=51).killed(0).killed(1)
    story.drained().chose(checkpoint(40)).prepared().all_run().killed(1).killed(0)
    story.drained().chose(checkpoint(40))
    account = account_of(lines_of(story))
    assert [fault.lost_steps for fault in account.faults] == [11, 0]
    assert account.lives[-1].repeated_steps == 0


def test_a_script_that_began_anew_although_it_was_handed_a_step_lost_all_of_them() -> None:
    story = begins(Story(1))
    passes(story, 50).reported(r0=51).killed(0)
    first_step(story.recovers(checkpoint(40)).all_run(), 1)
    passes(story, 60).reported(r0=61).returned(0).drained()
    account = account_of(lines_of(story))
    assert (account.faults[0].resumed_step, account.faults[0].lost_steps) == (0, 51)
    assert account.lost_steps == 51


def test_steps_that_a_lost_supervisor_cost_count_as_trained_twice_though_they_are_no_incident() -> None:
    story = begins(Story(1))
    passes(story, 50).reported(r0=51)
    first_step(story.starts().recovers(checkpoint(40)).all_run(), 41)
    passes(story, 60).reported(r0=101)
    account = account_of(lines_of(story))
    assert (account.faults, account.lost_steps) == ([], 11)


def test_nobody_lost_a_supervisor_where_the_end_of_a_log_was_not_read() -> None:
    story = logs_a_step(passes(Story(1).begins().all_run(), 5), 1)
    passes(story, 30).killed(0).drained(DeathNote(rank=0)).chose(checkpoint(5)).prepared().all_run()
    logs_a_step(passes(story, 5), 6)
    why = account_of(lines_of(passes(story, 5).returned(0).drained())).unknown_because
    assert why == "how far training was when it failed is not known"


@pytest.mark.parametrize(("every", "twice"), [(1, 2), (10, None), (0, None)])
def test_steps_between_two_lines_of_a_log_are_not_said_to_be_trained_once(
    every: int, twice: int | None
) -> None:
    story = logs_a_step(passes(Story(1).begins().all_run(), 10), 1)
    lines = lines_of(passes(story, 30).killed(0).drained())
    logged = [{"rank": 0, "logged_step": 36, "logged_every": every}]
    lines = [{**line, "notes": logged} if line["event"] == "Drained" else line for line in lines]
    story = logs_a_step(passes(Story(1).begins().all_run(), 10), 1)
    again = logs_a_step(passes(story, 30).killed(0).recovers(checkpoint(35)).all_run(), 35)
    account = account_of([*lines, *lines_of(passes(again, 30))[len(lines) :]])
    assert account.lost_steps in (twice, 1 if twice else None)
    assert account.productive_share is not None
