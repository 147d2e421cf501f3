"""Who leaves a world and who comes back, and whose state each rank goes on with."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from faultrun.core.placement.resize import (
    Inseparable,
    groups_in,
    resized,
    seats_without,
    slots_of,
    takes_from,
    who_leaves,
)
from faultrun.model.checkpoint import RankFile
from faultrun.model.observed.elastic import SetAside
from faultrun.model.topology import NodeId, NodeSlots, Topology
from support.stories.story import checkpoint

A, B = NodeId("a"), NodeId("b")
FOUR = Topology(nodes=(NodeSlots(node=A, slots=4),))


def aside(*slots: int, node: NodeId = A) -> list[SetAside]:
    return [SetAside(node=node, slot=slot, incarnation=1, why="it failed") for slot in slots]


def test_ranks_close_up_and_slots_keep_their_number_and_order() -> None:
    seats = seats_without(FOUR, aside(1))
    assert seats.nodes == (NodeSlots(node=A, slots=3, places=(0, 2, 3)),)
    assert [seats.nodes[0].place_of(rank) for rank in seats.ranks_of(A)] == [0, 2, 3]
    assert seats_without(FOUR, []) == FOUR


def test_a_node_whose_slots_are_all_set_aside_takes_no_part() -> None:
    two = Topology(nodes=(NodeSlots(node=A, slots=1), NodeSlots(node=B, slots=2)))
    assert seats_without(two, aside(0)).nodes == (NodeSlots(node=B, slots=2),)


def test_where_all_hold_the_same_only_the_bad_rank_leaves() -> None:
    assert who_leaves([frozenset(range(4))], {1}) == frozenset({1})
    assert who_leaves([frozenset({0})], {0}) == Inseparable(why="no rank would be left")


def test_of_a_hybrid_plan_a_whole_copy_leaves_and_never_the_last() -> None:
    assert who_leaves([frozenset({0, 2}), frozenset({1, 3})], {1}) == frozenset({0, 1})
    assert who_leaves([frozenset({0, 2}), frozenset({1, 3})], {1, 2}) == Inseparable(
        why="no other rank has a copy"
    )
    assert who_leaves([frozenset({0}), frozenset({1})], {1}) == Inseparable(
        why="no other rank has the state of rank 1"
    )
    uneven = who_leaves([frozenset({0, 1, 2}), frozenset({3})], {1})
    assert isinstance(uneven, Inseparable)
    assert uneven.why == "its replica groups have 1 to 3 ranks, so its copies cannot be told apart"


@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_every_group_keeps_a_rank_and_all_as_many(parts: int, copies: int, data: st.DataObject) -> None:
    ranks = data.draw(st.permutations(range(parts * copies)))
    groups = [frozenset(ranks[part * copies : (part + 1) * copies]) for part in range(parts)]
    bad = data.draw(st.sets(st.sampled_from(ranks), min_size=1, max_size=3))
    leaving = who_leaves(groups, bad)
    if isinstance(leaving, Inseparable):
        assert all(len(group) <= len(bad) for group in groups)
        return
    assert bad <= leaving
    assert len({len(group - leaving) for group in groups}) == 1
    assert all(group - leaving for group in groups)


def test_each_rank_of_the_smaller_world_loads_what_its_slot_would_have_loaded() -> None:
    files = tuple(RankFile(rank=rank, path=f"part{rank % 2}", from_rank=rank % 2) for rank in range(4))
    point = replace(checkpoint(7), files=files, restore_ranks_map='{"0,2": 0, "1,3": 1}')
    assert groups_in(point, 4) == (frozenset({0, 2}), frozenset({1, 3}))
    fewer = resized(point, [2, 3])
    assert fewer is not None
    assert [file.path for file in fewer.files] == ["part0", "part1"]
    assert (fewer.restore_ranks, fewer.restore_ranks_map) == ("0,1", '{"0": 0, "1": 1}')
    small, one_copy = seats_without(FOUR, aside(0, 1)), [frozenset({0, 2}), frozenset({1, 3})]
    takes = takes_from(small, FOUR, FOUR, one_copy)
    assert takes == [0, 1, 0, 1]
    more = resized(fewer, takes)
    assert more is not None
    assert [file.path for file in more.files] == ["part0", "part1", "part0", "part1"]
    assert more.restore_ranks_map == '{"0,2": 0, "1,3": 1}'


@given(st.integers(1, 6), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)))
def test_a_rank_of_both_worlds_keeps_its_state(size: int, before_out: set[int], after_out: set[int]) -> None:
    whole = Topology(nodes=(NodeSlots(node=A, slots=size),))
    before, after = (
        seats_without(whole, aside(*(slot for slot in out if slot != 0))) for out in (before_out, after_out)
    )
    takes = takes_from(before, after, whole, [])
    assert len(takes) == after.world_size
    for slot, old in zip(slots_of(after), takes, strict=True):
        assert slots_of(before)[old] == slot or slot not in slots_of(before)


def test_a_point_for_all_stays_one_for_all() -> None:
    point = resized(checkpoint(7, "net"), [0, 2, 3])
    assert point is not None
    assert [(file.rank, file.path) for file in point.files] == [(0, "net"), (1, "net"), (2, "net")]
    assert point.restore_ranks_map == '{"0,1,2": 0}'
    assert resized(None, [0]) is None
