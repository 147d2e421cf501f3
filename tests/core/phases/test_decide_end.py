"""The run ends, or its supervisor does: stops, stale facts, and going on where somebody else was."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from faultrun.model.actions import (
    FindRecoveryPoint,
    Kill,
    Prepare,
    Publish,
    RaiseAlarm,
    RequestGasp,
    Spawn,
    StartTimer,
)
from faultrun.model.events import Timer
from faultrun.model.exits import Exited
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.observed.platform_notice import ResetNotice
from faultrun.model.plan import Reason
from faultrun.model.run import Phase
from faultrun.model.spec.windows import Deadline
from faultrun.model.stop import STOP_EXIT_CODES, StopSource
from faultrun.model.topology import NodeId
from support.stories.story import SIGKILL, SIGTERM, STAYING, Story, checkpoint, rule


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (StopSource.SIGTERM, 143),
        (StopSource.SIGINT, 130),
        (StopSource.SIGHUP, 129),
        (StopSource.CONTROL, 143),
    ],
)
def test_told_to_stop_the_workers_save_and_nothing_is_started_again(source: StopSource, code: int) -> None:
    story = Story(2).begins()

    story.told_to_stop(source, after_s=5)

    assert story.actions == [
        RequestGasp(ranks=frozenset({0, 1}), deadline=Deadline(at_s=25), stop=source),
        RaiseAlarm(incarnation=0, why=f"told to stop by {source.value}", stop=source),
        StartTimer(timer=Timer.GRACE, at_s=25, incarnation=0),
    ]
    story.returned(0, 143).returned(1, 143).drained()
    assert story.performed(FindRecoveryPoint) == []
    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, code)


@pytest.mark.parametrize(("late_s", "end_s"), [(0.0, 25.0), (3.0, 25.0), (5.0, 23.0), (60.0, 6.0)])
def test_a_hook_that_was_late_has_used_up_its_part_of_the_window(late_s: float, end_s: float) -> None:
    story = Story(2).begins().told_to_stop(StopSource.PRESTOP, after_s=5, late_s=late_s)
    assert story.performed(RequestGasp) == [
        RequestGasp(ranks=frozenset({0, 1}), deadline=Deadline(at_s=end_s), stop=StopSource.PRESTOP)
    ]
    assert story.told_to_stop(StopSource.SIGTERM, after_s=0.5).phase is Phase.DRAINING
    assert story.deadline == Deadline(at_s=end_s), "SIGTERM behind the hook moves nothing"


@pytest.mark.parametrize(
    ("left_s", "window_s"),
    [(86_395.0, 20.0), (90.0, 90.0), (9.0, 9.0), (0.2, 1.0), (-3.0, 20.0), (None, 20.0)],
)
def test_the_window_is_as_long_as_the_platform_leaves_time_however_long_the_run_has_lasted(
    left_s: float | None, window_s: float
) -> None:
    """An end that is over was moved, or something else ends the job."""
    story = Story(2)
    story.now_s = 90_000.0
    story.starts(stop_by_s=None if left_s is None else story.now_s + left_s).chose().prepared()
    story.told_to_stop()
    assert story.performed(RequestGasp)[-1].deadline == Deadline.after(window_s, story.now_s)
    story.returned(0, 143).returned(1, 143).drained()
    story.starts().chose().prepared().told_to_stop()
    asked = story.performed(RequestGasp)[-1]
    assert asked.deadline == Deadline.after(20, story.now_s), "the next job has its own end"


def test_a_stop_is_a_stop_even_if_every_worker_then_returns_zero() -> None:
    assert Story(2).begins().told_to_stop().returned(0).returned(1).drained().state.exit_code == 143


INT, TERM, HUP, PRESTOP = StopSource.SIGINT, StopSource.SIGTERM, StopSource.SIGHUP, StopSource.PRESTOP
MEANT_AGAIN = [(INT, INT, 0.2), (TERM, TERM, 2.0), (TERM, INT, 2.0), (HUP, TERM, 9.0)]
ONE_STOP = [
    *((TERM, TERM, 0.02), (INT, INT, 0.02), (TERM, HUP, 0.0), (TERM, TERM, 1.9), (TERM, INT, 1.0)),
    *((PRESTOP, TERM, 15.0), (PRESTOP, INT, 15.0)),
    *((TERM, StopSource.CONTROL, 15.0), (StopSource.PLATFORM, TERM, 15.0)),
]


@pytest.mark.parametrize(("first", "again", "after_s"), MEANT_AGAIN)
def test_somebody_who_asks_again_is_impatient_and_cuts_the_window_short(
    first: StopSource, again: StopSource, after_s: float
) -> None:
    story = Story(2).begins().told_to_stop(first)
    story.actions.clear()
    story.told_to_stop(again, after_s=after_s)
    assert story.performed(Kill) == [Kill(ranks=frozenset({0, 1}))]
    assert story.whys[-1] == f"told to stop again by {again.value}: no longer waiting for saves; killing 2"
    story.killed(0).killed(1).drained()
    assert story.state.exit_code == STOP_EXIT_CODES[first], "the first request says how the run ends"


@pytest.mark.parametrize(("first", "again", "after_s"), ONE_STOP)
def test_the_same_stop_delivered_twice_is_one_stop_with_one_window(
    first: StopSource, again: StopSource, after_s: float
) -> None:
    story = Story(2).begins().told_to_stop(first).told_to_stop(again, after_s=after_s)
    assert story.phase is Phase.DRAINING
    assert story.performed(Kill) == []
    assert story.deadline.at_s == 20


def test_a_trap_that_passes_on_every_signal_does_not_make_the_third_one_impatient() -> None:
    story = Story(2).begins().told_to_stop(StopSource.PRESTOP)
    story.told_to_stop(after_s=15).told_to_stop(after_s=0.02).told_to_stop(StopSource.SIGHUP, after_s=0.1)
    assert (story.phase, story.deadline.at_s) == (Phase.DRAINING, 20)


def test_a_second_preemption_is_answered_as_the_first() -> None:
    story = Story(2).begins()
    for life in range(3):
        story.actions.clear()
        story.told_to_stop(StopSource.PRESTOP, after_s=5).told_to_stop(StopSource.SIGTERM, after_s=0.5)
        assert (story.phase, story.deadline.at_s) == (Phase.DRAINING, story.now_s + 19.5), life
        assert story.performed(Kill) == []
        story.returned(0, 143).returned(1, 143).drained()
        assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 143)
        story.starts().chose(checkpoint(9 + life)).prepared()


def test_a_stop_inside_a_window_lets_it_run_but_not_longer_than_a_stop_may_take() -> None:
    early = Story(2).begins().killed(1, after_s=100)
    early.actions.clear()
    early.told_to_stop(after_s=1)
    assert early.actions == [StartTimer(timer=Timer.GRACE, at_s=121, incarnation=0)]

    late = Story(2).begins().killed(1, after_s=100)
    late.actions.clear()
    late.told_to_stop(after_s=25)
    assert late.actions == [StartTimer(timer=Timer.GRACE, at_s=130, incarnation=0)]
    late.killed(0, SIGTERM).drained()
    assert (late.phase, late.state.exit_code) == (Phase.FINISHED, 143)


def test_a_stop_is_heard_in_every_phase_and_ends_the_run_from_each() -> None:
    for phase, story in in_every_phase():
        story.actions.clear()
        story.told_to_stop()
        assert story.state.stop is not None, phase
        lead_to_the_end(story)
        assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 143), phase
        assert story.performed(Spawn) == [], phase


def test_an_answer_that_was_under_way_when_the_stop_came_starts_nothing() -> None:
    preparing = Story(2).starts().chose()
    preparing.actions.clear()
    preparing.told_to_stop().prepared()
    assert preparing.phase is Phase.FINISHED
    assert preparing.performed(Spawn) == []


def test_a_finished_run_acts_on_nothing_and_its_exit_code_stays() -> None:
    story = Story(1).begins().ended(0, Exited(code=0), done=True).drained()
    before = story.state
    story.actions.clear()
    story.killed(0).told_to_stop().finished(1).chose().prepared().rang(Timer.GRACE).drained()
    assert (story.state, story.actions) == (before, [])
    story.starts()
    assert (story.state, story.actions) == (before, [])


def test_a_stopped_run_is_taken_up_again_as_the_next_incarnation() -> None:
    story = Story(2).begins().told_to_stop().returned(0, 143).returned(1, 143).drained()
    story.starts()
    assert story.phase is Phase.SURVEYING
    (survey,) = [action for action in story.actions if isinstance(action, FindRecoveryPoint)][-1:]
    assert survey.continuing
    story.actions.clear()
    story.chose(checkpoint(9)).prepared()

    (spawn,) = story.performed(Spawn)
    assert (spawn.plan.incarnation, spawn.plan.reason) == (1, Reason.CONTINUED)
    assert spawn.plan.ledger.restarts == (), "nobody failed: nothing is charged"


def test_a_lost_supervisor_is_followed_by_the_next_incarnation() -> None:
    story = Story(2).begins()
    story.actions.clear()
    story.starts().chose(checkpoint(9)).prepared()
    (spawn,) = story.performed(Spawn)
    assert (spawn.plan.incarnation, spawn.plan.reason, spawn.ranks) == (1, Reason.CONTINUED, (0, 1))


def test_a_supervisor_lost_in_the_middle_of_a_drain_still_owes_the_restart() -> None:
    story = Story(2).begins().killed(1)
    story.actions.clear()
    story.starts().chose().prepared()
    (spawn,) = story.performed(Spawn)
    assert spawn.plan.reason is Reason.FAULT
    assert (spawn.plan.ledger.incidents, len(spawn.plan.ledger.restarts)) == (1, 1)


def test_a_run_may_go_on_on_a_machine_of_another_name() -> None:
    story = Story(2).begins()
    moved = NodeId("there")
    story.starts(node=moved)
    assert story.state.node == moved


def test_the_end_waits_for_workers_that_still_run() -> None:
    assert Story(2).begins().finished(0).phase is Phase.RUNNING


def test_a_budget_that_is_used_up_ends_the_run_with_the_first_failures_own_code() -> None:
    story = Story(2, rule(max_restarts=1)).begins()
    story.returned(1, 3).killed(0, SIGTERM).recovers()
    story.killed(0, SIGKILL).killed(1, SIGTERM).drained().chose()
    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 137)


def test_a_node_that_gave_up_tells_so_and_adopts_no_other_plan() -> None:
    story = Story(2).starts().found_nothing_whole()
    (told,) = story.performed(Publish)
    assert (told.fact.resume.lacks, told.fact.word) == ("3 found, none whole", NodeStatus.JOINED)
    assert story.performed(Prepare) == []


def test_of_two_plans_for_one_incarnation_the_first_is_adopted() -> None:
    story = Story(2).begins().killed(1).killed(0, SIGTERM)
    story.agreement_is_silent = True
    story.drained().chose()
    story.actions.clear()
    story.planned(replace(story.plan, incarnation=0))
    assert (story.performed(Prepare), story.state.incarnation) == ([], 0)
    story.planned(replace(story.plan, incarnation=1))
    assert len(story.performed(Prepare)) == 1


@pytest.mark.parametrize("end", [Story.told_to_stop, Story.found_nothing_whole])
def test_a_plan_that_comes_after_the_end_was_decided_is_not_adopted(end: Callable[[Story], Story]) -> None:
    story = Story(2).begins().killed(1).killed(0, SIGTERM).drained()
    story.agreement_is_silent = True
    end(story)
    story.planned(replace(story.plan, incarnation=1))
    assert (story.performed(Prepare), story.state.incarnation) == ([], 0)


def test_a_window_that_was_cut_short_makes_our_sigkill_nobody_elses() -> None:
    story = Story(2).begins().killed(1, after_s=100).told_to_stop(after_s=0.01).told_to_stop(after_s=2)
    story.killed(0, after_s=0.01).drained()
    assert (story.incident.together, story.incident.followers) == ((), (0,))


def in_every_phase() -> list[tuple[Phase, Story]]:
    """One story up to each phase that a supervisor with workers or without can be in."""
    backing_off = Story(1).begins().killed(0).recovers().killed(0).drained().chose()
    flushing = ResetNotice(flushing=True)
    stories = [
        Story(2),
        Story(2).starts(notices=(flushing,)).chose(),
        Story(2).starts(),
        Story(2).starts().chose(),
        Story(2).begins(),
        Story(2, windows=STAYING).begins().can_rejoin(0, 1).killed(0),
        Story(2).begins().killed(0),
        Story(2).begins().killed(0).rang(Timer.GRACE),
        Story(2).begins().killed(0).killed(1, SIGTERM),
        Story(2).begins().killed(0).killed(1, SIGTERM).drained(),
        backing_off,
    ]
    found = [(story.phase, story) for story in stories]
    missing = set(Phase) - {phase for phase, _ in found}
    # The agreement of one node answers before anything else can happen.
    assert missing == {Phase.AWAITING_PLAN, Phase.AWAITING_GO, Phase.FINISHED}
    return found


def lead_to_the_end(story: Story) -> None:
    """What the world still owes the supervisor."""
    if story.phase is Phase.NEW:
        story.starts()
    if story.phase is Phase.SURVEYING:
        story.chose()
    for rank in sorted(story.state.life.alive):
        story.killed(rank)
    if story.phase is Phase.SWEEPING:
        story.drained()


@pytest.mark.parametrize("code", [0, 65])
def test_a_stop_that_comes_when_the_end_has_been_decided_did_not_end_the_run(code: int) -> None:
    story = Story(1).begins()
    story.agreement_is_silent = True
    if code:
        story = Story(1).starts()
        story.agreement_is_silent = True
        story.found_nothing_whole()
    else:
        story.returned(0).drained()
    story.told_to_stop().finished(code)
    assert (story.phase, story.state.exit_code, story.state.stop) == (Phase.FINISHED, code, None)


@pytest.mark.parametrize("swept", [False, True])
def test_a_stop_that_is_heard_when_every_rank_has_returned_zero_may_have_reached_them_before(
    swept: bool,
) -> None:
    story = Story(2).begins().returned(0).ended(1, Exited(code=0), done=True)
    story = story.drained().told_to_stop() if swept else story.told_to_stop().drained()
    assert (story.phase, story.state.exit_code) == (Phase.FINISHED, 143)
    assert not story.state.trained, "the next start goes on"


def test_a_stop_that_comes_when_every_rank_was_done_did_not_end_the_run() -> None:
    story = Story(2).begins().ended(0, Exited(code=0), done=True).ended(1, Exited(code=0), done=True)
    assert story.phase is Phase.SWEEPING, "what they left behind is being ended"
    story.told_to_stop().told_to_stop(StopSource.SIGINT, after_s=5).drained()
    assert (story.phase, story.state.exit_code, story.state.stop) == (Phase.FINISHED, 0, None)
    assert story.state.trained, "the next start has nothing to go on with"
