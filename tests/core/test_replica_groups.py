"""Who holds a copy of whose state: group_info lists that agree, that do not, and of the dead."""

import pytest

from faultrun.core.replica_groups import agree_on_groups, every_rank_its_own
from faultrun.model.restore import (
    ReplicaGroups,
)
from support.declined import why


def test_a_dead_rank_takes_the_group_its_peers_give_it() -> None:
    assert agree_on_groups({0: [2, 0], 1: [1, 3], 3: [3, 1]}, 4) == ReplicaGroups(
        world_size=4, groups=((0, 2), (1, 3))
    )


def test_the_stale_list_of_a_dead_rank_does_not_overrule_its_living_peers() -> None:
    lists = {0: [0, 2], 1: [1, 3], 2: [2], 3: [1, 3]}
    assert "contradict" in why(agree_on_groups(lists, 4))
    agreed = agree_on_groups(lists, 4, distrusted=frozenset({2}))
    assert agreed == ReplicaGroups(world_size=4, groups=((0, 2), (1, 3)))


def test_a_dead_rank_that_no_peer_names_is_believed_about_itself() -> None:
    agreed = agree_on_groups({0: [0], 1: [1]}, 2, distrusted=frozenset({1}))
    assert agreed == every_rank_its_own(2)


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
def test_lists_that_do_not_fit_this_world_or_each_other_are_refused(
    lists: dict[int, list[int]], reason: str
) -> None:
    assert reason in why(agree_on_groups(lists, 3))


def test_replica_groups_must_cover_every_rank_once() -> None:
    for groups in [((0, 1), (1, 2)), ((0,), (2,)), ((1,), (0,), (2,)), ((1, 0), (2,))]:
        with pytest.raises(ValueError, match="groups"):
            ReplicaGroups(world_size=3, groups=groups)
