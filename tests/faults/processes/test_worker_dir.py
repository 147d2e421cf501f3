"""A folder for each worker, before and after a fault, in fresh workers and in standbys."""

import signal
import sys
from pathlib import Path

import pytest

from faultrun.model.observed.standby import StandbyPhase
from support.machine.processes import wait_until
from support.runs import PRELUDE, Launcher, Run

SLOW_S = 240.0
"""Imports at low priority beside everything else that a test machine does."""

CODE = """
import helper
from faultrun import sdk
say("works in", os.getcwd())
say("imports from", sys.path[0])
with open("lives.txt", "a") as file:
    file.write(f"{life}\\n")
say("config", open(sys.argv[1]).read())
sdk.start()
sdk.step(life + 1)
train()
"""


def standbys_are_ready(run: Run) -> None:
    def ready() -> bool:
        said = run.events("StandbyChanged", state=StandbyPhase.READY.value)
        return {event["rank"] for event in said} == {0, 1}

    wait_until(ready, while_runs=run.pid, within_s=SLOW_S, what="two standbys")


@pytest.mark.parametrize("standby", ["none", "2"])
def test_each_worker_works_in_its_folder_and_after_a_fault_too(launcher: Launcher, standby: str) -> None:
    here = launcher.folder
    (here / "train.py").write_text(PRELUDE + CODE)
    (here / "helper.py").write_text("")
    (here / "conf").mkdir()
    (here / "conf" / "a.yaml").write_text("lr: 1")
    run = launcher.command(
        *("--worker_num=2", "--worker_dir=work/rank_{rank}", f"--standby={standby}", "--backoff=10ms..20ms"),
        *(sys.executable, "-u", "train.py", "conf/a.yaml"),
    )
    run.trains(range(2))
    if standby != "none":
        standbys_are_ready(run)
    run.kill(1)
    run.trains(range(2), incarnation=1)
    warm = [event["standby"] for event in run.events("WorkerStarted", incarnation=1)]
    assert warm == [standby != "none"] * 2
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    for rank in range(2):
        folder = here / "work" / f"rank_{rank}"
        assert (folder / "lives.txt").read_text() == "0\n1\n"
        for life in range(2):
            said = run.log(rank, life)
            assert f"works in {folder}\n" in said
            assert f"imports from {here}\n" in said
            assert "config lr: 1" in said


def test_a_folder_that_cannot_be_made_is_a_failure_that_names_it(launcher: Launcher) -> None:
    (launcher.folder / "sealed").symlink_to("/proc")
    run = launcher.run("train()", "--worker_dir=sealed/rank_{rank}", "--max_restarts=0", workers=1)
    assert run.ends() != 0
    assert str(Path("sealed") / "rank_0") in run.text
