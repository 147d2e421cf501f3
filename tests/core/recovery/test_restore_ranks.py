"""Which rank's file restores which rank, in the words that trainers read, and what always holds."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.core.recovery.choose import Choice, Chosen, choose
from faultrun.core.recovery.need import Doubt, Need, World
from faultrun.core.recovery.replica_groups import Group
from faultrun.model.checkpoint import Depth, RankFile, RecoveryPoint, Verdict
from support.checkpoints.entries import candidate

PAIRS = tuple(frozenset({rank, rank + 8}) for rank in range(8))


def decision(groups: tuple[Group, ...], lost: set[int], held: dict[int, set[int]]) -> Choice:
    """The choice once every file is known to be whole; ``held`` are the steps of each rank."""
    files = [
        candidate(f"rank_{rank}/{step}", step, rank=rank)
        for rank, steps in held.items()
        for step in sorted(steps)
    ]
    whole = Verdict(whole=True, why="all there", depth=Depth.CHECKSUM)
    world_size = sum(map(len, groups))
    need = Need(world=World(size=world_size, groups=groups), doubt=Doubt(lost_ranks=frozenset(lost)))
    return choose(files, {file.path: whole for file in files}, need)


def point_of(choice: Choice) -> RecoveryPoint:
    assert isinstance(choice, Chosen), choice
    return choice.point


def test_the_loss_of_one_node_is_restored_from_the_other() -> None:
    everybody = {rank: {100} for rank in range(16)}
    second = point_of(decision(PAIRS, set(range(8)), everybody))
    assert second.restore_ranks == "8,9,10,11,12,13,14,15"
    assert json.loads(second.restore_ranks_map)["7,15"] == 15
    first = point_of(decision(PAIRS, {8, 9}, everybody))
    assert first.restore_ranks == "0,1,2,3,4,5,6,7"
    assert first.restore_ranks_map == (
        '{"0,8": 0, "1,9": 1, "2,10": 2, "3,11": 3, "4,12": 4, "5,13": 5, "6,14": 6, "7,15": 7}'
    )
    assert first.files[8] == RankFile(rank=8, path="rank_0/100", from_rank=0)


def test_rank_1_is_not_taken_for_a_member_of_the_group_10_18() -> None:
    groups = (frozenset({0}), frozenset({1}), *(frozenset({rank, rank + 9}) for rank in range(2, 11)))
    point = point_of(decision(groups, {19}, {rank: {5} for rank in range(20)}))
    keys = list(json.loads(point.restore_ranks_map))
    assert len([key for key in keys if "1" in key]) > 1, "`str(rank) in key` would match all of these"
    assert [key for key in keys if "1" in key.split(",")] == ["1"]
    assert point.files[1] == RankFile(rank=1, path="rank_1/5", from_rank=1)


def test_a_replica_without_a_file_is_passed_over_for_the_next() -> None:
    point = point_of(decision((frozenset(range(4)),), {0}, {2: {7}, 3: {7}}))
    assert point.restore_ranks_map == '{"0,1,2,3": 2}'
    assert {file.path for file in point.files} == {"rank_2/7"}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[tuple[Group, ...], set[int], dict[int, set[int]]]:
    labels = draw(st.lists(st.integers(0, 3), min_size=1, max_size=12))
    groups = {frozenset(rank for rank, one in enumerate(labels) if one == label) for label in labels}
    lost = draw(st.sets(st.integers(0, len(labels) - 1), max_size=3))
    steps = draw(st.lists(st.sets(st.integers(1, 5), max_size=4), min_size=len(labels), max_size=len(labels)))
    return tuple(sorted(groups, key=min)), lost, dict(enumerate(steps))


@given(worlds())
@settings(max_examples=150, deadline=None)
def test_every_source_is_healthy_in_the_same_group_and_at_the_newest_common_step(
    world: tuple[tuple[Group, ...], set[int], dict[int, set[int]]],
) -> None:
    groups, lost, held = world
    choice = decision(groups, lost, held)
    common = set.intersection(*({step for rank in group - lost for step in held[rank]} for group in groups))
    if not common:
        assert not isinstance(choice, Chosen)
        return
    point = point_of(choice)
    assert point.global_step == max(common)
    assert [file.rank for file in point.files] == list(held)
    for file in point.files:
        assert file.from_rank is not None
        assert file.from_rank not in lost
        assert any({file.rank, file.from_rank} <= group for group in groups)
        assert file.path == f"rank_{file.from_rank}/{point.global_step}"
    for key, source in json.loads(point.restore_ranks_map).items():
        assert str(source) in key.split(",")
    sources = sorted({file.from_rank for file in point.files if file.from_rank is not None})
    assert point.restore_ranks == ",".join(map(str, sources))
