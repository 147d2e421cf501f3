"""examples/01_mindspore_lenet: the documented command works; a kill in the middle changes no bit."""

import shutil
from pathlib import Path

import pytest

from examples.documented import changed_files
from examples.launched import FAULTRUN, Output, in_background, launched, run_to_the_end
from support.places import ROOT

pytestmark = [pytest.mark.mindspore, pytest.mark.slow]

EXAMPLE = ROOT / "examples" / "01_mindspore_lenet"
SHORTER = "--epochs=1"  # equal weights say more than a good accuracy
LAST_STEP = 45
SAVE_EVERY = 10
DOCUMENTED = (
    *("--worker_num=2", "--local_worker_num=2", "--master_port=10970"),
    *("--join=False", "--log_dir=msrun_log", "--cluster_time_out=300"),
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Output:
    """The command line of MindSpore's documents, with another word in front of it."""
    command = (*FAULTRUN, *DOCUMENTED, EXAMPLE / "train.py", SHORTER)
    with in_background(*command, cwd=tmp_path_factory.mktemp("undisturbed"), log_dir="msrun_log") as run:
        assert run.wait_for_the_end(within_s=240) == 0
        return run.output(0)


def test_a_killed_rank_changes_no_bit_of_the_result(undisturbed: Output, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    shutil.copy(EXAMPLE / "config.yaml", config)
    recovery = ("--checkpoint_dir=lenet", "--rewrite", "config.yaml:pre_trained", "--restore_configs=never")
    script = (
        EXAMPLE / "train.py",
        "--config",
        "config.yaml",
        "--log_steps=1",
        "--step_delay_s=0.04",
        SHORTER,
    )
    with launched(*FAULTRUN, "--worker_num=2", *recovery, *script, cwd=tmp_path) as run:
        run.wait_until(lambda: run.step(0) >= 25, within_s=240)
        run.kill(1)
        assert run.wait_for_the_end(within_s=240) == 0

        first, second = run.output(0).losses, run.output(1).losses
        path, resumed_at = run.output(1).resumed
        assert max(first) - SAVE_EVERY <= resumed_at <= max(first) + 1  # another rank may be a line ahead
        assert resumed_at < LAST_STEP, "the checkpoint lies inside the epoch"
        assert list(second) == list(range(resumed_at + 1, LAST_STEP + 1))
        assert all(second[step] == first[step] for step in first if step > resumed_at)
        assert run.output(1).final == undisturbed.final
        assert Path(path).name in config.read_text(encoding="utf-8")
        assert not (run.log_dir / "incarnation_2").exists(), "one restart was enough"
    assert changed_files(EXAMPLE, tmp_path) == {"config.yaml": 1}
    run_to_the_end(*FAULTRUN, "config", "restore", cwd=tmp_path, within_s=60)
    assert changed_files(EXAMPLE, tmp_path) == {}
