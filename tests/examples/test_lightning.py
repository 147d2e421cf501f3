"""examples/11_lightning: whatever kills it, the Trainer and the Fabric loop end with the same bits."""

import os
import signal
from pathlib import Path

import pytest

from examples.codes import faultrun, final_line, last_step, losses, resumed_at, undisturbed
from examples.launched import Run, launched
from faultrun.model.wire import CHECK_VARIABLE
from support.machine.installed import need
from support.places import ROOT

need("lightning")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

EXAMPLE = ROOT / "examples" / "11_lightning"
OPTIONS = ("--output_dir", "out", "--steps", "36", "--save_every", "8")
RESUMED_BY = {"train.py": "--ckpt_path", "fabric.py": "--resume"}


@pytest.fixture(scope="module", params=RESUMED_BY)
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A script, and how it ends undisturbed."""
    script = str(request.param)
    cwd = tmp_path_factory.mktemp(Path(script).stem)
    return script, final_line(undisturbed(EXAMPLE / script, *OPTIONS, imports=("digits",), cwd=cwd))


def command(script: str) -> tuple[str | Path, ...]:
    resume = f"--resume_arg={RESUMED_BY[script]}={{checkpoint}}"
    return faultrun("--checkpoint_dir=out", resume, EXAMPLE / script, *OPTIONS)


def test_stopped_with_torn_gasps_then_killed_as_it_saves_and_in_mid_epoch_no_bit_changes(
    code: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, expected = code
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    with launched(*command(script), "--step_s=0.05", cwd=tmp_path) as run:
        run.wait_until(lambda: last_step(run, 0) >= 12, within_s=120)
        os.kill(run.supervisor, signal.SIGTERM)
        assert run.wait_for_the_end(within_s=60) == 143, run.console
        assert {one["step"] for one in run.journal("GaspSaved")} & {last_step(run, 0), last_step(run, 0) + 1}
    gasps = [one for one in (tmp_path / "out").glob("rank_*/gasp-step_*") if one.suffix != ".json"]
    assert gasps
    for path in gasps:
        os.truncate(path, path.stat().st_size // 2)
    monkeypatch.setenv("FAULTRUN_CHAOS", "kill:rank=0,phase=save,step=24,life=1;kill:rank=1,step=29,life=2")
    with launched(*command(script), cwd=tmp_path) as run:
        assert run.wait_for_the_end(within_s=180) == 0, run.console
        assert min(losses(run, 1)) in (9, 17), "its own save, of step 8 or 16, was the newest that is whole"
        assert final_line(run.output(3).text) == expected
        assert resumed_at(run, 1) == 24, "the survivor of a save that was never made saved the same step"
        assert_no_step_is_lost(run, 1)
        assert_no_step_is_lost(run, 2)


def assert_no_step_is_lost(run: Run, life: int) -> None:
    """From this life to the next."""
    assert max(losses(run, life)) - resumed_at(run, life) <= 1
    assert min(losses(run, life + 1)) == resumed_at(run, life) + 1
