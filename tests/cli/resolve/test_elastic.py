"""How far a run may shrink, and which runs cannot."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.resolve.platform import awaited_table
from faultrun.model.observed.elastic import Elastic, Grow
from faultrun.platforms.rank_table.rank_table import RankTable
from faultrun.platforms.rank_table.wait import Awaited
from faultrun.platforms.untrusted_files import Unfinished
from support.asking import plan, refusal, settle
from support.checkpoints.platform_files import table_v1


def test_a_run_keeps_its_size_unless_it_is_told_how_far_it_may_shrink(script: str) -> None:
    assert plan("--worker_num=4", script).spec.elastic is None
    asked = plan("--worker_num=4", "--min_worker_num=3", script)
    assert asked.spec.elastic == Elastic(min_workers=3)
    assert any("no --health_check is given" in note for note in asked.notes)
    asked = plan("--worker_num=4", "--min-worker-num=1", "--grow=never", script)
    assert asked.spec.elastic == Elastic(min_workers=1, grow=Grow.NEVER)
    assert not any("health_check" in note for note in asked.notes)
    words = ("--worker_num=4", "--min_worker_num=3", "--health_check=test -e well")
    assert plan(*words, script).spec.elastic == Elastic(min_workers=3, health_check="test -e well")


def test_how_it_grows_means_nothing_where_it_does_not_shrink(script: str) -> None:
    notes = plan("--worker_num=4", "--grow=never", "--health_check=true", script).notes
    assert sum("the run keeps its size without --min_worker_num" in note for note in notes) >= 1


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("--min_worker_num=5",), "the run has 4 workers"),
        (("--min_worker_num=2", "--worker_exit_codes=torchft"), "recovers by itself"),
        (
            ("--min_worker_num=2", "--local_worker_num=2", "--master_addr=192.0.2.1", "--node_rank=0"),
            "those of 2 nodes, which leave and come back as a whole",
        ),
    ],
)
def test_what_cannot_shrink_is_refused_by_name(script: str, words: tuple[str, ...], because: str) -> None:
    assert because in refusal("--worker_num=4", *words, script).because


def test_with_a_rank_table_a_run_can_shrink_if_somebody_can_read_it(script: str, tmp_path: Path) -> None:
    table = tmp_path / "hccl.json"
    table.write_text(json.dumps(table_v1(4)))
    words = ("--worker_num=4", "--min_worker_num=2", f"--rank_table_file={table}")
    assert plan(*words, script).spec.elastic == Elastic(min_workers=2)
    table.write_text(json.dumps({"status": "completed"}))
    assert "the workers get the rank table unread" in refusal(*words, script).because


ALL_THREE = Elastic(min_workers=6, min_nodes=3)
NODES = ("--nproc-per-node=2", "--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1:1", "--rdzv-id=job")


def test_of_several_nodes_whole_ones_may_be_missing(script: str) -> None:
    fixed = plan("--nnodes=3", "--health_check=true", *NODES, script).spec
    assert (fixed.elastic, fixed.resizes) == (replace(ALL_THREE, health_check="true"), False)
    asked = plan("--nnodes=2:3", *NODES, script)
    assert asked.spec.elastic == Elastic(min_workers=4, min_nodes=2)
    assert [seat.slots for seat in asked.spec.topology.nodes] == [2, 2, 2]
    words = ("--nnodes=1:3", "--grow=never", "--health_check=true")
    wanted = Elastic(min_workers=2, min_nodes=1, grow=Grow.NEVER, health_check="true")
    assert plan(*words, *NODES, script).spec.elastic == wanted


def test_nodes_that_cannot_be_fewer_are_all_needed_and_it_is_said_why(script: str, tmp_path: Path) -> None:
    other, unread = tmp_path / "hccl.json", tmp_path / "unread.json"
    other.write_text(json.dumps(table_v1(2, 2)))
    unread.write_text(json.dumps({"status": "completed"}))
    table = "--rank_table_file"
    for words, why in (
        ((f"{table}={other}",), f"{table} names 2 servers with 2 devices each, and the run has 3 nodes"),
        ((f"{table}={unread}", "--local_worker_num=2"), "the workers get the rank table unread"),
        (("--worker_exit_codes=torchft",), "a training that recovers by itself"),
    ):
        asked = plan("--nnodes=2:3", *words, *NODES, script)
        assert not asked.spec.resizes
        assert asked.spec.elastic in (None, ALL_THREE)
        assert any(f"the run needs all 3 nodes: {why}" in note for note in asked.notes), asked.notes


def test_with_a_rank_table_each_node_has_the_seat_the_table_gives_it(script: str, tmp_path: Path) -> None:
    table = tmp_path / "hccl.json"
    table.write_text(json.dumps(table_v1(2, 2, 2)))
    words = ("--nnodes=2:3", f"--rank_table_file={table}", *NODES)
    asked = plan(*words, script, environ={"XDL_IP": "10.0.0.3"}).spec
    assert asked.elastic == Elastic(min_workers=4, min_nodes=2, fixed_seats=True)
    assert asked.agreement is not None
    assert asked.agreement.node_rank == 2
    assert plan(*words, "--node_rank=1", script).spec.elastic == asked.elastic
    for more, environ, because in (
        ((), {}, "nothing says which server of --rank_table_file this node is"),
        (("--node_rank=1",), {"XDL_IP": "10.0.0.3"}, "--rank_table_file makes this node number 2"),
        (("--node_rank=3",), {}, "--rank_table_file has servers 0 to 2"),
    ):
        assert because in refusal(*words, *more, script, environ=environ).because


def test_who_comes_instead_of_another_waits_until_the_table_names_it(script: str) -> None:
    table = json.dumps(table_v1(2, 2, 2))

    def awaited(*words: str) -> Awaited[RankTable]:
        environ = {"XDL_IP": "10.0.0.9"}
        around = ProcessContext(environ=environ, python=sys.executable, import_path=(), pid=1)
        return awaited_table(settle(*words, script), around)

    late = awaited("--nnodes=2:3")
    with pytest.raises(Unfinished, match=r"0 of its servers are this node \(10.0.0.9\)"):
        late.parse(table.encode())
    assert late.parse(table.replace("10.0.0.2", "10.0.0.9").encode()).world_size == 6
    for words in (("--nnodes=3",), ("--nnodes=2:3", "--node_rank=1")):
        assert awaited(*words).parse(table.encode()).world_size == 6
