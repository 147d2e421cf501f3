"""examples/02_torch_ddp: one word changed, the same training; a kill in the middle changes no bit."""

import shutil
from pathlib import Path

import pytest

from examples.documented import changed_files
from examples.launched import FAULTRUN, TORCHRUN, Output, launched, run_to_the_end
from support.places import ROOT

pytestmark = [pytest.mark.torch, pytest.mark.slow]

EXAMPLE = ROOT / "examples" / "02_torch_ddp"
LAST_STEP = 176
SAVE_EVERY = 10


@pytest.fixture(scope="module")
def under_torchrun(tmp_path_factory: pytest.TempPathFactory) -> Output:
    """The example as it stands, undisturbed."""
    command = (*TORCHRUN, "--standalone", "--nproc-per-node", "2", EXAMPLE / "train.py")
    return Output(text=run_to_the_end(*command, cwd=tmp_path_factory.mktemp("torchrun"), within_s=120))


def test_a_killed_rank_changes_no_bit_of_what_torchrun_trains(under_torchrun: Output, tmp_path: Path) -> None:
    victim = 0  # the rank that saves, and that the other one has met at
    config = tmp_path / "config.yaml"
    shutil.copy(EXAMPLE / "config.yaml", config)
    recovery = ("--checkpoint_dir=digits", "--rewrite", "config.yaml:pre_trained", "--restore_configs=never")
    script = (EXAMPLE / "train.py", "--config", "config.yaml", "--log_steps=1", "--step_delay_s=0.01")
    with launched(*FAULTRUN, "--nproc-per-node=2", *recovery, *script, cwd=tmp_path) as run:
        run.wait_until(lambda: run.step(0) >= 35, within_s=240)
        run.kill(victim)
        assert run.wait_for_the_end(within_s=240) == 0

        first, second = run.output(0).losses, run.output(1).losses
        path, resumed_at = run.output(1).resumed
        assert max(first) - SAVE_EVERY <= resumed_at <= max(first)
        assert list(second) == list(range(resumed_at + 1, LAST_STEP + 1))
        assert all(second[step] == first[step] for step in first if step > resumed_at)
        assert run.output(1).final == under_torchrun.final
        assert Path(path).name in config.read_text(encoding="utf-8")
        assert not (run.log_dir / "incarnation_2").exists(), "one restart was enough"
    assert changed_files(EXAMPLE, tmp_path) == {"config.yaml": 1}
    run_to_the_end(*FAULTRUN, "config", "restore", cwd=tmp_path, within_s=60)
    assert changed_files(EXAMPLE, tmp_path) == {}
