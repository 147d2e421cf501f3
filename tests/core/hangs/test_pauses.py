"""A silence is warned of long before anything is done about it, and what was come through is remembered."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.hangs import detector
from faultrun.core.hangs.limits import AUTO_S, LONGEST_FACTOR, Looks
from faultrun.model.observed.hang import Activity, HangPolicy, PauseHistory, Span, Suspicion
from faultrun.model.observed.progress import WorkPhase
from support.stories.hang_stories import warned
from support.stories.silent_job import Job

GIVEN = frozenset({"step"})
PHASES = st.sampled_from([phase for phase in WorkPhase if phase is not WorkPhase.DONE])


def looked_at(job: Job, seconds: float, stance: Activity = Activity.SLEEPING) -> list[Suspicion]:
    """Every look at one silence, each answered by a warning, up to the one that is acted on."""
    found, until_s = [], job.now_s + seconds
    while (one := job.passes(until_s - job.now_s)) is not None:
        found.append(one)
        if one.acts:
            break
        job.is_warned_of(one, stance)
    return found


def test_a_silence_is_warned_of_at_a_multiple_of_the_step_and_acted_on_after_minutes() -> None:
    found = looked_at(Job().begin().trains(20), 1000.0)
    assert [(one.silent_s, one.acts) for one in found] == [
        (5.0, False), (60.0, False), (120.0, False), (240.0, False), (300.0, True),
    ]  # fmt: skip
    assert {one.acts_s for one in found} == {AUTO_S}


def test_the_limit_of_the_user_is_acted_on_and_warned_of_before() -> None:
    policy = HangPolicy(step=Span(low_s=20.0, high_s=20.0), given=GIVEN)
    found = looked_at(Job(policy=policy).begin().trains(20), 100.0)
    assert [(one.silent_s, one.acts, one.final) for one in found] == [(5.0, False, False), (20.0, True, True)]


def test_what_is_usual_is_learnt_with_a_limit_of_the_user_too() -> None:
    policy = HangPolicy(step=Span(low_s=60.0, high_s=60.0), given=GIVEN)
    job = Job(policy=policy).begin().trains(2)
    assert detector.interval(job.watch) == detector.interval(Job().begin().trains(2).watch) == 0.1


def test_a_learnt_limit_between_bounds_of_the_user_is_acted_on_at_once() -> None:
    policy = HangPolicy(step=Span(low_s=1.0, high_s=60.0), given=GIVEN)
    (found,) = looked_at(Job(policy=policy).begin().trains(20), 100.0)
    assert (found.silent_s, found.acts) == (5.0, True)


@pytest.mark.long
def test_the_longest_pause_raises_the_limit_tenfold_and_is_told() -> None:
    job = Job().begin().trains(20)
    warned = job.suspects(100.0)
    job.is_warned_of(warned)
    assert job.passes(35.0) is None
    over = job.goes_on(21)
    assert over is not None
    assert (over.rank, over.paused_s, over.warned) == (0, 40.0, True)
    assert job.watch.run.longest_s == 40.0
    assert looked_at(job, 1000.0)[-1].silent_s == LONGEST_FACTOR * 40.0


def test_an_evaluation_that_nobody_warned_of_counts_as_well() -> None:
    job = Job().begin().trains(20)
    job.say(0, WorkPhase.EVALUATING)
    job.say(1, WorkPhase.COLLECTIVE)
    assert job.passes(59.0) is None
    over = job.goes_on(21)
    assert over is not None
    assert (over.paused_s, over.warned) == (59.0, False)
    job.goes_on(22)
    assert job.watch.over is None


@pytest.mark.long
def test_what_earlier_lives_came_through_counts_in_this_one() -> None:
    job = Job(patience=PauseHistory(longest_s=90.0)).begin().trains(20)
    assert looked_at(job, 10_000.0)[-1].silent_s == 900.0


@pytest.mark.long
def test_a_rank_that_hung_without_a_proof_gets_twice_the_time_until_it_is_past_that_step() -> None:
    patience = PauseHistory(hung_step=20, hung_limit_s=AUTO_S)
    assert looked_at(Job(patience=patience).begin().trains(20), 10_000.0)[-1].silent_s == 2 * AUTO_S
    assert looked_at(Job(patience=patience).begin().trains(21), 10_000.0)[-1].silent_s == AUTO_S
    given_one = HangPolicy(step=Span(low_s=20.0, high_s=20.0), given=GIVEN)
    job = Job(policy=given_one, patience=patience).begin().trains(20)
    assert looked_at(job, 10_000.0)[-1].silent_s == 20.0, "a number of the user acts at that time"


@pytest.mark.long
def test_a_pause_that_was_warned_of_in_vain_is_not_warned_of_again() -> None:
    job = Job().begin().trains(20)
    for number in range(21, 60):
        found = job.passes(8.0)
        if found is not None:
            job.is_warned_of(found)
            assert number == 21
            assert job.passes(8.0 - found.silent_s) is None
        job.goes_on(number)
        job.trains(25, first=number + 1)  # what was of late is forgotten
        for rank in job.beats:
            job.say(rank, WorkPhase.COMPUTING, number)


def test_a_stopped_rank_is_looked_at_soon_after_each_waking() -> None:
    job = Job().begin().trains(20)
    job.stopped = frozenset({1})
    silent, woken = [], []
    for _ in range(4):
        found = job.suspects(60.0)
        silent.append(found.silent_s)
        woken.append(found.woken)
        job.is_warned_of(found, Activity.STOPPED)
    assert silent == [5.0, 10.0, 20.0, 30.0]
    assert woken == [0, 1, 2, 3]


def test_a_rank_that_goes_on_after_waking_is_a_pause_and_no_hang() -> None:
    job = Job().begin().trains(20)
    job.stopped = frozenset({1})
    found = job.suspects(60.0)
    job.is_warned_of(found, Activity.STOPPED)
    job.stopped = frozenset()
    over = job.goes_on(21)
    assert over is not None
    assert (over.warned, job.watch.looks) == (True, Looks())


@given(data=st.data())
def test_the_looks_at_one_silence_never_come_closer_and_never_miss_the_limit(data: st.DataObject) -> None:
    unusual_s = data.draw(st.floats(0.1, 100.0))
    acts_s = data.draw(st.floats(unusual_s, 10_000.0))
    final_s = data.draw(st.floats(acts_s, 20_000.0))
    state, at, count = Looks(), 0.0, 0
    while at < final_s:
        due_s = state.due_s(unusual_s=unusual_s, acts_s=acts_s, final_s=final_s)
        assert at < due_s <= final_s
        assert not at < acts_s < due_s, "nobody waits past the limit"
        at, count = due_s, count + 1
        told = replace(warned(0, 0, 0, Activity.SLEEPING), silent_s=at)
        state = state.dismissed(at) if data.draw(st.booleans()) else state.warned(told)
    assert count <= 20, "no torrent"


def everything_within(limit_s: float) -> HangPolicy:
    """One number from the user, for all that a rank may do."""
    span = Span(low_s=limit_s, high_s=limit_s)
    given = frozenset({"startup", "compile", "step", "checkpoint", "evaluation"})
    return HangPolicy(
        startup_s=limit_s, compile_s=limit_s, step=span, checkpoint=span, evaluation=span, given=given
    )


def test_a_rank_that_hangs_in_a_save_is_replaced_although_its_peer_waits_a_moment_shorter() -> None:
    job = Job(policy=everything_within(10.0)).begin().trains(20)
    job.say(1, WorkPhase.SAVING)
    assert job.passes(0.5) is None
    job.say(0, WorkPhase.COLLECTIVE)
    found = looked_at(job, 30.0)
    assert (found[-1].acts, found[-1].behind, found[-1].silent_s) == (True, (1,), 10.0)


def test_a_limit_that_one_of_two_has_reached_is_acted_on_once_the_other_has() -> None:
    job = Job(policy=everything_within(10.0)).begin().trains(20)
    job.say(1, WorkPhase.SAVING)
    assert job.passes(0.5) is None
    job.say(0, WorkPhase.SAVING)
    assert (looked_at(job, 30.0)[-1].acts, job.now_s) == (True, 5.0 + 0.5 + 10.0)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), ranks=st.integers(1, 3), limit_s=st.floats(1.0, 50.0))
def test_a_limit_of_the_user_is_never_missed_whoever_fell_silent_when_and_doing_what(
    data: st.DataObject, ranks: int, limit_s: float
) -> None:
    job = Job(ranks=ranks, policy=everything_within(limit_s)).begin().trains(10)
    for rank in range(ranks):
        job.say(rank, data.draw(PHASES), data.draw(st.sampled_from([None, 11])))
        if rank < ranks - 1:
            found = looked_at(job, data.draw(st.floats(0.0, 3.0)))
            if found and found[-1].acts:
                return
    silent_s = job.now_s
    assert looked_at(job, limit_s + 10.0)[-1].acts
    assert job.now_s <= silent_s + limit_s + 3 * job.look_s


@settings(max_examples=30, deadline=None)
@given(data=st.data(), ranks=st.integers(1, 3))
def test_nobody_is_replaced_for_a_pause_of_less_than_five_minutes_whatever_was_usual_before(
    data: st.DataObject, ranks: int
) -> None:
    job = Job(ranks=ranks, look_s=1.0).begin().trains(data.draw(st.integers(0, 10)))
    steps = 10
    for _ in range(data.draw(st.integers(1, 6))):
        until_s = job.now_s + data.draw(st.floats(0.0, AUTO_S - 2.0))
        job.stopped = data.draw(st.frozensets(st.integers(0, ranks - 1), max_size=1))
        while (found := job.passes(until_s - job.now_s)) is not None:
            assert not found.acts
            if data.draw(st.booleans()):
                job.watch = detector.dismissed(job.watch, found)
            else:
                stopped = found.behind[0] in job.stopped
                job.is_warned_of(found, Activity.STOPPED if stopped else Activity.SLEEPING)
        steps += 1
        for rank in range(ranks):
            job.say(rank, data.draw(PHASES), steps if data.draw(st.booleans()) else None)
