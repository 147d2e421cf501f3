"""How many workers: what was asked, the rank table and the machine settle on one number or say why not."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from faultrun.model.spec.run_spec import Simulation
from support.asking import plan, refusal
from support.checkpoints.platform_files import table_v0, table_v1, table_v2, table_v12

Write = Callable[[object], str]


@pytest.fixture
def table(tmp_path: Path) -> Write:
    def write(content: object) -> str:
        path = tmp_path / "hccl.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


def world_size(*words: str, environ: dict[str, str] | None = None) -> int:
    return plan(*words, environ=environ).spec.topology.world_size


def test_a_number_that_is_given_wins_over_everything_the_machine_says(script: str, table: Write) -> None:
    environ = {"ASCEND_VISIBLE_DEVICES": "0-7", "RANK_TABLE_FILE": table(table_v1(8))}
    assert world_size("--worker_num=2", script, environ=environ) == 2
    assert world_size("--nproc-per-node=2", script, environ={"CUDA_VISIBLE_DEVICES": "0,1,2"}) == 2
    assert world_size("--local_worker_num=3", script, environ={"CUDA_VISIBLE_DEVICES": "0"}) == 3


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({"ASCEND_VISIBLE_DEVICES": "0,2,5"}, 3),
        ({"ASCEND_VISIBLE_DEVICES": "0-3,6"}, 5),
        ({"ASCEND_VISIBLE_DEVICES": "Ascend910-0,Ascend910-1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937-d72c,MIG-GPU-1/1/0"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, 1),
        ({"CUDA_VISIBLE_DEVICES": ""}, 1),
        ({"ASCEND_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "0,1"}, 1),
        ({"ASCEND_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "0"}, 2),
        ({}, 1),
    ],
)
def test_without_a_number_there_is_one_worker_for_each_visible_accelerator(
    script: str, environ: dict[str, str], count: int
) -> None:
    settled = plan(script, environ=environ)
    assert settled.spec.topology.world_size == count
    assert len([note for note in settled.notes if "worker" in note]) == 1


@pytest.mark.parametrize(
    ("content", "count"), [(table_v1(8), 8), (table_v0(2), 2), (table_v2(3), 3), (table_v12(4), 4)]
)
def test_each_form_of_table_says_how_many(script: str, table: Write, content: object, count: int) -> None:
    assert world_size(f"--rank_table_file={table(content)}", script) == count
    settled = plan(script, environ={"RANK_TABLE_FILE": table(content), "ASCEND_VISIBLE_DEVICES": "0"})
    assert settled.spec.topology.world_size == count
    assert settled.spec.rendezvous.rank_table_file.endswith("hccl.json")


@pytest.mark.parametrize(
    ("content", "because"),
    [([], "it is not a JSON object"), ({"rank_list": [{"rank_id": 0}]}, "a rank of it has no local_id")],
)
def test_a_rank_table_that_is_wrong_is_refused_unless_somebody_else_counts(
    script: str, table: Write, content: object, because: str
) -> None:
    path = table(content)
    assert because in refusal(f"--rank_table_file={path}", script).because
    told = plan("--worker_num=2", f"--rank_table_file={path}", script)
    assert told.spec.rendezvous.rank_table_file == path
    assert any("passed to the workers unread" in note and because in note for note in told.notes)
    assert because in refusal(script, environ={"RANK_TABLE_FILE": path}).because


@pytest.mark.parametrize("words", [(), ("--worker_num=2",)])
@pytest.mark.parametrize(
    ("content", "because"),
    [
        ('{"status": "initializing"}', 'its status is "initializing", not "completed"'),
        ('{"status": "completed", "server_li', "it is not JSON"),
        ("", "it is not JSON"),
        (None, "No such file or directory"),
    ],
)
def test_a_rank_table_that_is_not_finished_is_worth_another_try_and_never_guessed_around(
    script: str, tmp_path: Path, content: str | None, because: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / "hccl.json"
    if content is not None:
        path.write_text(content)
    named = refusal(f"--rank_table_file={path}", *words, script)
    inherited = refusal(*words, script, environ={"RANK_TABLE_FILE": str(path)})
    for error in (named, inherited):
        assert (error.exit_code, error.what) == (69, f"the rank table {path} is not finished")
        assert because in error.because


def test_a_count_that_differs_from_the_rank_table_is_pointed_out(script: str, table: Write) -> None:
    notes = plan("--worker_num=4", f"--rank_table_file={table(table_v1(8))}", script).notes
    assert notes == ("--rank_table_file names 8 devices, --worker_num=4 wins",)


@pytest.mark.parametrize("word", ["cpu", "auto"])
def test_torchruns_words_count_what_the_machine_has(script: str, word: str) -> None:
    assert world_size(f"--nproc-per-node={word}", script) == len(os.sched_getaffinity(0))


def test_torchruns_words_for_devices_count_the_visible_ones_or_refuse(script: str) -> None:
    assert world_size("--nproc-per-node=gpu", script, environ={"CUDA_VISIBLE_DEVICES": "0,1,2"}) == 3
    assert world_size("--nproc-per-node=npu", script, environ={"ASCEND_VISIBLE_DEVICES": "0-3"}) == 4
    assert world_size("--nproc-per-node=auto", script, environ={"ASCEND_VISIBLE_DEVICES": "0-3"}) == 4
    assert (
        "no gpu is visible"
        in refusal("--nproc-per-node=gpu", script, environ={"CUDA_VISIBLE_DEVICES": ""}).because
    )


def test_torchruns_variables_of_a_kubeflow_pod_are_understood(script: str) -> None:
    pod = {"PET_NPROC_PER_NODE": "3", "PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_MASTER_PORT": "23456"}
    spec = plan(script, environ=pod).spec
    assert (spec.topology.world_size, spec.rendezvous.port) == (3, 23456)
    several = plan(script, environ=pod | {"PET_NNODES": "2", "PET_MASTER_ADDR": "192.0.2.1"}).spec
    assert [seat.slots for seat in several.topology.nodes] == [3, 3]


def test_more_workers_here_than_in_the_run_are_refused_before_anything_starts(script: str) -> None:
    error = refusal("--worker_num=2", "--local_worker_num=4", script)
    assert error.exit_code == 64
    assert error.because == "it asks for 4 workers on this node, and the whole run has 2"
    assert error.hint == "--worker_num=4, or --local_worker_num=2"


def test_two_numbers_for_this_node_must_agree(script: str) -> None:
    assert world_size("--local_worker_num=2", "--nproc-per-node=2", script) == 2
    assert "--nproc-per-node says 3" in refusal("--local_worker_num=2", "--nproc-per-node=3", script).because


HEAD = "--master_addr=192.0.2.1"


@pytest.mark.parametrize(
    ("words", "slots"),
    [
        (["--nnodes=2"], [1, 1]),
        (["--nnodes=1:4"], [1, 1, 1, 1]),
        (["--worker_num=16", "--local_worker_num=8"], [8, 8]),
        (["--worker_num=4", "--nproc-per-node=2"], [2, 2]),
    ],
)
def test_several_nodes_in_every_launchers_words(script: str, words: list[str], slots: list[int]) -> None:
    spec = plan(*words, HEAD, script).spec
    assert [seat.slots for seat in spec.topology.nodes] == slots
    assert spec.agreement is not None


def test_a_node_that_is_not_the_first_cannot_run_all_workers(script: str) -> None:
    error = refusal("--worker_num=4", "--node_rank=1", script)
    assert error.because == "node 1 is one of several, and all workers would run on this one"


def test_a_rank_table_of_several_servers_asks_for_all_of_them_unless_this_node_is_all_that_is_asked(
    script: str, table: Write
) -> None:
    path = table(table_v1(8, 8))
    for words in ([], ["--worker_num=16"]):
        several = plan(f"--rank_table_file={path}", HEAD, *words, script).spec
        assert [seat.slots for seat in several.topology.nodes] == [8, 8]
    error = refusal(f"--rank_table_file={path}", "--worker_num=8", script)
    assert error.because == "--rank_table_file names 2 servers with 8 devices each"
    assert world_size(f"--rank_table_file={path}", "--worker_num=8", "--local_worker_num=8", script) == 8


def test_a_node_rank_that_means_nothing_is_said_to_as_msrun_does(script: str) -> None:
    notes = plan("--worker_num=2", "--local_worker_num=2", "--node_rank=3", script).notes
    assert notes == ("--node_rank has no effect here: all workers run on this node",)


def test_more_than_msruns_eight_on_one_node_is_pointed_out(script: str) -> None:
    assert plan("--worker_num=16", script).notes == (
        "all 16 workers run on this node (msrun would start 8 per node)",
    )
    assert plan("--worker_num=16", "--local_worker_num=16", script).notes == ()


@pytest.mark.parametrize(
    ("words", "local", "simulation"),
    [
        (["--sim_level=1", "--worker_num=4"], 4, Simulation(level=1, world_size=4)),
        (
            ["--sim_level=0", "--worker_num=1024", "--sim_rank_id=7"],
            1,
            Simulation(level=0, rank=7, world_size=1024),
        ),
        (["--sim_level=3", "--worker_num=16", "--local_worker_num=8"], 8, Simulation(level=3, world_size=16)),
        (["--sim_level=1", "--worker_num=1024"], 1, Simulation(level=1, rank=0, world_size=1024)),
        (["--sim_level=-1", "--worker_num=2"], 2, None),
    ],
)
def test_mindspores_dry_run_starts_fewer_workers_than_it_simulates(
    mindspore_script: str, words: list[str], local: int, simulation: Simulation | None
) -> None:
    spec = plan(*words, mindspore_script).spec
    assert spec.topology.world_size == local
    assert spec.simulation == simulation


def test_the_dry_run_may_come_from_mindspores_own_variables(mindspore_script: str) -> None:
    environ = {"MS_SIMULATION_LEVEL": "1", "RANK_SIZE": "32", "RANK_ID": "5"}
    spec = plan("--worker_num=4", mindspore_script, environ=environ).spec
    assert spec.simulation == Simulation(level=1, rank=5, world_size=32)


def test_a_dry_run_of_torch_or_of_a_rank_that_is_not_is_told(script: str, mindspore_script: str) -> None:
    words = ("--sim_level=1", "--sim_rank_id=4", "--worker_num=4")
    assert refusal(*words, mindspore_script).because == "the run has ranks 0 to 3"
    settled = plan("--sim_level=1", "--worker_num=1", script)
    assert settled.spec.simulation is None
    assert settled.notes == (
        "--sim_level has no effect here: only MindSpore has dry runs, and this is torch",
    )
