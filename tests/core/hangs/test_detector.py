"""When silence is a hang, and when it is not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.hangs import detector
from faultrun.core.hangs.limits import STOPPED_S, limit
from faultrun.model.observed.hang import HangPolicy, Span
from faultrun.model.observed.progress import WorkPhase
from support.stories.silent_job import LOOK_S, Job

GIVEN = frozenset({"step"})


def test_a_silence_of_many_steps_is_suspected_and_one_of_a_few_is_not() -> None:
    job = Job().begin().trains(20)
    assert job.passes(20 * 0.25 - LOOK_S) is None
    found = job.suspects(1.0)
    assert found.usual_s == 0.25
    assert found.limit_s == 5.0


def test_the_factor_and_the_bounds_are_the_users() -> None:
    policy = HangPolicy(factor=4.0, step=Span(low_s=2.0, high_s=30.0))
    job = Job(policy=policy).begin().trains(20)
    assert job.suspects(10.0).limit_s == 2.0


def test_a_given_limit_is_taken_as_it_is() -> None:
    job = Job(policy=HangPolicy(step=Span(low_s=3.0, high_s=3.0), given=GIVEN)).begin().trains(2)
    found = job.suspects(10.0)
    assert (found.limit_s, found.usual_s, found.final) == (3.0, None, True)


@pytest.mark.long
def test_a_slow_first_step_is_compilation() -> None:
    job = Job(policy=HangPolicy(compile_s=600.0)).begin()
    assert job.passes(599.0) is None
    assert job.suspects(2.0).limit_s == 600.0


def test_steps_that_become_five_times_slower_are_steps() -> None:
    job = Job().begin().trains(20)
    job.trains(20, pace_s=1.25, first=21)


def test_one_long_step_teaches_that_there_are_long_steps() -> None:
    job = Job().begin().trains(20)
    assert job.passes(4.5) is None
    job.step(to=21)
    job.trains(5, first=22)
    assert job.passes(3 * 4.0) is None


def test_the_one_that_has_done_fewer_steps_is_behind() -> None:
    job = Job(ranks=3).begin().trains(10)
    job.step(0, 2, to=11)
    found = job.suspects(30.0)
    assert found.front == found.behind == (1,)


def test_within_a_step_those_that_wait_in_a_collective_are_ahead() -> None:
    job = Job(ranks=3).begin().trains(10)
    job.say(0, WorkPhase.COLLECTIVE)
    job.say(2, WorkPhase.COLLECTIVE)
    found = job.suspects(30.0)
    assert (found.front, found.behind) == ((0, 1, 2), (1,))


def test_an_evaluation_of_one_rank_is_waited_for_by_the_others() -> None:
    job = Job(policy=HangPolicy(evaluation=Span(low_s=60.0, high_s=300.0))).begin().trains(20)
    job.say(0, WorkPhase.EVALUATING)
    job.say(1, WorkPhase.COLLECTIVE)
    assert job.passes(299.0) is None
    found = job.suspects(2.0)
    assert (found.behind, found.limit_s) == ((0,), 300.0)


@pytest.mark.long
def test_a_rank_that_is_done_hides_nobody_and_has_the_longest_limit_to_end() -> None:
    job = Job(ranks=3).begin().trains(10)
    job.say(0, WorkPhase.DONE)
    job.step(1, 2, to=11)
    found = job.suspects(30.0)
    assert found.front == (1, 2)
    for rank in range(3):
        job.say(rank, WorkPhase.DONE)
    assert job.passes(3599.0) is None
    found = job.suspects(2.0)
    assert (found.limit_s, found.usual_s) == (3600.0, None)


def test_a_rank_that_was_stopped_while_it_ended_is_suspected_like_any_other() -> None:
    job = Job().begin().trains(10)
    job.say(0, WorkPhase.DONE)
    job.say(1, WorkPhase.DONE)
    job.stopped = frozenset({1})
    assert job.suspects(11.0).behind == (1,)


def test_the_length_of_a_checkpoint_is_learnt() -> None:
    job = Job(ranks=1, policy=HangPolicy(checkpoint=Span(low_s=10.0, high_s=300.0))).begin().trains(10)
    job.say(0, WorkPhase.SAVING)
    assert job.passes(2.0) is None
    job.trains(5, first=11)
    job.say(0, WorkPhase.SAVING)
    found = job.suspects(300.0)
    assert 39.0 <= found.limit_s <= 45.0


def test_time_in_which_the_observer_was_frozen_is_not_silence() -> None:
    job = Job().begin().trains(20)
    for _ in range(10):
        job.now_s += 3600.0
        assert job.passes(LOOK_S) is None


def test_a_rank_that_works_elsewhere_for_ever_does_not_hide_one_that_hangs() -> None:
    job = Job().begin().trains(20)
    found = None
    for number in range(21, 100):
        found = job.passes(0.25)
        if found is not None:
            break
        job.step(0, to=number)
    assert found is not None
    assert found.behind == (1,)


def test_a_rank_that_never_spoke_is_suspected_only_when_all_others_are_silent() -> None:
    job = Job(policy=HangPolicy(startup_s=10.0))
    assert job.passes(100.0) is None
    job.say(0, WorkPhase.COMPUTING)
    for number in range(1, 20):
        assert job.passes(1.0) is None
        job.step(0, to=number)
    assert job.suspects(100.0).behind == (1,)


def test_a_script_that_is_said_to_speak_and_does_not_is_suspected() -> None:
    job = Job(policy=HangPolicy(startup_s=10.0, speaks=True))
    assert job.passes(9.0) is None
    assert job.suspects(2.0).behind == (0, 1)


def test_a_stopped_process_is_suspected_whatever_its_phase_may_take() -> None:
    job = Job(ranks=3).begin()
    job.stopped = frozenset({1})
    assert job.suspects(STOPPED_S + 1.0).behind == (1,)


def test_patience_grows_while_somebody_is_found_at_work_and_ends_with_a_step() -> None:
    job = Job(policy=HangPolicy(step=Span(low_s=1.0, high_s=60.0), given=GIVEN)).begin().trains(20)
    looked = []
    for _ in range(5):
        found = job.suspects(61.0)
        looked.append((found.silent_s, found.final))
        job.watch = detector.dismissed(job.watch, found)
    assert looked == [(5.0, False), (10.0, False), (20.0, False), (40.0, False), (60.0, True)]
    job.step(to=21)
    found = job.suspects(100.0)
    assert (found.silent_s, found.final) == (60.0, True)


def test_time_without_a_processor_is_no_silence() -> None:
    job = Job().begin().trains(20)
    first = job.suspects(6.0)
    began_s = job.now_s
    job.watch = detector.dismissed(job.watch, first, excused_s=2.0)
    again = job.suspects(6.0)
    assert (again.limit_s, again.silent_s) == (first.limit_s, first.silent_s)
    assert job.now_s - began_s == 2.0


PHASES = st.sampled_from(WorkPhase)
SPAN = Span(low_s=1.0, high_s=4.0)
STRICT = HangPolicy(startup_s=4.0, compile_s=4.0, step=SPAN, checkpoint=SPAN, evaluation=SPAN)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), ranks=st.integers(1, 4))
def test_nothing_is_suspected_while_every_rank_says_something_within_the_shortest_limit(
    data: st.DataObject, ranks: int
) -> None:
    job = Job(ranks=ranks, policy=STRICT).begin()
    steps = dict.fromkeys(range(ranks), 0)
    for _ in range(data.draw(st.integers(1, 15))):
        assert job.passes(data.draw(st.floats(0.0, SPAN.low_s - 2 * LOOK_S))) is None
        for rank in range(ranks):
            if data.draw(st.booleans()):
                steps[rank] += 1
                job.step(rank, to=steps[rank])
            else:
                job.say(rank, data.draw(PHASES))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), ranks=st.integers(1, 4))
def test_whoever_is_suspected_has_done_the_fewest_steps_or_is_stopped_and_has_been_silent(
    data: st.DataObject, ranks: int
) -> None:
    job = Job(ranks=ranks, policy=STRICT)
    steps = dict.fromkeys(range(ranks), 0)
    for _ in range(data.draw(st.integers(1, 12))):
        job.stopped = data.draw(st.frozensets(st.integers(0, ranks - 1), max_size=1))
        found = job.passes(data.draw(st.floats(0.0, 6.0)))
        if found is not None:
            # A rank that is done waits for nobody and keeps nobody waiting, however few steps it did.
            training = [
                beat for beat in job.beats.values() if beat.begun and beat.phase is not WorkPhase.DONE
            ]
            for beat in (job.beats[rank] for rank in found.behind):
                assert not beat.begun or all(beat.step <= other.step for other in training)
            assert set(found.behind) <= set(found.front)
            assert found.silent_s >= found.limit_s - 1e-3
            return
        for rank in range(ranks):
            match data.draw(st.sampled_from(["step", "say", "nothing"])):
                case "step":
                    steps[rank] += 1
                    job.step(rank, to=steps[rank])
                case "say":
                    job.say(rank, data.draw(PHASES))


@settings(deadline=None)
@given(data=st.data(), ranks=st.integers(1, 4), gaps=st.lists(st.floats(10.0, 1e6), max_size=20))
def test_gaps_between_looks_never_make_a_hang(data: st.DataObject, ranks: int, gaps: list[float]) -> None:
    job = Job(ranks=ranks).begin().trains(8)
    limit_s = min(limit(job.watch, one) for one in job.watch.seen)
    for gap in gaps[: int(limit_s / (2 * LOOK_S)) - 1]:
        job.now_s += gap
        job.watch = detector.observe(job.watch, job.beats.values(), job.now_s, LOOK_S)
        assert detector.suspect(job.watch) is None
