"""Whether ranks worked while their supervisor stood still, by what they had done before and behind it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.hangs.standstill import Tally, of_late, worked


def before(a_second: float, *, began_s: float = 100.0, seconds: int = 10) -> tuple[Tally, ...]:
    """Rank 0 works, rank 1 waits for it."""
    tallies: tuple[Tally, ...] = ()
    for second in range(seconds * 4):
        at_s = began_s + second / 4
        tallies = of_late(tallies, Tally(at_s=at_s, done={0: (7.0, a_second * at_s), 1: (7.0, 0.0)}))
    return tallies


@given(a_second=st.floats(0.01, 1e6), stood_s=st.floats(5.0, 3600.0), awake_s=st.floats(0.0, 2.0))
def test_a_rank_that_did_as_much_as_ever_has_worked_and_one_that_stood_has_not(
    a_second: float, stood_s: float, awake_s: float
) -> None:
    tallies = before(a_second)
    now_s = tallies[-1].at_s + awake_s + stood_s
    for did_s, has_worked in ((awake_s + stood_s, True), (awake_s, False)):
        now = Tally(at_s=now_s, done={0: (7.0, tallies[-1].done[0][1] + a_second * did_s), 1: (7.0, 0.0)})
        assert worked(tallies, now, stood_s) is has_worked


@pytest.mark.parametrize("tallies", [(), before(1.0, seconds=1)[:1]])
def test_of_ranks_that_were_not_seen_at_work_none_is_said_to_have_stood(tallies: tuple[Tally, ...]) -> None:
    assert worked(tallies, Tally(at_s=200.0, done={0: (9.0, 1e9)}), 60.0)


def test_only_what_was_done_of_late_is_kept() -> None:
    assert [one.at_s for one in before(1.0, seconds=60)] == [149.0 + second for second in range(11)]
