"""A device breaks and the run goes on with fewer ranks: the same training, and all of them again later."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.machine.processes import wait_until
from support.places import TESTS
from support.runs import FAULTRUN, Launcher
from support.same_training import is_the_same_training

SHRINKS = TESTS / "faults" / "scripts" / "shrinks.py"
HYBRID = TESTS / "faults" / "scripts" / "hybrid_count.py"
OF_MINDSPORE = TESTS / "faults" / "scripts" / "shrinks_mindspore.py"
SLOW_S = 300.0
"""Two starts of torch on a machine that is busy."""

BREAKS = """
import os, pathlib, sys, time
rank, life = os.environ["RANK"], os.environ["FAULTRUN_INCARNATION"]
pathlib.Path("ck").mkdir(exist_ok=True)
part = pathlib.Path(f"part-{rank}")
part.write_bytes(b"x")
part.replace(f"ck/state-1-rank-{rank}.bin")
while not all(pathlib.Path(f"ck/state-1-rank-{one}.bin").exists() for one in range(3)):
    time.sleep(0.01)
if (rank, life) == ("1", "0"):
    sys.exit("CUDA error: uncorrectable ECC error encountered")
"""


@pytest.mark.parametrize(
    "script", [SHRINKS, pytest.param(OF_MINDSPORE, marks=[pytest.mark.mindspore, pytest.mark.slow])]
)
def test_with_fewer_ranks_and_with_all_again_it_is_the_same_training(
    launcher: Launcher, script: Path
) -> None:
    run = launcher.command(
        "--framework=auto", "--worker_num=3", "--min_worker_num=2", "--checkpoint_dir=ck",
        "--health_check=test -e well && faultrun doctor --device", "--standby=none", str(script),
    )  # fmt: skip
    wait_until(
        lambda: run.events("FirstStep", incarnation=1) or None,
        within_s=SLOW_S,
        while_runs=run.pid,
        what="a step of the smaller world",
    )
    shown = subprocess.run([*FAULTRUN, "status"], cwd=launcher.folder, capture_output=True, check=True)
    assert b"  workers     2 of 3, without slot 1: its device failed" in shown.stdout
    (launcher.folder / "well").touch()
    assert run.ends(within_s=SLOW_S) == 0
    assert "  workers   2 of 3, without slot 1: its device failed: the device is faulty" in run.card(1)
    assert run.event("SlotsUsable")["slots"] == [1]
    plans = [line["plan"]["topology"]["nodes"][0] for line in run.events("PlanAdopted")]
    assert [(seat["slots"], seat.get("places")) for seat in plans] == [(3, None), (2, [0, 2]), (3, None)]
    assert "  cause     slot 1 is well again: 1 worker more" in run.card(2)
    assert " after they were told to save" in run.text
    is_the_same_training(launcher.folder)


def test_shards_in_a_folder_that_is_cut_anew_serve_fewer_ranks_whatever_gasps_lie_beside_it(
    launcher: Launcher,
) -> None:
    run = launcher.command(
        "--framework=torch", "--worker_num=2", "--min_worker_num=1", "--checkpoint_dir=ck", "--standby=none",
        str(SHRINKS), environ={"SHARDED": "1"},
    )  # fmt: skip
    assert run.ends(within_s=SLOW_S) == 0
    assert "  workers   1 of 2, without slot 1: its device failed" in run.card(1)
    assert re.search(r"resume .*/ck/step-2 .* lost 1 step", run.card(1))
    is_the_same_training(launcher.folder, {1, 2})


def test_with_a_file_for_each_rank_no_rank_is_left_out_and_it_is_said_why(launcher: Launcher) -> None:
    run = launcher.command(
        "--worker_num=3", "--min_worker_num=2", "--checkpoint_dir=ck", "--standby=none",
        r"--checkpoint_pattern=state-(?P<step>\d+)-rank-(?P<rank>\d+)\.bin", "--backoff=10ms..20ms",
        "--resume_arg=--from={checkpoint}", sys.executable, "-c", BREAKS,
    )  # fmt: skip
    code = run.ends()
    assert "slot 1 keeps its worker: " in run.card(1)
    assert " is one of a file for each rank, and nothing says that these are alike" in run.card(1)
    assert "places" not in json.dumps([line["plan"] for line in run.events("PlanAdopted")])
    assert code in (0, 1)


def test_a_whole_copy_of_the_model_leaves_a_hybrid_plan_and_comes_back(launcher: Launcher) -> None:
    run = launcher.command(
        "--worker_num=4", "--min_worker_num=2", "--health_check=test -e well", "--checkpoint_dir=ck",
        "--standby=none", str(HYBRID),
    )  # fmt: skip
    run.trains(range(2), incarnation=1)
    assert [run.log(rank, 1).splitlines()[0] for rank in range(2)] == ["from 5"] * 2
    assert (
        "  workers   2 of 4, without slot 0: its copy of the model lacks rank 1;"
        " slot 1: its device failed: the device is faulty" in run.card(1)
    )
    (launcher.folder / "well").touch()
    assert subprocess.run([*FAULTRUN, "checkpoint-now"], cwd=launcher.folder, check=False).returncode == 0

    def taken_back() -> bool | None:
        """Saves are looked for while this one is written: it has to be a new one until it was seen."""
        for path in launcher.folder.glob("ck/rank_*/count-step_8.json"):
            path.touch()
        return bool(run.events("SlotsUsable")) or None

    wait_until(taken_back, while_runs=run.pid, what="the slot that is well again")
    assert run.ends() == 0
    assert [run.log(rank, 2).splitlines()[0] for rank in range(4)] == ["from 8"] * 4
    plans = [line["plan"] for line in run.events("PlanAdopted")]
    assert [plan["topology"]["nodes"][0].get("places") for plan in plans] == [None, [2, 3], None]
    first, smaller, all_again = (plan["point"] and plan["point"]["restore_ranks_map"] for plan in plans)
    assert first is None
    assert smaller in ('{"0": 0, "1": 3}', '{"0": 2, "1": 3}')  # the file of a rank that is dead is doubtful
    assert all_again == '{"0,2": 0, "1,3": 1}'
