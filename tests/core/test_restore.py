"""Which replica restores which rank: worked examples, the reference's bugs, and what always holds."""

import json
import random
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.replica_groups import agree_on_groups, every_rank_its_own, pure_data_parallel
from faultrun.core.restore import (
    choose_suppliers,
    decide_restore,
    lost_ranks,
    recovery_info,
    restore_ranks,
    restore_ranks_map,
    restore_ranks_script,
)
from faultrun.model.checkpoint import RankFile
from faultrun.model.restore import (
    Alone,
    Declined,
    NodesByTable,
    NodesByWidth,
    ReplicaGroups,
    Restore,
    RestoreDecision,
)
from support.declined import why

PAIRS = ReplicaGroups(world_size=16, groups=tuple((rank, rank + 8) for rank in range(8)))


def everybody_at(*steps: int, world_size: int = 16) -> dict[int, dict[int, str]]:
    return {rank: {step: f"rank_{rank}/{step}" for step in steps} for rank in range(world_size)}


def chosen(decision: RestoreDecision) -> Restore:
    assert isinstance(decision, Restore), decision
    return decision


# --- the worked examples --------------------------------------------------------------------------


def test_faults_8_and_9_are_restored_from_the_first_node() -> None:
    decision = decide_restore(PAIRS, {8, 9}, everybody_at(100))
    assert restore_ranks(decision) == "0,1,2,3,4,5,6,7"
    assert restore_ranks_map(decision) == (
        '{"0,8": 0, "1,9": 1, "2,10": 2, "3,11": 3, "4,12": 4, "5,13": 5, "6,14": 6, "7,15": 7}'
    )
    assert chosen(decision).files[8] == RankFile(rank=8, path="rank_0/100", from_rank=0)


def test_the_loss_of_the_first_node_is_restored_from_the_second() -> None:
    decision = decide_restore(PAIRS, set(range(8)), everybody_at(100))
    assert restore_ranks(decision) == "8,9,10,11,12,13,14,15"
    assert json.loads(restore_ranks_map(decision))["7,15"] == 15


def test_a_group_that_lost_all_members_declines_with_its_name() -> None:
    decision = decide_restore(PAIRS, {3, 11}, everybody_at(100))
    assert why(decision) == "replica group {3,11} has no healthy member"
    assert restore_ranks(decision) == "-1"
    assert restore_ranks_map(decision) == ""


def test_fault_9_with_its_node_is_restored_from_the_other_node_only() -> None:
    decision = decide_restore(PAIRS, {9}, everybody_at(100), NodesByWidth(width=8))
    assert chosen(decision).lost == frozenset(range(8, 16))
    assert restore_ranks(decision) == "0,1,2,3,4,5,6,7"


# --- each bug of the reference --------------------------------------------------------------------


def reference_expansion(fault: int) -> set[int]:
    """The reference's arithmetic: ``1 * device + i`` where ``8 * device + i`` was meant."""
    return {1 * (fault // 8) + i for i in range(8)}


def test_node_expansion_takes_the_ranks_of_that_node_not_the_next_eight() -> None:
    assert reference_expansion(9) == set(range(1, 9))
    assert lost_ranks({9}, NodesByWidth(width=8), 16) == frozenset(range(8, 16))
    reference = decide_restore(PAIRS, reference_expansion(9), everybody_at(100))
    assert restore_ranks(reference) == "0,9,10,11,12,13,14,15", "seven of these sit on the dead node"


def test_nodes_of_other_widths_and_a_short_last_node_are_expanded_right() -> None:
    assert lost_ranks({5}, NodesByWidth(width=4), 16) == frozenset(range(4, 8))
    assert lost_ranks({9}, NodesByWidth(width=8), 12) == frozenset(range(8, 12))


def test_the_rank_table_says_who_shares_a_node() -> None:
    table = NodesByTable(node_of={0: "a", 1: "b", 2: "a", 3: "b"})
    assert lost_ranks({2}, table, 4) == frozenset({0, 2})
    assert why(lost_ranks({3}, NodesByTable(node_of={0: "a"}), 4)) == "fault rank 3 is not in the rank table"


def test_rank_1_is_not_taken_for_a_member_of_the_group_10_18() -> None:
    groups = ReplicaGroups(
        world_size=20,
        groups=(
            (0,),
            (1,),
            *((rank, rank + 9) for rank in range(2, 11)),
        ),
    )
    available = everybody_at(5, world_size=20)
    decision = decide_restore(groups, {19}, available)
    text = restore_ranks_map(decision)
    by_substring = [key for key in json.loads(text) if "1" in key]
    by_member = [key for key in json.loads(text) if "1" in key.split(",")]
    assert len(by_substring) > 1, "the reference's test `str(rank) in key` would match all of these"
    assert by_member == ["1"]
    assert chosen(decision).files[1] == RankFile(rank=1, path="rank_1/5", from_rank=1)


def test_the_output_is_in_numeric_order_whatever_the_order_of_the_input() -> None:
    ranks = list(range(16))
    random.Random(7).shuffle(ranks)
    available = {rank: {step: f"rank_{rank}/{step}" for step in (2, 1)} for rank in ranks}
    decision = decide_restore(PAIRS, [9, 8], available)
    assert restore_ranks(decision) == "0,1,2,3,4,5,6,7"
    assert list(json.loads(restore_ranks_map(decision))) == [f"{rank},{rank + 8}" for rank in range(8)]


def test_a_hopeless_group_never_leaves_minus_1_among_good_ranks() -> None:
    decision = decide_restore(PAIRS, {3, 11, 0}, everybody_at(100))
    assert restore_ranks(decision) == "-1"
    assert restore_ranks_script(decision) == "export RESTORE_RANKS=-1\n"


def test_a_group_without_a_file_at_the_step_of_the_others_does_not_mix_steps() -> None:
    available = everybody_at(100)
    available[0] = available[8] = {100: "rank_0/100", 120: "rank_0/120"}
    assert chosen(decide_restore(PAIRS, {9}, available)).global_step == 100


# --- the rule -------------------------------------------------------------------------------------


def test_the_common_step_is_the_largest_that_every_group_has_on_some_healthy_member() -> None:
    available = everybody_at(10)
    for rank in range(8):
        available[rank if rank % 2 else rank + 8][20] = f"rank_x/{rank}/20"
    decision = chosen(decide_restore(PAIRS, {15}, available))
    assert decision.global_step == 20
    assert restore_ranks(decision) == "1,3,5,7,8,10,12,14"


def test_a_replica_without_a_whole_file_is_passed_over_for_the_next() -> None:
    groups = pure_data_parallel(4)
    decision = chosen(decide_restore(groups, {0}, {2: {7: "c"}, 3: {7: "d"}}))
    assert decision.suppliers[0].holders == (2, 3)
    assert {file.path for file in decision.files} == {"c"}
    assert restore_ranks_map(decision) == '{"0,1,2,3": 2}'


def test_the_files_of_a_lost_rank_are_not_used_even_if_they_are_newer() -> None:
    decision = decide_restore(pure_data_parallel(2), {1}, {0: {5: "a"}, 1: {6: "b"}})
    assert chosen(decision).global_step == 5


def test_without_a_fault_there_is_nothing_to_restore_but_suppliers_can_be_asked_for() -> None:
    assert why(decide_restore(PAIRS, (), everybody_at(3))) == "no fault ranks"
    assert chosen(choose_suppliers(PAIRS, (), everybody_at(3))).files[9].from_rank == 1


def test_groups_without_a_common_step_decline_and_say_how_far_they_are_apart() -> None:
    decision = decide_restore(every_rank_its_own(3), {2}, {0: {5: "a"}, 1: {6: "b"}})
    assert why(decision) == "replica group {2} has no healthy member"
    apart = choose_suppliers(every_rank_its_own(2), (), {0: {5: "a"}, 1: {6: "b"}})
    assert "newest of {0} is 5, of {1} 6" in why(apart)


def test_a_group_without_any_whole_file_is_named() -> None:
    assert (
        why(decide_restore(PAIRS, {8}, {})) == "replica group {0,8} has no whole checkpoint on a healthy rank"
    )


@pytest.mark.parametrize("fault", [-1, 16, 4096])
def test_a_fault_rank_outside_the_world_declines(fault: int) -> None:
    assert why(decide_restore(PAIRS, {fault}, everybody_at(1))).startswith(f"fault rank {fault} is outside")


# --- the texts ------------------------------------------------------------------------------------


def test_the_script_can_be_sourced_by_a_shell() -> None:
    decision = decide_restore(
        ReplicaGroups(world_size=4, groups=((0, 2), (1, 3))), {2}, everybody_at(9, world_size=4)
    )
    assert restore_ranks_script(decision) == (
        'export RESTORE_RANKS=0,1\nexport RESTORE_RANKS_MAP=\'{"0,2": 0, "1,3": 1}\'\n'
    )
    assert shlex.split(restore_ranks_script(decision))[-1] == 'RESTORE_RANKS_MAP={"0,2": 0, "1,3": 1}'


def test_recovery_info_gives_each_lost_rank_its_own_replacement_from_its_group() -> None:
    groups = ReplicaGroups(world_size=6, groups=((0, 2, 4), (1, 3, 5)))
    text = recovery_info(decide_restore(groups, {0, 3}, everybody_at(9, world_size=6)))
    assert text == '{"normal_rank": {"1": 3, "2": 0}, "abnormal_rank": {"0": 2, "3": 1}}'


def test_recovery_info_never_uses_a_replacement_twice() -> None:
    decision = decide_restore(pure_data_parallel(3), {0, 1}, everybody_at(9, world_size=3))
    assert chosen(decision).global_step == 9
    assert (
        why(recovery_info(decision))
        == "replica group {0,1,2} lost 2 ranks and has 1 to replace them one by one"
    )
    assert why(recovery_info(Declined(why="no"))) == "no"


# --- properties -----------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> tuple[ReplicaGroups, set[int], dict[int, dict[int, str]]]:
    world_size = draw(st.integers(1, 12))
    labels = draw(st.lists(st.integers(0, 3), min_size=world_size, max_size=world_size))
    members: dict[int, list[int]] = {}
    for rank, label in enumerate(labels):
        members.setdefault(label, []).append(rank)
    groups = ReplicaGroups(
        world_size=world_size, groups=tuple(sorted(tuple(group) for group in members.values()))
    )
    faults = draw(st.sets(st.integers(0, world_size - 1), min_size=1, max_size=3))
    steps = draw(st.lists(st.sets(st.integers(0, 4), max_size=4), min_size=world_size, max_size=world_size))
    available = {rank: {step: f"{rank}@{step}" for step in held} for rank, held in enumerate(steps)}
    return groups, faults, available


@given(worlds())
@settings(max_examples=150, deadline=None)
def test_every_source_is_healthy_in_the_same_group_and_at_the_newest_common_step(
    world: tuple[ReplicaGroups, set[int], dict[int, dict[int, str]]],
) -> None:
    groups, faults, available = world
    decision = decide_restore(groups, faults, available)
    supplied = [
        {step for rank in group if rank not in faults for step in available[rank]} for group in groups.groups
    ]
    common = set.intersection(*supplied)
    if not common:
        assert isinstance(decision, Declined)
        return
    restore = chosen(decision)
    assert restore.global_step == max(common)
    assert [file.rank for file in restore.files] == list(range(groups.world_size))
    for file in restore.files:
        assert file.from_rank is not None
        assert file.from_rank not in faults
        assert file.from_rank in groups.by_rank[file.rank]
        assert file.path == f"{file.from_rank}@{restore.global_step}"
    for key, source in json.loads(restore_ranks_map(decision)).items():
        assert str(source) in key.split(",")
    assert restore_ranks(decision).split(",") == [
        str(rank) for rank in sorted({file.from_rank for file in restore.files if file.from_rank is not None})
    ]


@given(worlds(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_of_the_input_changes_nothing(
    world: tuple[ReplicaGroups, set[int], dict[int, dict[int, str]]], chance: random.Random
) -> None:
    groups, faults, available = world
    shuffled = {
        rank: dict(chance.sample(list(available[rank].items()), len(available[rank])))
        for rank in chance.sample(sorted(available), len(available))
    }
    first = decide_restore(groups, sorted(faults), available)
    second = decide_restore(groups, chance.sample(sorted(faults), len(faults)), shuffled)
    assert first == second
    assert restore_ranks_map(first) == restore_ranks_map(second)
    assert recovery_info(first) == recovery_info(second)


@given(worlds())
@settings(max_examples=100, deadline=None)
def test_groups_are_agreed_on_from_any_one_member_of_each(
    world: tuple[ReplicaGroups, set[int], dict[int, dict[int, str]]],
) -> None:
    groups, faults, _ = world
    lists = {rank: group for rank, group in groups.by_rank.items() if rank not in faults}
    agreed = agree_on_groups(lists, groups.world_size)
    if all(set(group) - faults for group in groups.groups):
        assert agreed == groups
    else:
        assert isinstance(agreed, Declined)


@given(st.sets(st.integers(0, 40), min_size=1, max_size=4), st.integers(1, 9), st.integers(41, 50))
def test_expansion_by_width_equals_expansion_by_a_table_of_that_width(
    faults: set[int], width: int, world_size: int
) -> None:
    table = NodesByTable(node_of={rank: f"node-{rank // width}" for rank in range(world_size)})
    by_width = lost_ranks(faults, NodesByWidth(width=width), world_size)
    assert by_width == lost_ranks(faults, table, world_size)
    assert isinstance(by_width, frozenset)
    assert faults <= by_width
    assert lost_ranks(faults, Alone(), world_size) == frozenset(faults)
