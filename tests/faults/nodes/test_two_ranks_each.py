"""Two nodes, each with two of four ranks: what is global and what is local at each of them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultrun.cli.status.command import status
from support.machine.processes import let_go, wait_until
from support.nodes.several_nodes import LONG_LEASE, Job, job

WORKER = """
import json
from faultrun import sdk
place = f"seen_{life}_{rank}.json"
def save(path):
    with open(path, "w") as file:
        file.write(str(rank))
sdk.start(save=save, directory=f"saves_{rank}", name="state.txt")
with open(place + ".part", "w") as file:
    json.dump(dict(os.environ), file)
os.rename(place + ".part", place)
with sdk.updating():
    pass
sdk.step(1)
os.mkfifo(f"let_go_{rank}")
say("ready")
open(f"let_go_{rank}").read()
"""
RANKS = {"a": (0, 1), "b": (2, 3)}


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Job]:
    """Of MindSpore, as far as its workers' environment and its scheduler go."""
    words = ("--ms_scheduler=builtin", "--standby=none", "--backoff=0s..0s", LONG_LEASE)
    with job(
        tmp_path, "a", "b", script=WORKER, framework="mindspore", per_node=2, words=words, only_etcd=True
    ) as one:
        one.start("a")
        one.run("a").event("RunStarted")
        wait_until(lambda: "waiting for" in one.run("a").text, what="node a in etcd: its seat is the first")
        one.start("b")
        yield both_train(one)


def both_train(one: Job, incarnation: int = 0) -> Job:
    for name, ranks in RANKS.items():
        one.run(name).trains(ranks, incarnation)
    return one


def seen(one: Job, rank: int, incarnation: int = 0) -> dict[str, str]:
    place = one.folder / "ab"[rank // 2] / f"seen_{incarnation}_{rank}.json"
    environ: dict[str, str] = json.loads(place.read_text())
    return environ


def test_what_is_global_and_what_is_local_on_each_of_two_nodes(two: Job) -> None:
    _workers_know_who_they_are_in_the_run_and_on_their_node(two)
    _each_node_keeps_the_files_of_its_own_ranks_apart(two)
    _status_tells_of_a_nodes_own_ranks_and_of_the_size_of_the_run(two)
    _a_node_whose_ranks_have_ended_waits_for_the_others(two)


def _workers_know_who_they_are_in_the_run_and_on_their_node(two: Job) -> None:
    environs = [seen(two, rank) for rank in range(4)]
    told = {
        "RANK": "0123", "RANK_ID": "0123", "ROLE_RANK": "0123", "LOCAL_RANK": "0101", "DEVICE_ID": "0101",
        "NODE_RANK": "0011", "GROUP_RANK": "0011", "WORLD_SIZE": "4444", "LOCAL_WORLD_SIZE": "2222",
        "GROUP_WORLD_SIZE": "2222", "TORCHELASTIC_RESTART_COUNT": "0000",
        "MS_NODE_ID": "0123", "MS_WORKER_NUM": "4444",
    }  # fmt: skip
    assert {name: "".join(one[name] for one in environs) for name in told} == told
    assert {one["MASTER_ADDR"] for one in environs} == {two.host("a").address}
    assert {one["MS_SCHED_HOST"] for one in environs} == {two.host("a").address}
    (port,) = {one["MASTER_PORT"] for one in environs} | {one["MS_SCHED_PORT"] for one in environs}
    (ready,) = two.run("a").events("Prepared")
    assert port == str(ready["master_port"])


def _each_node_keeps_the_files_of_its_own_ranks_apart(two: Job) -> None:
    for name, here in RANKS.items():
        run = two.run(name)
        logs = {path.name for path in run.log_dir.glob("worker_*.log")}
        assert logs == {f"worker_{rank}.log" for rank in here}
        first = run.event("FirstStep")
        assert (first["step"], first["incarnation"]) == (1, 0)
        slots = [seen(two, rank)["FAULTRUN_PROGRESS"].rpartition(":")[2] for rank in here]
        assert slots == ["0", "1"]
        record = json.loads((run.log_dir / "run.json").read_text())
        assert record["node"] == run.log_dir.name.removeprefix("node_")
    assert not list((two.folder / "logs").glob("*.jsonl"))
    schedulers = [two.run(name).log_dir / "incarnation_0" / "scheduler.log" for name in RANKS]
    assert [path.exists() for path in schedulers] == [True, False]
    assert f"built-in scheduler for 4 ranks at {two.host('a').address}" in schedulers[0].read_text()


def _status_tells_of_a_nodes_own_ranks_and_of_the_size_of_the_run(two: Job) -> None:
    words = ["--log_dir", str(two.run("b").log_dir), "--json"]
    told = json.loads(CliRunner().invoke(status, words, standalone_mode=False).output)
    assert [(rank["rank"], rank["step"]) for rank in told["ranks"]] == [(2, 1), (3, 1)]
    assert (told["world_size"], told["here"]) == (4, 2)
    shown = CliRunner().invoke(status, words[:2], standalone_mode=False).output
    assert "2 of 2 ranks up here, 4 in all" in shown


def _a_node_whose_ranks_have_ended_waits_for_the_others(two: Job) -> None:
    for rank in RANKS["a"]:
        let_go(two.folder / "a" / f"let_go_{rank}")
        two.run("a").event("WorkerExit", rank=rank)
    assert two.run("b").events("WorkerExit") == []
    os.kill(two.run("a").pid, 0)
    for rank in RANKS["b"]:
        let_go(two.folder / "b" / f"let_go_{rank}")
    assert [two.run(name).ends() for name in RANKS] == [0, 0]
