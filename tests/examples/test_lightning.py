"""examples/11_lightning: whatever kills it, the Trainer and the Fabric loop end with the same bits."""

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("lightning")

from examples.codes import faultrun, final_line, last_step, losses, resumed_at, under_torchrun
from examples.launched import ROOT, Run, launched

pytestmark = [pytest.mark.torch, pytest.mark.slow]

EXAMPLE = ROOT / "examples" / "11_lightning"
OPTIONS = ("--output_dir", "out", "--steps", "36", "--save_every", "8")
RESUMED_BY = {"train.py": "--ckpt_path", "fabric.py": "--resume"}


@pytest.fixture(scope="module", params=RESUMED_BY)
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A script, and how it ends undisturbed."""
    script = str(request.param)
    cwd = tmp_path_factory.mktemp(Path(script).stem)
    return script, under_torchrun(EXAMPLE / script, *OPTIONS, cwd=cwd)


def command(script: str) -> tuple[str | Path, ...]:
    resume = f"--resume_arg={RESUMED_BY[script]}={{checkpoint}}"
    return faultrun("--checkpoint_dir=out", resume, EXAMPLE / script, *OPTIONS)


def assert_no_step_is_lost(run: Run, incident: int) -> None:
    assert max(losses(run, incident)) - resumed_at(run, incident) <= 1
    assert min(losses(run, incident + 1)) == resumed_at(run, incident) + 1


def test_a_rank_killed_in_mid_epoch_and_one_killed_as_it_saves_change_no_bit(
    code: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, undisturbed = code
    monkeypatch.setenv("FAULTRUN_CHAOS", "kill:rank=1,step=11;kill:rank=0,phase=save,step=24,life=1")
    with launched(*command(script), cwd=tmp_path) as run:
        assert run.wait_for_the_end(within_s=180) == 0
        assert final_line(run.output(2).text) == undisturbed
        assert_no_step_is_lost(run, 0)
        assert_no_step_is_lost(run, 1)
        assert resumed_at(run, 1) == 24, "the survivor of a save that was never made saved the same step"


def test_told_to_stop_nothing_is_lost_and_with_torn_gasps_the_codes_own_save_serves(
    code: tuple[str, str], tmp_path: Path
) -> None:
    script, undisturbed = code
    with launched(*command(script), "--step_s=0.05", cwd=tmp_path) as run:
        run.wait_until(lambda: last_step(run, 0) >= 12, within_s=120)
        os.kill(run.supervisor, signal.SIGTERM)
        assert run.wait_for_the_end(within_s=60) == 143
        assert {one["step"] for one in run.journal("GaspSaved")} & {last_step(run, 0), last_step(run, 0) + 1}
    if script == "train.py":
        gasps = list((tmp_path / "out").glob("rank_*/gasp-step_*.ckpt"))
        assert gasps
        for path in gasps:
            os.truncate(path, path.stat().st_size // 2)
    with launched(*command(script), cwd=tmp_path) as run:
        assert run.wait_for_the_end(within_s=120) == 0
        assert final_line(run.output(1).text) == undisturbed
        if script == "train.py":
            assert min(losses(run, 1)) == 9, "ModelCheckpoint's own save was the newest that is whole"
