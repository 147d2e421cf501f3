"""What the same faults would have cost elsewhere: measured here, assumed there, nothing that is not known."""

from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.journal.lines import journal_lines
from faultrun.model.checkpoint import RecoveryPoint
from faultrun.model.events import Timer, WorkerStarted
from faultrun.model.incident import Cause
from faultrun.model.run import Phase
from faultrun.model.spec.assumptions import Assumptions, UsualLauncher
from faultrun.observe.account.fault_chains import GIVEN_UP, GROWN, NOT_PASSED, ORDERED, STILL_OPEN, UNSEEN
from faultrun.observe.account.savings import Savings, savings
from faultrun.observe.account.savings_words import savings_document, what_it_saved
from support.places import DATA
from support.stories.account_stories import (
    account_of,
    accounted,
    begins,
    first_step,
    lines_of,
    logs_a_step,
    one_fault,
    passes,
)
from support.stories.savings_stories import NO_WAIT, TORCH, gasp
from support.stories.story import NODE, Story, checkpoint, rule

KEPT = sorted((DATA / "journals").glob("*.jsonl"))


def saved(story: Story, assumptions: Assumptions = TORCH) -> Savings:
    return savings(account_of(lines_of(story)), assumptions)


def dies_at(story: Story, step: int) -> Story:
    """The one rank trains a second a step and is killed."""
    return passes(story, step - 1).reported(r0=step).killed(0)


def goes_on(story: Story, point: RecoveryPoint | None, *, periodic_step: int | None = None) -> Story:
    """1 s to stop, 1 s to choose, 1 s to prepare, 1 s to spawn, 4 s to the first step."""
    passes(story, 1).drained()
    passes(story, 1).chose(point, periodic_step=periodic_step)
    if story.phase is Phase.BACKING_OFF:
        story.now_s = story.plan.start_at_s
        story.rang(Timer.BACKOFF)
    passes(story, 1).prepared()
    passes(story, 1).all_run()
    return first_step(passes(story, 4), (point.global_step or 0 if point else 0) + 1)


def ends_at(story: Story, step: int) -> Story:
    return passes(story, 49).reported(r0=step).returned(0).drained()


def test_a_fault_is_laid_beside_a_restart_by_hand_and_by_torchrun() -> None:
    (one,) = saved(one_fault(resume_at=61)).interruptions
    assert (one.faults, one.devices, one.hang, one.steps_again) == ((1,), 3, False, 40)
    assert one.here.waiting_s == pytest.approx(15)
    assert one.here.again_s == pytest.approx(39)  # the first step is a part of the start
    # 4 s is the cold start of this very job; the last save is the same for everybody.
    assert one.by_hand.waiting_s == pytest.approx(900 + 600 + 4)
    assert one.by_hand.again_s == pytest.approx(one.here.again_s)
    assert one.launcher is not None
    assert one.launcher.waiting_s == pytest.approx(0.35 + 4)


def test_a_dying_gasp_saves_the_steps_since_the_last_save_of_the_script() -> None:
    story = goes_on(dies_at(begins(Story(1)), 95), gasp(95), periodic_step=60)
    known = saved(ends_at(story, 145))
    (one,) = known.interruptions
    assert one.steps_again == 35
    assert one.here.again_s == 0
    assert one.by_hand.again_s == pytest.approx(35)
    assert known.device_s_by_hand == pytest.approx(900 + 600 + 4 + 35 - 8)


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_a_step_trained_again_takes_as_long_elsewhere_however_few_were_lost_here(lost: int) -> None:
    story = goes_on(dies_at(begins(Story(1)), 95), gasp(95 - lost), periodic_step=60)
    (one,) = saved(ends_at(story, 145 - lost)).interruptions
    # A second each; the first is in the start, here and there.
    assert one.here.again_s == pytest.approx(lost - 1)
    assert one.by_hand.again_s == pytest.approx(35 - 1)


def test_where_the_script_had_saved_nothing_all_steps_would_be_trained_again() -> None:
    story = goes_on(dies_at(begins(Story(1)), 95), gasp(95), periodic_step=-1)
    assert saved(ends_at(story, 145)).interruptions[0].steps_again == 95


def test_saves_that_the_journal_does_not_tell_are_left_out_on_both_sides() -> None:
    for point in (gasp(95), None):
        (one,) = saved(ends_at(goes_on(dies_at(begins(Story(1)), 95), point), 145)).interruptions
        assert one.steps_again is None
        assert (one.here.again_s, one.by_hand.again_s) == (0, 0)
        said = what_it_saved(saved(ends_at(goes_on(dies_at(begins(Story(1)), 95), point), 145)))
        assert "; what is trained again is left out" in said
        assert said.endswith(": the journal does not tell the last save, or how long a step takes")


def test_what_was_trained_again_here_is_said_also_where_nobody_can_compare_it() -> None:
    story = goes_on(dies_at(begins(Story(1)), 95), None)
    known = saved(ends_at(passes(story, 95), 145))
    (one,) = known.interruptions
    assert (one.here.again_s, one.by_hand.again_s) == (0, 0)
    assert known.unpaired_s == pytest.approx(94)
    assert "what is trained again is left out, 1 min 34 s here: the journal does not tell" in what_it_saved(
        known
    )
    assert savings_document(known)["unpaired_s"] == pytest.approx(94)


def test_a_hang_is_noticed_by_the_time_out_of_its_collective() -> None:
    story = passes(begins(Story(1)), 50).reported(r0=51)
    passes(story, 5).hangs(0, step=51)
    story = goes_on(story.killed(0), checkpoint(40))
    (one,) = saved(ends_at(story, 145)).interruptions
    assert one.hang
    assert one.launcher is not None
    assert one.launcher.waiting_s == pytest.approx(600 + 0.35 + 4)


def test_several_faults_before_training_is_past_the_first_are_one_restart_by_hand() -> None:
    story = dies_at(begins(Story(1, policy=NO_WAIT)), 95)
    passes(story, 1).drained().chose(checkpoint(90)).prepared().all_run()
    passes(story, 7).killed(0)  # before its first step
    story = goes_on(story, checkpoint(90))
    story = passes(story, 2).reported(r0=93).killed(0)  # before it was past step 95
    (one,) = saved(ends_at(goes_on(story, checkpoint(90)), 140)).interruptions
    assert one.faults == (1, 2, 3)
    assert one.by_hand.waiting_s == pytest.approx(900 + 600 + 4)
    assert one.here.waiting_s == pytest.approx((1 + 7) + 8 + 8)
    assert one.steps_again == 5
    assert one.launcher is not None
    assert one.launcher.waiting_s == pytest.approx(3 * 0.35 + 7 + 4 + 4), "it restarts each time"
    # Steps 92 to 95, and before them 92 and 93: the first of each life is in its start.
    assert one.by_hand.again_s == pytest.approx(4)
    assert one.launcher.again_s == pytest.approx(6)


def test_a_run_that_gives_up_at_the_same_place_again_and_again_has_saved_nothing() -> None:
    story, faults = dies_at(begins(Story(1, policy=rule(max_restarts=2))), 50), 1
    while passes(story, 1).drained().chose(checkpoint(40)).phase is not Phase.FINISHED:
        story.now_s = max(story.now_s, story.plan.start_at_s)
        story.rang(Timer.BACKOFF).prepared().all_run()
        first_step(passes(story, 4), 41)
        passes(story, 9).reported(r0=50).killed(0)
        faults += 1
    known = saved(story)
    assert faults > 1
    assert known.interruptions == ()
    assert known.left_out == {NOT_PASSED: faults}
    assert what_it_saved(known) == f"saved nothing: {faults} faults that training did not get past"


def test_a_fault_that_training_is_not_past_yet_is_not_counted_until_it_is() -> None:
    story = goes_on(dies_at(begins(Story(1)), 95), checkpoint(60))
    assert saved(story).left_out == {STILL_OPEN: 1}
    assert what_it_saved(saved(story)) == "saved nothing so far: 1 fault that training has not got past yet"
    passes(story, 34).reported(r0=95)
    assert saved(story).left_out == {STILL_OPEN: 1}
    passes(story, 1).reported(r0=96)
    assert saved(story).counted == 1


def test_a_fault_at_the_last_step_is_past_when_every_rank_has_finished() -> None:
    story = goes_on(dies_at(begins(Story(1)), 95), gasp(95), periodic_step=90)
    assert saved(ends_at(story, 95)).counted == 1


def test_a_life_that_had_nothing_left_to_train_is_past_the_fault() -> None:
    story = dies_at(begins(Story(1)), 95)
    passes(story, 2).recovers(checkpoint(95)).all_run()
    known = saved(passes(story, 3).returned(0).drained())
    assert "1 fault left it without workers for 2 s here" in what_it_saved(known), "the life itself had some"


def test_a_fault_whose_recovery_was_stopped_is_not_counted_when_the_run_goes_on() -> None:
    story = dies_at(begins(Story(1)), 95)
    passes(story, 2).drained().told_to_stop().chose(checkpoint(90))
    assert story.phase is Phase.FINISHED
    assert saved(story).left_out == {NOT_PASSED: 1}
    passes(story, 500).starts().chose(checkpoint(90)).prepared().all_run()
    assert saved(story).left_out == {STILL_OPEN: 1}
    first_step(passes(story, 4), 91)
    (fault,) = account_of(lines_of(ends_at(story, 140))).faults
    assert (fault.end, fault.lost_steps) == ("training again", 5)
    assert fault.recovery_s == pytest.approx(2 + 4)
    assert what_it_saved(saved(story)) == "saved nothing: 1 fault that a stop left unfinished"


def test_a_fault_for_which_the_run_was_given_up_is_not_one_that_training_never_got_past() -> None:
    story = dies_at(begins(Story(1, policy=rule(max_restarts=0))), 95).drained().chose(checkpoint(90))
    assert saved(story).left_out == {NOT_PASSED: 1}
    passes(story, 500).starts().chose(checkpoint(90)).prepared().all_run()
    first_step(passes(story, 4), 91)
    assert saved(story).left_out == {STILL_OPEN: 1}
    assert saved(ends_at(story, 140)).left_out == {GIVEN_UP: 1}


def test_a_stop_is_no_fault_and_what_it_interrupts_is_not_counted() -> None:
    story = passes(begins(Story(1)), 50).reported(r0=51).told_to_stop()
    passes(story, 1).returned(0, 143).drained().chose(checkpoint(51))
    known = saved(story)
    assert (known.counted, dict(known.left_out)) == (0, {})
    assert what_it_saved(known) == ""


def test_a_recovery_in_whose_middle_the_supervisor_was_lost_is_not_counted() -> None:
    story = dies_at(begins(Story(1)), 51).recovers(checkpoint(40)).all_run()
    passes(story, 500).starts().drained().chose(checkpoint(40)).prepared().all_run()
    first_step(passes(story, 4), 41)
    assert saved(ends_at(story, 91)).left_out == {UNSEEN: 1}


def test_without_steps_only_the_wait_for_running_workers_is_compared() -> None:
    story = Story(2).begins().all_run()
    passes(story, 30).killed(0).killed(1)
    passes(story, 3).recovers(checkpoint(5)).all_run()
    known = saved(passes(story, 20).returned(0).returned(1).drained())
    (one,) = known.interruptions
    assert one.here.total_s == pytest.approx(3)
    assert one.by_hand.total_s == pytest.approx(1500)
    assert (
        "1 fault left it without workers for 3 s here, for 350 ms with torchrun, for 25 min by hand"
        in what_it_saved(known)
    )


def test_without_steps_a_life_is_past_a_fault_if_more_was_saved_in_it() -> None:
    def of(*points: int) -> Savings:
        story = Story(1, policy=NO_WAIT).begins().all_run()
        for step in points:
            passes(story, 30).killed(0).recovers(checkpoint(step)).all_run()
        return saved(passes(story, 20).returned(0).drained())

    assert [one.faults for one in of(5, 5, 5).interruptions] == [(1, 2, 3)]
    assert [one.faults for one in of(5, 7, 7).interruptions] == [(1,), (2, 3)]


def test_steps_that_only_logs_tell_count_like_reported_ones() -> None:
    story = logs_a_step(passes(Story(1).begins().all_run(), 4), 1)
    passes(story, 94).killed(0)
    lines = lines_of(passes(story, 1).drained().chose(checkpoint(60)).prepared().all_run())
    noted = [
        {**line, "notes": [{"rank": 0, "logged_step": 95}]} if line["event"] == "Drained" else line
        for line in lines
    ]
    story = logs_a_step(passes(story, 4), 61)
    rest = lines_of(passes(story, 50).returned(0).drained())[len(lines) :]
    rest = [
        {**line, "notes": [{"rank": 0, "logged_step": 111}]} if line["event"] == "Drained" else line
        for line in rest
    ]
    (one,) = savings(account_of([*noted, *rest]), TORCH).interruptions
    assert one.here.waiting_s > 0


def test_what_the_platform_ordered_is_no_fault_of_anybody() -> None:
    account = account_of(lines_of(one_fault(resume_at=61)))
    account.faults[0].ordered = True
    assert savings(account, TORCH).left_out == {ORDERED: 1}
    account.faults[0].cause = Cause.GROWTH.value
    known = savings(account, TORCH)
    assert known.left_out == {GROWN: 1}
    assert what_it_saved(known) == "saved nothing: 1 incident that only took back workers or nodes"


def test_what_was_ordered_before_training_was_past_a_fault_costs_time_here_and_is_none_elsewhere() -> None:
    story = dies_at(begins(Story(1, policy=NO_WAIT)), 95)
    passes(story, 1).drained().chose(checkpoint(90)).prepared().all_run()
    passes(story, 7).killed(0)  # before its first step
    account = account_of(lines_of(ends_at(goes_on(story, checkpoint(90)), 140)))
    account.faults[1].ordered = True
    told = savings(account, TORCH)
    (one,) = told.interruptions
    assert (one.faults, told.counted, told.left_out) == ((1,), 1, {})
    assert one.here.waiting_s == pytest.approx((1 + 7) + 8)
    assert one.by_hand.waiting_s == pytest.approx(900 + 600 + 4)
    assert one.launcher is not None
    assert one.launcher.waiting_s == pytest.approx(0.35 + 4)


def test_a_faster_launcher_shows_what_was_lost() -> None:
    eager = Assumptions(notice_s=0, restart_s=0, relaunch_s=0).settled("torch")
    known = saved(one_fault(resume_at=61), eager)
    assert known.device_s_by_hand == pytest.approx(3 * (4 - 15))
    text = what_it_saved(known)
    assert ": saved nothing against torchrun, which costs " in text
    assert text.endswith(" less, nothing against a restart by hand, which costs 11 s less")


def test_where_no_launcher_restarts_only_hands_are_compared_with() -> None:
    known = saved(one_fault(resume_at=61), Assumptions().settled("mindspore"))
    assert (known.launcher, known.device_s_launcher) == (None, None)
    assert "torchrun" not in what_it_saved(known)
    assert savings_document(known)["launcher"] is None
    forced = Assumptions(launcher=UsualLauncher.TORCHRUN).settled("mindspore")
    assert saved(one_fault(resume_at=61), forced).launcher is not None


def test_the_sentence_has_the_sums_and_what_was_assumed() -> None:
    story = goes_on(dies_at(begins(Story(1)), 95), gasp(95), periodic_step=60)
    known = saved(ends_at(story, 145), replace(TORCH, devices=8))
    assert what_it_saved(known) == (
        "1 fault cost 8 s here, 39 s with torchrun, 25 min 39 s by hand "
        "(assumed: 15 min to notice, 10 min to restart; --assume): "
        "saved 4.2 device-minutes against torchrun, 3.4 device-hours against a restart by hand"
    )


def test_a_cold_start_is_the_same_elsewhere_and_a_standby_is_laid_beside_the_quickest_cold_one() -> None:
    def of(*, standby: bool) -> float:
        story = dies_at(begins(Story(1)), 95)
        passes(story, 1).drained().chose(checkpoint(90)).prepared()
        story.now(WorkerStarted, node=NODE, rank=0, pid=7, standby=standby).all_run()
        first_step(passes(story, 9), 91)
        (one,) = saved(ends_at(story, 140)).interruptions
        assert one.here.waiting_s == pytest.approx(10)
        assert one.launcher is not None
        assert saved(ends_at(story, 140)).cold_start_s == (4 if standby else None)
        return one.launcher.waiting_s

    assert of(standby=False) == pytest.approx(0.35 + 9)
    assert of(standby=True) == pytest.approx(0.35 + 4)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_of_real_runs_nothing_is_counted_twice_or_longer_than_they_took(path: Path) -> None:
    account = accounted(journal_lines(path))
    known = savings(account, TORCH)
    counted = [number for one in known.interruptions for number in one.faults]
    assert len(set(counted)) == len(counted) == known.counted
    assert known.counted + sum(known.left_out.values()) == len(account.faults)
    assert 0 <= known.here.total_s <= account.wall_s
    assert bool(what_it_saved(known)) == bool(account.faults)


def test_a_real_run_with_a_gasp_and_saves_of_its_own() -> None:
    """DDP, 0.1 s a step, a save each 40 steps; rank 1 killed at step 270, which rank 0 saved."""
    known = savings(accounted(journal_lines(KEPT[0].with_name("own_saves_and_a_gasp.jsonl"))), TORCH)
    (one,) = known.interruptions
    assert (one.devices, one.steps_again) == (2, 30)
    assert one.here.again_s == 0
    assert one.by_hand.again_s == pytest.approx(30 * 0.11, abs=0.1)
    assert one.here.waiting_s == pytest.approx(12.2, abs=0.1)
    assert one.launcher is not None
    assert one.launcher.waiting_s == pytest.approx(12.0, abs=0.1)
