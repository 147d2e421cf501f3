"""How many restarts are too many."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.plan.restart_budget import Allowed, Spent, backoff_s, charge, furthest, progressed
from faultrun.model.plan import Ledger
from faultrun.model.spec.run_spec import RestartPolicy
from support.stories.story import checkpoint

POLICY = RestartPolicy(max_restarts=3, window_s=100, backoff_min_s=1, backoff_max_s=8)


def charged(ledger: Ledger, now_s: float, high_step: int = -1) -> Ledger:
    answer = charge(ledger, POLICY, now_s=now_s, high_step=high_step)
    assert isinstance(answer, Allowed), answer
    return answer.ledger


def test_three_of_three_are_allowed_and_the_fourth_is_not() -> None:
    ledger = Ledger()
    for at_s in (0, 1, 2):
        ledger = charged(ledger, at_s)
    assert charge(ledger, POLICY, now_s=3, high_step=-1) == Spent(
        why="3 of 3 restarts within 1 min 40 s are used up"
    )


def test_what_is_older_than_the_window_does_not_count() -> None:
    ledger = charged(charged(charged(Ledger(), 0), 50), 60)
    assert isinstance(charge(ledger, POLICY, now_s=99.9, high_step=-1), Spent)
    answer = charge(ledger, POLICY, now_s=100, high_step=-1)
    assert isinstance(answer, Allowed)
    assert answer.number == 3


def test_progress_gives_back_what_was_spent() -> None:
    ledger = charged(charged(charged(Ledger(), 0, 10), 1, 10), 2, 10)
    assert isinstance(charge(ledger, POLICY, now_s=3, high_step=10), Spent)
    answer = charge(ledger, POLICY, now_s=3, high_step=11)
    assert isinstance(answer, Allowed)
    assert (answer.number, answer.backoff_s, answer.ledger.total_restarts) == (1, 0.0, 4)
    assert [restart.at_s for restart in answer.ledger.restarts] == [3]


def test_each_count_that_a_save_tells_is_progress_of_its_own() -> None:
    ledger = furthest(Ledger(), 10, replace(checkpoint(500), epoch=2, step_in_epoch=7))
    only_epoch = replace(checkpoint(0), global_step=None, epoch=3, step_in_epoch=None)
    assert progressed(ledger, 10, only_epoch)
    assert progressed(ledger, 10, replace(checkpoint(400), epoch=2, step_in_epoch=8))
    assert not progressed(ledger, 10, replace(checkpoint(500), epoch=2, step_in_epoch=7))
    assert not progressed(furthest(ledger, 10, only_epoch), 10, only_epoch)
    assert not progressed(ledger, 10, replace(only_epoch, epoch=None)), "it tells nothing"


def test_the_reason_says_what_was_not_passed() -> None:
    ledger = charged(charged(charged(Ledger(), 0, 10), 1, 10), 2, 10)
    answer = charge(ledger, POLICY, now_s=3, high_step=10)
    assert answer == Spent(why="3 of 3 restarts within 1 min 40 s are used up without progress past step 10")


def test_no_restart_means_none_not_even_after_progress() -> None:
    none = RestartPolicy(max_restarts=0)
    assert charge(Ledger(), none, now_s=0, high_step=99) == Spent(
        why="restarts are turned off (--max_restarts=0)"
    )


def test_the_first_restart_waits_for_nothing_and_the_others_ever_longer_up_to_the_cap() -> None:
    assert backoff_s(0, POLICY, 12.3) == 0
    for failed, ceiling in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (5000, 8)]:
        assert ceiling / 2 <= backoff_s(failed, POLICY, 12.34567) <= ceiling


def test_waits_differ_between_moments_that_are_close() -> None:
    assert len({backoff_s(4, POLICY, 7 + n * 1e-5) for n in range(10)}) > 5


@given(st.lists(st.tuples(st.floats(0, 60), st.integers(-1, 3)), max_size=30))
def test_no_window_without_progress_ever_holds_more_than_allowed(faults: list[tuple[float, int]]) -> None:
    ledger, now_s, step, allowed = Ledger(), 0.0, -1, []
    for later_s, further in faults:
        now_s, step = now_s + later_s, max(step, further)
        answer = charge(ledger, POLICY, now_s=now_s, high_step=step)
        if isinstance(answer, Allowed):
            ledger = answer.ledger
            allowed.append((now_s, step))
            fruitless = [at for at, reached in allowed if now_s - at < POLICY.window_s and reached == step]
            assert len(fruitless) <= POLICY.max_restarts


@pytest.mark.parametrize("high_step", [-1, 0, 7])
def test_the_ledger_remembers_how_far_training_had_come(high_step: int) -> None:
    assert charged(Ledger(), 0, high_step).high_step == high_step
    assert charged(Ledger(high_step=9), 0, high_step).high_step == 9
