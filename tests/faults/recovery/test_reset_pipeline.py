"""A job in a cluster, on one machine and with its files: the rank table is late, devices fail and recover."""

import os
from pathlib import Path
from typing import Any

import pytest

from support.checkpoints.platform_files import INITIALIZING, ConfigMapVolume, reset, table_v1, text
from support.machine.processes import wait_until
from support.places import TESTS
from support.runs import Launcher, Run

COUNT = TESTS / "faults" / "scripts" / "gasp_count.py"
RANKS = range(4)


class Cluster:
    """The three volumes of a job's pod, and the job itself."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self.rings = ConfigMapVolume(launcher.folder / "rings", hccl_json=INITIALIZING)
        self.resets = ConfigMapVolume(launcher.folder / "resets", reset_json=INITIALIZING, restartType="")
        self.faults = ConfigMapVolume(launcher.folder / "faults", fault__npus=INITIALIZING)

    def starts(self, *options: str) -> Run:
        return self._launcher.command(
            f"--rank_table_file={self.rings.path('hccl.json')}",
            f"--reset_config={self.resets.path('reset.json')}",
            f"--fault_config={self.faults.path('fault-npus')}",
            "--checkpoint_dir=ck",
            *options,
            str(COUNT),
            "1",
        )

    def places(self, *devices: int) -> None:
        """The rank table is finished."""
        self.rings.publish(hccl_json=text(table_v1(len(devices), devices=devices)))

    def reports(self, ranks: dict[int, str], kind: str = "hotReset", **fields: Any) -> None:
        self.resets.publish(reset_json=text(reset(ranks, **fields)), restartType=kind)


@pytest.fixture
def cluster(launcher: Launcher) -> Cluster:
    return Cluster(launcher)


def told(run: Run, line: str) -> None:
    """Wait until a person was told ``line``."""
    wait_until(lambda: line in run.text, while_runs=run.pid, what=f"the line {line!r}")


def holds(run: Run, incarnation: int) -> None:
    """Wait until the workers of ``incarnation`` are kept back."""
    wait_until(
        lambda: bool(run.events(phase="holding", incarnation=incarnation)) or None,
        while_runs=run.pid,
        what="the wait for the platform",
    )


def inherited(run: Run, rank: int, name: str) -> str:
    """A variable in the environment of a living worker."""
    entries = Path(f"/proc/{run.worker(rank)}/environ").read_bytes().split(b"\0")
    found = dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
    return os.fsdecode(found.get(name.encode(), b""))


def first_line(run: Run, incarnation: int) -> list[str]:
    return [run.log(rank, incarnation).splitlines()[0] for rank in RANKS]


def test_the_pipeline_from_a_late_table_over_two_faults_to_the_end(cluster: Cluster) -> None:
    run = cluster.starts()
    told(run, "waiting for the rank table")
    assert not run.log_dir.exists()

    cluster.places(7, 6, 5, 4)
    run.trains(RANKS)
    told(run, "the rank table is finished after")
    assert [inherited(run, rank, "DEVICE_ID") for rank in RANKS] == ["7", "6", "5", "4"]
    assert inherited(run, 0, "RANK_TABLE_FILE") == str(cluster.rings.path("hccl.json"))

    cluster.reports({1: "unrecovered"})
    holds(run, 1)
    assert {line["step"] for line in run.events("GaspSaved", incarnation=0)} == {5}
    assert run.events("WorkerStarted", incarnation=1) == []
    told(run, "workers wait for the platform: rank 1 is not recovered yet; at most 15m")

    cluster.reports({1: "recovered"})
    run.trains(RANKS, incarnation=1)
    assert first_line(run, 1) == ["from 5"] * 4

    cluster.reports({})
    cluster.reports({2: "unrecovered", 3: "unrecovered"})
    holds(run, 2)
    cluster.reports({})
    assert run.ends() == 0
    assert first_line(run, 2) == ["from 8"] * 4
    assert "incident 1  rank 1 of 4 stopped for the platform at step 5" in run.card(1)
    assert "lost 0 steps" in run.card(2)
    assert "; not counted" in run.card(2)
    assert "every rank finished; exit code 0, 2 restarts\n" in run.text
