"""examples/15_survivors_stay: a rank is killed, the others keep one process to the end; no bit changes."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from examples.launched import FAULTRUN, finals, launched, run_to_the_end
from support.places import ROOT

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TRAIN = ROOT / "examples" / "15_survivors_stay" / "train.py"
LAST_STEP = 40


def test_a_killed_rank_changes_no_bit_and_no_other_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    words = (*FAULTRUN, "--nproc-per-node=3", "--standby=none", "--rejoin_timeout=120s", TRAIN, "--epochs=2")
    folder = tmp_path_factory.mktemp("undisturbed")
    run_to_the_end(*words, cwd=folder, within_s=240)
    folder_of = "faultrun_log/incarnation_0/worker_{}.log"
    undisturbed = [(folder / folder_of.format(rank)).read_text() for rank in range(3)]
    with launched(*words, "--step_delay_s=0.02", cwd=tmp_path_factory.mktemp("killed")) as run:
        logs = [run.log_dir / "incarnation_0" / f"worker_{rank}.log" for rank in range(3)]
        run.wait_until(
            lambda: all(log.exists() and "step 9 " in log.read_text() for log in logs), within_s=240
        )
        run.kill(1)
        assert run.wait_for_the_end(within_s=240) == 0
        for rank, log in enumerate(logs):
            assert finals(log.read_text()) == finals(undisturbed[rank])
            pids = pids_of(log.read_text())
            assert len(pids) == (2 if rank == 1 else 1)
            steps = sorted(step for done in pids.values() for step in done)
            assert len(steps) == len(set(steps)), "a step was done twice"
            # What the killed rank did last others may have finished without it.
            assert LAST_STEP - len(steps) <= (rank == 1)


def test_the_others_train_on_and_end_alike_whether_the_killed_rank_is_back_by_then_or_not(
    tmp_path: Path,
) -> None:
    words = (*FAULTRUN, "--nproc-per-node=3", "--standby=none", "--while_missing=train", TRAIN, "--epochs=2")
    with launched(*words, "--step_delay_s=0.02", cwd=tmp_path) as run:
        logs = [run.log_dir / "incarnation_0" / f"worker_{rank}.log" for rank in range(3)]
        run.wait_until(
            lambda: all(log.exists() and "step 9 " in log.read_text() for log in logs), within_s=240
        )
        run.kill(1)
        assert run.wait_for_the_end(within_s=240) == 0
        texts = [log.read_text() for log in logs]
        assert all(len(pids_of(text)) == 1 for text in (texts[0], texts[2]))
        ends = set(re.findall(r"rank \d final (.*)", "\n".join(texts)))
        assert len(ends) == 1, "the same weights on all ranks"
        assert ends.pop().startswith(f"step {LAST_STEP} ")


def pids_of(text: str) -> dict[str, list[int]]:
    """The steps that each process of a rank has done."""
    steps: dict[str, list[int]] = defaultdict(list)
    for pid, step in re.findall(r"rank \d pid (\d+) step (\d+) ", text):
        steps[pid].append(int(step))
    return steps
