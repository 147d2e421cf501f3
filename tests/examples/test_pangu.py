"""examples/05_pangu_hybrid: a rank that lost its checkpoints gets those of one that holds the same slice."""

import json
import os
import signal
from pathlib import Path

import pytest

from examples.documented import documented
from examples.launched import FAULTRUN, Run, launched, run_to_the_end
from support.machine.processes import stand_still

pytestmark = [pytest.mark.mindspore, pytest.mark.slow]

RANKS = range(4)
SUPPLIERS = {0: 0, 1: 3, 2: 0, 3: 3}
SAVE_EVERY = 10
LAST_STEP = 88


def test_a_lost_slice_comes_back_from_its_replica(tmp_path: Path) -> None:
    example = documented("05_pangu_hybrid", tmp_path)
    with launched(*example.command, "--epoch_size=4", "--step_delay=0.02", cwd=example.folder) as run:
        run.wait_until(lambda: run.step(0) > 2 * SAVE_EVERY, within_s=240)
        lose(run, 1, disk=example.folder / "checkpoints" / "rank_1")
        assert run.wait_for_the_end(within_s=240) == 0

        point = next(found["point"] for found in run.journal("RecoveryPointChosen") if found["point"])
        assert point["restore_ranks"] == "0,3"
        assert json.loads(point["restore_ranks_map"]) == {"0,2": 0, "1,3": 3}
        resumed = {rank: run.output(1, rank).resumed for rank in RANKS}
        for rank, (path, step) in resumed.items():
            assert Path(path).parent.name == f"rank_{SUPPLIERS[rank]}"
            assert step == point["global_step"]
        first = {rank: run.output(0, rank).losses for rank in RANKS}
        second = {rank: run.output(1, rank).losses for rank in RANKS}
        resumed_at = point["global_step"]
        assert max(first[0]) - SAVE_EVERY <= resumed_at <= max(first[0])
        for rank in RANKS:
            assert list(second[rank]) == list(range(resumed_at + 1, LAST_STEP + 1))
            assert all(second[rank][step] == first[rank][step] for step in first[rank] if step > resumed_at)
        final = {rank: run.output(1, rank).final for rank in RANKS}
        assert final[0] == final[2] != final[1] == final[3], "replicas hold the same, slices differ"
        assert float(final[0].split()[4]) > 0.9
        assert not (run.log_dir / "incarnation_2").exists(), "one restart was enough"

    assert example.rewritten == {}, "the recipe passes arguments and rewrites nothing"
    told = run_to_the_end(*FAULTRUN, "config", "restore", cwd=example.folder, within_s=30)
    assert "no file was rewritten" in told


def lose(run: Run, rank: int, *, disk: Path) -> None:
    """Take a rank away together with what it has saved; it cannot save again in between."""
    pid = next(entry["pid"] for entry in run.journal("WorkerStarted") if entry["rank"] == rank)
    stand_still(pid)
    disk.rename(disk.parent.parent / "lost")
    os.kill(pid, signal.SIGKILL)
