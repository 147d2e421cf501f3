"""What a run cost, told as stories: every second is accounted for, once, under the right name."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.model.events import FirstStep, Timer
from faultrun.model.exits import Signaled
from faultrun.model.incident import Aftermath
from faultrun.model.observed.agreement import PlanElsewhere
from faultrun.model.observed.hang import PauseOver
from faultrun.model.observed.recovery import Began, FirstStepLogged, RecoveryTimed, ResumeChecked
from faultrun.model.plan import Reason
from faultrun.model.run import Phase
from faultrun.model.stop import StopSource
from faultrun.observe.account.accountant import Accountant
from faultrun.observe.account.advice import advise
from faultrun.observe.account.timeline import Spending
from faultrun.observe.account.whole_run import whole_run
from support.stories.account_stories import (
    account_of,
    begins,
    decoded,
    first_step,
    lines_of,
    one_fault,
    passes,
    written,
)
from support.stories.savings_stories import NO_WAIT
from support.stories.story import SIGKILL, SIGSEGV, SIGTERM, Story, checkpoint, first_plan
from support.stories.survivors import training


def test_every_second_of_a_run_with_a_fault_has_its_name() -> None:
    account = account_of(lines_of(one_fault(resume_at=61)))
    spent = {kind: seconds for kind, seconds in account.spent.items() if seconds}
    assert spent == {
        Spending.CHOOSE: pytest.approx(2 + 2),
        Spending.SPAWN: pytest.approx(1 + 3 + 1 + 3),
        Spending.START: pytest.approx(4 + 4),
        Spending.DRAIN: pytest.approx(5),
        Spending.TRAINING: pytest.approx(100 + 161),
        Spending.RECOMPUTE: pytest.approx(39),  # the first of the 40 is a part of the start
    }
    assert sum(account.spent.values()) == pytest.approx(account.wall_s)
    assert account.productive_share == pytest.approx(261 / 325)
    assert account.ended == (0, "every rank finished")


def test_the_fault_says_who_where_and_what_it_took() -> None:
    account = account_of(lines_of(one_fault(resume_at=61)))
    (fault,) = account.faults
    assert (fault.number, fault.rank, fault.what, fault.step) == (1, 2, "killed by SIGKILL", 101)
    assert (fault.resumed_step, fault.lost_steps, fault.saved) == (61, 40, 1)
    assert fault.recovery_s == pytest.approx(5 + 2 + 1 + 3 + 4)
    assert fault.recompute_s == pytest.approx(39)
    assert fault.end == "training again"
    assert [(life.number, life.end, life.reached_step) for life in account.lives] == [
        (0, "incident 1", 101),
        (1, "finished", 262),
    ]


def test_a_life_whose_last_rank_crashed_when_it_was_done_has_finished() -> None:
    story = (
        passes(begins(Story(1)), 50).reported(r0=51).ended(0, Signaled(signum=SIGSEGV), done=True).drained()
    )
    account = account_of(lines_of(story))
    assert (account.ended, account.faults) == ((0, "every rank finished"), [])
    assert account.lives[-1].end == "finished"


def test_the_finer_parts_of_a_recovery_belong_to_the_fault_before_them() -> None:
    lines = lines_of(one_fault(resume_at=61))
    assert account_of(lines).faults[0].timeline == {}
    at = max(number for number, line in enumerate(lines) if line["event"] == "FirstStep") + 1
    now_s = lines[at - 1]["run_s"]
    told = RecoveryTimed(at_s=now_s, incarnation=1, total_s=9.0, import_s=2.5)
    timed = written(told, Phase.RUNNING)
    (fault,) = account_of([*lines[:at], timed, *lines[at:]]).faults
    whole = ("detect_s", "drain_s", "choose_s", "pause_s", "rewrite_s", "spawn_s")
    assert list(fault.timeline.items()) == [*((name, 0.0) for name in whole), ("import_s", 2.5)]
    assert fault.recovery_s == pytest.approx(15)  # without a first step the total is not that of a recovery
    stepped = written(replace(told, first_step_s=1.0), Phase.RUNNING)
    (fault,) = account_of([*lines[:at], stepped, *lines[at:]]).faults
    assert fault.recovery_s == 9
    why = "training again at step 62, as chosen"
    checked = written(ResumeChecked(at_s=now_s, incarnation=1, began=Began.AS_CHOSEN, why=why), Phase.RUNNING)
    (fault,) = account_of([*lines[:at], checked, *lines[at:]]).faults
    assert fault.resume == why
    account_of([timed, checked])  # a journal that begins with it has no fault to give it to


def test_no_step_is_trained_twice_when_the_gasp_saved_the_last_one() -> None:
    account = account_of(lines_of(one_fault(resume_at=101)))
    assert account.lost_steps == 0
    assert account.spent[Spending.RECOMPUTE] == 0


def test_the_log_of_a_life_that_has_ended_says_nothing_of_the_one_that_survivors_have_begun() -> None:
    story = training().killed(1).examined()
    story.now(FirstStepLogged, incarnation=0, rank=0, step=1, epoch=None, in_epoch=None)
    story.rejoined(0, 1, 2, step=41).now(FirstStep, step=42).reported(r0=42, r1=42, r2=42)
    account = account_of(lines_of(story))
    assert [(one.lost_steps, one.end) for one in account.faults] == [(0, "training again")]
    assert [life.repeated_steps or 0 for life in account.lives] == [0, 0]


def test_survivors_that_came_to_no_step_before_the_next_death_leave_the_account_known() -> None:
    story = first_step(passes(training().all_run(), 5), 41)
    for _ in range(2):
        passes(story, 5).killed(1).examined().all_run().rejoined(0, 1, 2, step=41)
    passes(first_step(story, 42).reported(r0=42, r1=42, r2=42), 5)
    account = account_of(lines_of(story))
    assert (account.lost_steps, account.unknown_because) == (0, None)


def test_a_plan_that_came_too_late_is_no_life_and_ends_no_fault() -> None:
    story = training().killed(1)
    story.answers_wait = True
    story.examined().returned(2).returned(0)
    story.answers_wait = False
    account = account_of(lines_of(story.hears().drained().chose(None).prepared()))
    assert [(life.number, life.stayed) for life in account.lives] == [(0, False), (2, False)]
    (fault,) = account.faults
    assert (fault.resumed_step, fault.lost_steps, fault.stayed) == (0, 41, "")


def test_a_life_that_dies_before_its_first_step_was_all_start_and_closes_the_fault_before_it() -> None:
    story = begins(Story(2))
    passes(story, 50).reported(r0=51).killed(0).killed(1)
    story.drained().chose(checkpoint(40)).prepared().all_run()
    passes(story, 7).killed(1).killed(0)
    story.drained().chose(checkpoint(40))
    account = account_of(lines_of(story))
    assert [fault.end for fault in account.faults] == [
        "failed again before every rank had done a step",
        "not over",
    ]
    assert [fault.recovery_s for fault in account.faults] == [None, None]
    assert account.spent[Spending.START] == pytest.approx(4 + 7)
    assert account.spent[Spending.TRAINING] == pytest.approx(50)


def test_the_wait_before_a_restart_has_a_name_of_its_own() -> None:
    story = begins(Story(1))
    story.killed(0).recovers(checkpoint(1)).all_run()
    passes(story, 1).killed(0).recovers(checkpoint(1)).all_run()
    assert account_of(lines_of(story)).spent[Spending.BACKOFF] > 0


def test_the_time_without_a_supervisor_is_known_from_the_wall_clock() -> None:
    story = begins(Story(2))
    passes(story, 10)
    count = len(story.steps)
    story.starts().drained()
    account = account_of(lines_of(story, away_s=500.0, away_after=count))
    assert account.spent[Spending.AWAY] == pytest.approx(510.0 - 0.0, abs=10.1)
    assert sum(account.spent.values()) == pytest.approx(account.wall_s)


@pytest.mark.parametrize("late_s", [0.0, 0.4])
def test_time_away_that_the_clock_of_the_run_counts_is_not_counted_twice(late_s: float) -> None:
    """Nor does a line that was written late add to it."""
    story = begins(Story(2))
    passes(story, 10).reported(r0=1, r1=1)
    lost_s, count = story.now_s, len(story.steps)
    story.now_s += 500
    account = account_of(lines_of(story.starts(), away_s=late_s, away_after=count))
    assert account.spent[Spending.AWAY] == pytest.approx(story.now_s - lost_s)
    assert account.wall_s == pytest.approx(story.now_s)


def test_a_quiet_training_before_the_supervisor_was_lost_is_known_to_the_minute() -> None:
    story = begins(Story(2))
    for minute in range(1, 61):
        passes(story, 60).reported(r0=minute * 10, r1=minute * 10 + 1)
    count = len(story.steps)
    story.starts()  # its clock goes on where the last line stopped
    account = account_of(lines_of(story, away_s=545.0, away_after=count))
    assert account.spent[Spending.TRAINING] == pytest.approx(3600)
    assert account.spent[Spending.AWAY] == pytest.approx(545)
    assert (account.lives[0].end, account.lives[0].reached_step) == ("supervisor lost", 601)
    assert sum(account.spent.values()) == pytest.approx(account.wall_s)


def test_a_stop_is_no_incident() -> None:
    story = begins(Story(2))
    passes(story, 10).told_to_stop(StopSource.SIGTERM)
    passes(story, 2).killed(0, SIGTERM).killed(1, SIGTERM).drained()
    account = account_of(lines_of(story))
    assert (account.stops, account.faults) == (1, [])
    assert account.lives[-1].end == "stopped"
    assert account.ended is not None
    assert account.ended[0] == 143


@pytest.mark.parametrize("when", ["while ranks save", "when all are swept", "after the next look"])
@pytest.mark.parametrize("signum", [SIGTERM, SIGKILL])
def test_a_death_is_an_incident_unless_it_was_the_first_sign_of_a_stop(when: str, signum: int) -> None:
    story = begins(Story(2)).killed(0, signum, after_s=60)
    if when == "while ranks save":
        story.told_to_stop(after_s=0.5).killed(1, SIGTERM).drained()
    elif when == "when all are swept":
        story.killed(1, SIGTERM).told_to_stop(after_s=0.5).drained()
    else:
        story.agreement_is_silent = True
        story.killed(1, SIGTERM).drained().rang(Timer.GRACE, after_s=0.1).chose(checkpoint(5))
        story.agreement_is_silent = False
        story.told_to_stop(after_s=0.5)
    account = account_of(lines_of(story))
    assert account.ended is not None
    assert account.ended[0] == 143
    assert len(account.faults) == (1 if signum == SIGKILL else 0)
    assert account.stops == (1 if signum == SIGTERM else 0)


def test_the_nodes_together_know_that_what_one_took_for_a_fault_was_the_stop_of_another() -> None:
    lines = lines_of(one_fault(resume_at=61))
    (following,) = [one["plan"] for one in lines if one["event"] == "PlanAdopted" and one["incarnation"] == 1]
    assert len(account_of(lines).faults) == 1
    following.update(reason="continued", aftermath=None)
    account = account_of(lines)
    assert (account.faults, account.stops, account.lives[0].end) == ([], 1, "stopped")


def test_an_incident_in_which_this_node_had_no_ranks_is_counted_once() -> None:
    fell = replace(begins(Story(2)).killed(0).incident, number=3)
    plan = first_plan(2, incarnation=4, reason=Reason.FAULT, aftermath=Aftermath(incident=fell))
    story = begins(Story(2)).now(PlanElsewhere, plan=plan).now(PlanElsewhere, plan=plan)
    assert [(one.number, one.is_judged) for one in account_of(lines_of(story)).faults] == [(3, True)]


def test_a_window_that_runs_out_is_counted() -> None:
    story = begins(Story(2))
    story.killed(0)
    passes(story, 30).rang(Timer.GRACE)
    assert account_of(lines_of(story)).saves.cut == 1


def test_events_and_phases_of_a_newer_version_are_accounted_for_and_counted() -> None:
    lines = lines_of(one_fault(resume_at=61))
    strange = {"event": "Levitated", "run_s": 60.0, "phase": "floating", "at_utc": "?", "incarnation": 0}
    back = {"event": "Landed", "run_s": 65.0, "phase": "running", "at_utc": None}
    account = account_of([*lines[:7], strange, back, *lines[7:]])
    assert account.events["Levitated"] == 1
    assert account.spent[Spending.IDLE] == pytest.approx(5.0)
    assert sum(account.spent.values()) == pytest.approx(account.wall_s)


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
_FIELDS = ("status", "plan", "ranks", "steps", "refused", "actions", "took_s", "step", "exit_code", "rank")


_WHOLE = (lines_of(one_fault(resume_at=61)), lines_of(begins(Story(2))))


@st.composite
def _mangled(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A journal of which lines are missing, doubled, or hold anything in their fields."""
    lines = _WHOLE[draw(st.integers(0, 1))]
    places = draw(st.lists(st.integers(0, len(lines) - 1), max_size=40))
    return [
        {**lines[at], _FIELDS[draw(st.integers(0, len(_FIELDS) - 1))]: draw(_JUNK)} if at % 3 else lines[at]
        for at in places
    ]


@given(_mangled())
def test_whatever_the_journal_holds_every_second_is_counted_once(lines: list[dict[str, Any]]) -> None:
    account = account_of(lines)
    assert sum(account.spent.values()) == pytest.approx(account.wall_s, abs=1e-6)
    ends = [segment.end_s for segment in account.segments]
    assert [segment.begin_s for segment in account.segments] == pytest.approx([0.0, *ends[:-1]][: len(ends)])
    advise(account, {})


def test_asking_in_the_middle_changes_nothing() -> None:
    accountant = Accountant()
    lines = lines_of(one_fault(resume_at=61))
    for line in decoded(lines):
        accountant.take(line)
        accountant.account()
    assert accountant.account() == account_of(lines)


def test_between_lines_a_run_goes_on_and_what_it_repeats_is_not_called_training_that_counts() -> None:
    story = begins(Story(1))
    passes(story, 100).reported(r0=101).killed(0)
    first_step(story.recovers(None).all_run(), 1)
    accountant = Accountant()
    for line in decoded(lines_of(story)):
        accountant.take(line)
    early, later = accountant.account(passed_s=50.0, step=51), accountant.account(passed_s=200.0, step=201)
    assert (early.lost_steps, later.lost_steps) == (51, 101)
    assert early.spent[Spending.RECOMPUTE] == pytest.approx(50)
    assert early.spent[Spending.TRAINING] == pytest.approx(100)
    assert later.spent[Spending.RECOMPUTE] == pytest.approx(100)
    assert later.spent[Spending.TRAINING] == pytest.approx(200)
    assert later.wall_s == pytest.approx(story.now_s + 200)
    assert accountant.account().wall_s == pytest.approx(story.now_s)


def test_time_in_which_everything_stood_still_is_none_of_training() -> None:
    story = begins(Story(2))
    passes(story, 50).reported(r0=51, r1=51)
    passes(story, 30).now(PauseOver, rank=0, paused_s=28.0, longest_s=0.0, warned=False, all_stood=True)
    account = account_of(lines_of(passes(story, 10).reported(r0=61, r1=61)))
    assert account.spent[Spending.IDLE] == pytest.approx(28)
    assert account.spent[Spending.TRAINING] == pytest.approx(62)


def test_a_restart_whose_preparation_failed_started_nobody() -> None:
    story = begins(Story(1))
    passes(story, 5).killed(0).drained().chose(checkpoint(1))
    assert account_of(lines_of(story)).restarts == 0
    story.prepared().all_run()
    assert account_of(lines_of(story)).restarts == 1


def test_the_account_of_a_run_has_what_only_one_of_its_nodes_saw() -> None:
    story = begins(Story(1, policy=NO_WAIT))
    passes(story, 50).killed(0).recovers(checkpoint(40)).all_run()
    first_step(passes(story, 5), 41)
    early = account_of(lines_of(story))
    passes(story, 50).killed(0).recovers(checkpoint(80)).all_run()
    first_step(passes(story, 5), 81)
    whole = account_of(lines_of(story))
    first = lines_of(story)[0]
    later = replace(whole, faults=whole.faults[1:], lives=whole.lives[1:], began_utc=first["at_utc"])
    for order in ([early, later], [later, early]):
        told = whole_run(order)
        assert [fault.number for fault in told.faults] == [1, 2]
        assert [life.number for life in told.lives] == [life.number for life in whole.lives]
        assert (told.restarts, told.high_step) == (2, whole.high_step)
    assert whole_run([whole]) == whole
