"""examples/06_pytorch_resnet50: both ranks are started again with --resume=true, if there is a whole file."""

from pathlib import Path

import pytest

from examples.documented import documented
from examples.launched import Run, launched

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TEARS = """
import os, signal, sys
from pathlib import Path
if os.environ["RANK"] == "0":
    Path("torn").write_bytes(Path("whole").read_bytes()[:-1000])
    Path("torn").replace("rank_0/model_best.pth.tar")
print("training", flush=True)
signal.pause()
"""
STEPS_PER_EPOCH = 22
LAST_STEP = 132


def saved_epochs(run: Run) -> list[int]:
    """Epochs whose model was the best so far, in the first incarnation."""
    lines = run.output(0).text.splitlines()
    return [int(line.split("epoch so far: ")[1].split(",")[0]) for line in lines if line.startswith("saved ")]


def test_a_killed_rank_costs_what_was_not_the_best_yet(tmp_path: Path) -> None:
    example = documented("06_pytorch_resnet50", tmp_path)
    with launched(*example.command, "--step-delay=0.02", cwd=example.folder) as run:
        run.wait_until(lambda: run.step(0) >= 2 * STEPS_PER_EPOCH + 5, within_s=240)
        run.kill(1)
        assert run.wait_for_the_end(within_s=240) == 0

        for rank in range(2):
            path, resumed_at = run.output(1, rank).resumed
            assert path == "rank_0/model_best.pth.tar"
            assert resumed_at == saved_epochs(run)[-1] * STEPS_PER_EPOCH
            assert list(run.output(1, rank).losses) == list(range(resumed_at + 1, LAST_STEP + 1))
        (point,) = [found["point"] for found in run.journal("RecoveryPointChosen") if found["point"]]
        assert (point["kind"], point["epoch"]) == ("best", saved_epochs(run)[-1])
        assert float(run.output(1).final.split()[4]) > 0.9
        assert not (run.log_dir / "incarnation_2").exists(), "one restart was enough"
    assert example.is_restored(), "the recipe passes an argument and rewrites nothing"


def test_with_a_torn_file_training_does_not_start_from_the_beginning(tmp_path: Path) -> None:
    """The README's command; nothing is trained, as everything happens to the file that training leaves."""
    torch = pytest.importorskip("torch")
    example = documented("06_pytorch_resnet50", tmp_path)
    best = example.folder / "rank_0" / "model_best.pth.tar"
    best.parent.mkdir()
    torch.save({"epoch": 1, "state_dict": {"weight": torch.zeros(5000)}}, best)
    best.rename(example.folder / "whole")
    (example.folder / "train.py").write_text(TEARS)
    with launched(*example.command, cwd=example.folder) as run:
        run.wait_until(lambda: "training\n" in run.output(0, 1).text and best.exists(), within_s=240)
        run.kill(1)
        assert run.wait_for_the_end(within_s=240) == 65
        assert "none whole" in run.console
        assert not (run.log_dir / "incarnation_1").exists()
