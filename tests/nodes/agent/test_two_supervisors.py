"""Two real supervisors, each with two of four ranks: what is global and what is local at each of them."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultrun.cli.status.command import status
from faultrun.model.observed.node_fact import NodeStatus
from faultrun.model.topology import NodeId
from support.machine.processes import wait_until
from support.nodes.one_of_several import Hub
from support.places import TESTS
from support.runs import Launcher, Run

pytestmark = pytest.mark.long

A = NodeId("a")
WORKER = """
import json
from faultrun import sdk
place = f"seen_{life}_{rank}.json"
def save(path):
    with open(path, "w") as file:
        file.write(str(rank))
sdk.start(save=save, directory=f"saves_{rank}", name="state.txt")
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
with open(place + ".part", "w") as file:
    json.dump(dict(os.environ), file)
os.rename(place + ".part", place)
with sdk.updating():
    pass
sdk.step(1)
train()
"""


@dataclass(frozen=True)
class Two:
    """Node ``a`` has ranks 0 and 1, node ``b`` has 2 and 3."""

    folder: Path
    hub: Hub
    a: Run
    b: Run

    @property
    def nodes(self) -> tuple[Run, Run]:
        return self.a, self.b

    def trains(self, incarnation: int = 0) -> "Two":
        self.a.trains((0, 1), incarnation)
        self.b.trains((2, 3), incarnation)
        return self

    def seen(self, rank: int, incarnation: int = 0) -> dict[str, str]:
        environ: dict[str, str] = json.loads((self.folder / f"seen_{incarnation}_{rank}.json").read_text())
        return environ


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    launched = Launcher(tmp_path)
    yield launched
    assert launched.close() == []


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    agreed = Hub(tmp_path / "hub.sock", nodes=2, slots=2)
    yield agreed
    agreed.close()


def node(launcher: Launcher, name: str, *options: str) -> Run:
    paths = os.pathsep.join((str(TESTS), str(TESTS.parent / "launcher")))
    at = launcher.folder / "hub.sock"
    script = launcher.program(WORKER)[-1]
    started = replace(
        launcher, faultrun=(sys.executable, "-m", "support.nodes.one_of_several", str(at))
    ).command(
        *("--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1:1"),
        *("--rdzv-id=job", f"--node_name={name}", "--standby=none", "--backoff=0s..0s", *options, script),
        environ={"PYTHONPATH": paths},
    )
    return replace(started, log_dir=launcher.folder / "faultrun_log" / f"node_{name}")


@pytest.fixture
def two(launcher: Launcher, hub: Hub) -> Two:
    """Of MindSpore, as far as its workers' environment and its scheduler go."""
    served = ("--framework=mindspore", "--ms_scheduler=builtin")
    a = node(launcher, "a", "--local-addr=127.0.0.2", *served)
    wait_until(lambda: A in hub.facts, while_runs=a.pid, what="node a")
    b = node(launcher, "b", "--local-addr=127.0.0.3", *served)
    return Two(launcher.folder, hub, a, b).trains()


def test_what_is_global_and_what_is_local_on_each_of_two_nodes(two: Two) -> None:
    _workers_know_who_they_are_in_the_run_and_on_their_node(two)
    _each_node_keeps_the_files_of_its_own_ranks_apart(two)
    _status_tells_of_a_nodes_own_ranks_and_of_the_size_of_the_run(two)
    _a_node_whose_ranks_have_ended_waits_for_the_others(two)


def _workers_know_who_they_are_in_the_run_and_on_their_node(two: Two) -> None:
    seen = [two.seen(rank) for rank in range(4)]
    told = {
        "RANK": "0123", "RANK_ID": "0123", "ROLE_RANK": "0123", "LOCAL_RANK": "0101", "DEVICE_ID": "0101",
        "NODE_RANK": "0011", "GROUP_RANK": "0011", "WORLD_SIZE": "4444", "LOCAL_WORLD_SIZE": "2222",
        "GROUP_WORLD_SIZE": "2222", "TORCHELASTIC_RESTART_COUNT": "0000",
        "MS_NODE_ID": "0123", "MS_WORKER_NUM": "4444",
    }  # fmt: skip
    assert {name: "".join(one[name] for one in seen) for name in told} == told
    assert {one["MASTER_ADDR"] for one in seen} == {"127.0.0.2"}
    assert {one["MS_SCHED_HOST"] for one in seen} == {"127.0.0.2"}
    (port,) = {one["MASTER_PORT"] for one in seen} | {one["MS_SCHED_PORT"] for one in seen}
    (ready,) = two.a.events("Prepared")
    assert port == str(ready["master_port"])


def _each_node_keeps_the_files_of_its_own_ranks_apart(two: Two) -> None:
    for run, here in ((two.a, {0, 1}), (two.b, {2, 3})):
        logs = {path.name for path in run.log_dir.glob("worker_*.log")}
        assert logs == {f"worker_{rank}.log" for rank in here}
        first = run.event("FirstStep")
        assert (first["step"], first["incarnation"]) == (1, 0)
        slots = [two.seen(rank)["FAULTRUN_PROGRESS"].rpartition(":")[2] for rank in sorted(here)]
        assert slots == ["0", "1"]
        record = json.loads((run.log_dir / "run.json").read_text())
        assert record["node"] == run.log_dir.name.removeprefix("node_")
    assert not list((two.folder / "faultrun_log").glob("*.jsonl"))
    schedulers = [run.log_dir / "incarnation_0" / "scheduler.log" for run in two.nodes]
    assert [path.exists() for path in schedulers] == [True, False]
    assert "built-in scheduler for 4 ranks at 127.0.0.2" in schedulers[0].read_text()


def _status_tells_of_a_nodes_own_ranks_and_of_the_size_of_the_run(two: Two) -> None:
    words = ["--log_dir", str(two.b.log_dir), "--json"]
    told = json.loads(CliRunner().invoke(status, words, standalone_mode=False).output)
    assert [(rank["rank"], rank["step"]) for rank in told["ranks"]] == [(2, 1), (3, 1)]
    assert (told["world_size"], told["here"]) == (4, 2)
    shown = CliRunner().invoke(status, words[:2], standalone_mode=False).output
    assert "2 of 2 ranks up here, 4 in all" in shown


def _a_node_whose_ranks_have_ended_waits_for_the_others(two: Two) -> None:
    two.a.kill(0, 1, signum=signal.SIGUSR1)
    wait_until(lambda: two.hub.facts[A].status is NodeStatus.DONE, while_runs=two.a.pid, what="a's ranks")
    assert two.b.events("WorkerExit") == []
    two.b.kill(2, 3, signum=signal.SIGUSR1)
    assert [run.ends() for run in two.nodes] == [0, 0]


def test_a_rank_that_dies_ends_the_incarnation_everywhere_and_all_come_back_together(two: Two) -> None:
    two.b.kill(3)
    two.trains(1)
    incident = two.b.judgement(1)
    assert (incident["rank"], incident["incarnation"]) == (3, 0)
    assert "rank 3 of 4" in two.b.card(1)
    assert two.a.card(1) == two.b.card(1)
    saved = {save["rank"] for save in two.a.events("GaspSaved")}
    assert saved  # one save serves every rank: nobody waits for the other
    assert saved <= {0, 1}
    assert {save["rank"] for save in two.b.events("GaspSaved")} == {2}
    again = [two.seen(rank, incarnation=1) for rank in range(4)]
    assert [one["RANK"] for one in again] == list("0123")
    assert len({one["MASTER_PORT"] for one in again} | {two.seen(0)["MASTER_PORT"]}) == 2
    two.a.kill(0, 1, signum=signal.SIGUSR1)
    two.b.kill(2, 3, signum=signal.SIGUSR1)
    assert [run.ends() for run in two.nodes] == [0, 0]
