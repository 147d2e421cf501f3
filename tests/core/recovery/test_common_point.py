"""Whether nodes share the folder of their checkpoints, and which point all of them can load."""

import json
from dataclasses import replace

import pytest

from faultrun.core.plan.next_plan import Rules, next_step
from faultrun.model.checkpoint import Identity, RankFile, RecoveryPoint, Shared
from faultrun.model.events import PlanAdopted, RunFinished
from faultrun.model.observed.node_fact import NodeFact, NodeStatus
from faultrun.model.topology import BootId, NodeId, NodeSlots, Topology
from support.nodes.node_facts import fact_with, node_fact
from support.stories.story import POLICY, checkpoint, first_plan

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
TWO = Topology(nodes=(NodeSlots(node=A, slots=2), NodeSlots(node=B, slots=2)))
RULES = Rules(topology=TWO, policy=POLICY)


def seen(node: NodeId, *steps: int, disk: int = 0, folder: str = "ck", incarnation: int = 0) -> NodeFact:
    """What one node sees below ``folder``; ``disk`` tells apart files of the same name."""

    def point(step: int) -> RecoveryPoint:
        identity = Identity(inode=step, size_bytes=1, mtime_ns=disk, global_step=step)
        found = checkpoint(step, f"{folder}/net-{step}")
        return replace(found, identity=identity, files=())

    points = tuple(point(step) for step in steps)
    standing = NodeStatus.DRAINED if incarnation == 0 else NodeStatus.JOINED
    first, *more = points or (None,)
    return node_fact(
        node=node,
        boot=BootId("b"),
        at_s=0,
        incarnation=incarnation,
        status=standing,
        point=first,
        more_points=tuple(filter(None, more)),
    )


def point_after(*facts: NodeFact) -> RecoveryPoint | None:
    answer = next_step(RULES, replace(first_plan(4), topology=TWO), {fact.node: fact for fact in facts}, 1.0)
    assert isinstance(answer, PlanAdopted), answer
    return answer.plan.point


@pytest.mark.parametrize("folders", [("ck", "ck"), ("a/ck", "b/ck")])
def test_nodes_with_disks_of_their_own_go_back_to_what_all_have_each_to_its_own_file(
    folders: tuple[str, str],
) -> None:
    one, other = folders
    point = point_after(seen(A, 12, 10, 5, folder=one), seen(B, 10, 5, disk=1, folder=other))
    assert point is not None
    assert point.global_step == 10
    assert [file.path for file in point.files] == [f"{one}/net-10"] * 2 + [f"{other}/net-10"] * 2


def test_in_a_folder_that_nodes_share_the_newest_counts_whoever_sees_it() -> None:
    for facts in ((seen(A, 12, 10), seen(B, 10)), (seen(A, 10), seen(B, 12, 10)), (seen(A, 12), seen(B))):
        point = point_after(*facts)
        assert point is not None
        assert (point.path, point.source) == ("ck/net-12", Shared())


def test_what_a_node_waited_for_in_vain_is_left_out_unless_it_sees_it_by_now() -> None:
    blind = fact_with(seen(B, 10, 5), unseen=("ck/net-12",))
    point = point_after(seen(A, 12, 10), blind)
    assert point is not None
    assert point.path == "ck/net-10"
    point = point_after(seen(A, 12, 10), fact_with(seen(B, 12, 10), unseen=("ck/net-12",)))
    assert point is not None
    assert point.path == "ck/net-12"


def test_nobody_begins_anew_where_a_node_sees_nothing_of_what_another_has() -> None:
    facts = (seen(A, 12), fact_with(seen(B), unseen=("ck/net-12",)))
    answer = next_step(RULES, replace(first_plan(4), topology=TWO), {one.node: one for one in facts}, 1.0)
    assert isinstance(answer, RunFinished)
    assert answer.exit_code == 65
    assert "node a has ck/net-12 (step 12 (epoch 1)); node b has nothing" in answer.why


def shards(node: NodeId, *steps: int, ranks: tuple[int, ...], state: str = "run 0") -> NodeFact:
    """What a node has on its own disk of a state that is sharded."""
    found = seen(node, *steps, folder=node)

    def part(point: RecoveryPoint) -> RecoveryPoint:
        files = tuple(RankFile(rank=rank, path=f"{point.path}_{rank}", from_rank=rank) for rank in ranks)
        suppliers = json.dumps({str(rank): rank for rank in ranks})
        return replace(point, files=files, part_of=state, restore_ranks_map=suppliers)

    first, *more = map(part, found.resume.points)
    return fact_with(found, point=first, more_points=tuple(more))


def test_shards_on_the_disks_of_all_nodes_are_one_point_each_rank_with_its_own() -> None:
    point = point_after(shards(A, 12, 10, ranks=(0, 1)), shards(B, 10, 5, ranks=(2, 3)))
    assert point is not None
    assert (point.global_step, point.part_of, point.restore_ranks) == (10, "", "0,1,2,3")
    assert [file.path for file in point.files] == ["a/net-10_0", "a/net-10_1", "b/net-10_2", "b/net-10_3"]


def test_who_looked_before_all_shards_were_written_does_not_tell_disks_apart() -> None:
    """The next node of a lost one writes its ranks' files after the others have saved theirs."""
    for step in (10, 12):
        early, late = shards(A, 12, ranks=(0, 1)), seen(B, step, 5)
        point = point_after(early, late)
        assert point is not None
        assert (point.global_step, point.path, point.source) == (step, f"ck/net-{step}", Shared())


@pytest.mark.parametrize(
    ("other", "has"),
    [
        (shards(B, 12, ranks=(2,)), "node b has b/net-12 (step 12 (epoch 1) of rank 2)"),
        (shards(B, 12, ranks=(0, 1)), "node b has b/net-12 (step 12 (epoch 1) of ranks 0 1)"),
        (shards(B, 12, ranks=(2, 3), state="run 1"), "node b has b/net-12 (step 12 (epoch 1) of ranks 2 3)"),
        (seen(B), "node b has nothing"),
        (seen(C, incarnation=-1), "node c has nothing"),
    ],
)
def test_a_rank_whose_shard_is_on_no_disk_of_its_node_ends_the_run_by_name(other: NodeFact, has: str) -> None:
    facts = {A: shards(A, 12, ranks=(0, 1)), other.node: other}
    answer = next_step(RULES, replace(first_plan(4), topology=TWO), facts, 1.0)
    assert isinstance(answer, RunFinished), "nothing begins at zero beside what others have"
    assert answer.exit_code == 65
    assert "node a has a/net-12 (step 12 (epoch 1) of ranks 0 1)" in answer.why
    assert has in answer.why


def test_what_a_spare_saw_long_ago_does_not_tell_disks_apart() -> None:
    spare = seen(C, 10, disk=1, incarnation=-1)
    point = point_after(seen(A, 12, 10), spare)
    assert point is not None
    assert (point.global_step, point.source) == (12, Shared())


def test_nodes_whose_own_disks_have_no_step_in_common_end_the_run_and_say_what_each_has() -> None:
    facts = {A: seen(A, 12, folder="a"), B: seen(B, 10, folder="b")}
    answer = next_step(RULES, replace(first_plan(4), topology=TWO), facts, 1.0)
    assert isinstance(answer, RunFinished)
    assert answer.exit_code == 65
    assert answer.why == (
        "the nodes have no checkpoint of the same step\n"
        "  because: each keeps its own, and they differ: node a has a/net-12 (step 12 (epoch 1));"
        " node b has b/net-10 (step 10 (epoch 1))\n"
        "  try:     --checkpoint_dir=DIR on a file system that all nodes share, or keep more saves"
    )
