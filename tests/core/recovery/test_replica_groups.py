"""Who holds a copy of whose state: group_info lists that agree, that do not, and of the dead."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.recovery.replica_groups import Disagreement, agree_on_groups

PAIRS = (frozenset({0, 2}), frozenset({1, 3}))


def test_a_dead_rank_takes_the_group_its_peers_give_it() -> None:
    assert agree_on_groups({0: [2, 0], 1: [1, 3], 3: [3, 1]}, 4) == PAIRS


def test_the_stale_list_of_a_dead_rank_does_not_overrule_its_living_peers() -> None:
    lists = {0: [0, 2], 1: [1, 3], 2: [2], 3: [1, 3]}
    against = agree_on_groups(lists, 4)
    assert isinstance(against, Disagreement)
    assert "contradict" in against.why
    assert agree_on_groups(lists, 4, distrusted=frozenset({2})) == PAIRS


def test_a_dead_rank_that_no_peer_names_is_believed_about_itself() -> None:
    agreed = agree_on_groups({0: [0], 1: [1]}, 2, distrusted=frozenset({1}))
    assert agreed == (frozenset({0}), frozenset({1}))


@pytest.mark.parametrize(
    ("lists", "reason"),
    [
        ({0: [0, 1], 1: [1]}, "rank 1 says {1}, but rank 1 is also in {0,1}"),
        ({0: [0, 1], 1: [1, 2], 2: [1, 2]}, "contradict each other"),
        ({0: [0, 16], 1: [1], 2: [2]}, "the list of rank 0 names rank 16, but the world has 3 ranks"),
        ({0: [0], 1: [2], 2: [2]}, "the list of rank 1 does not name rank 1 itself"),
        ({0: [0, 1], 1: [0, 1]}, "rank 2 is in no group_info list"),
        ({0: [0], 1: [1], 2: [2], 3: [3]}, "there is a group_info list of rank 3, but the world has 3 ranks"),
    ],
)
def test_lists_that_do_not_fit_are_refused(lists: dict[int, list[int]], reason: str) -> None:
    against = agree_on_groups(lists, 3)
    assert isinstance(against, Disagreement)
    assert reason in against.why


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12), st.sets(st.integers(0, 11), min_size=1, max_size=3)
)
@settings(max_examples=100, deadline=None)
def test_groups_are_agreed_on_from_any_one_member_of_each(labels: list[int], silent: set[int]) -> None:
    groups = {frozenset(rank for rank, other in enumerate(labels) if other == label) for label in set(labels)}
    lists = {rank: group for group in groups for rank in group - silent}
    agreed = agree_on_groups(lists, len(labels))
    if all(group - silent for group in groups):
        assert agreed == tuple(sorted(groups, key=min))
    else:
        assert isinstance(agreed, Disagreement)
