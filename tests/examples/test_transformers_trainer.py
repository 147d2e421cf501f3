"""examples/09_transformers_trainer: whatever kills it and whenever, Trainer ends with the same bits."""

import os
import signal
from pathlib import Path

import pytest

from examples.codes import (
    faultrun,
    final_line,
    killed_while,
    last_step,
    losses,
    resumed_at,
    undisturbed,
)
from examples.launched import launched
from support.machine.installed import need
from support.places import ROOT

need("transformers")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = ROOT / "examples" / "09_transformers_trainer" / "train.py"
OPTIONS = ("--output_dir", "out", "--steps", "36", "--save_every", "8")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    cwd = tmp_path_factory.mktemp("undisturbed")
    return final_line(
        undisturbed(
            SCRIPT,
            *OPTIONS,
            imports=("transformers.trainer", "transformers.models.gpt2.modeling_gpt2"),
            cwd=cwd,
        )
    )


def test_a_rank_killed_in_the_middle_and_one_killed_as_it_saves_change_no_bit(
    expected: str, tmp_path: Path
) -> None:
    def half_written() -> bool:
        folders = (tmp_path / "out" / f"checkpoint-{step}" for step in (24, 32))
        return any(one.is_dir() and not (one / "trainer_state.json").exists() for one in folders)

    command = faultrun("--checkpoint_dir=out", SCRIPT, *OPTIONS, "--step_s=0.05")
    with launched(*command, cwd=tmp_path) as run:
        run.wait_until(lambda: last_step(run, 0) >= 12, within_s=120)
        run.kill(1)
        run.wait_until(lambda: last_step(run, 1) >= 17, within_s=120)
        killed_while(run, 0, half_written, within_s=60)
        assert run.wait_for_the_end(within_s=120) == 0
        assert final_line(run.output(2).text) == expected
        for incident in (0, 1):
            assert max(losses(run, incident)) - resumed_at(run, incident) <= 1, "a step was lost"
            assert min(losses(run, incident + 1)) == resumed_at(run, incident) + 1
        assert resumed_at(run, 1) in (24, 32), "the survivor of a half written checkpoint saved the same step"


def test_a_stop_and_a_torn_gasp_go_on_from_trainers_own_checkpoint(expected: str, tmp_path: Path) -> None:
    command = faultrun("--checkpoint_dir=out", SCRIPT, *OPTIONS, "--step_s=0.05")
    with launched(*command, cwd=tmp_path) as run:
        run.wait_until(lambda: last_step(run, 0) >= 12, within_s=120)
        os.kill(run.supervisor, signal.SIGTERM)
        assert run.wait_for_the_end(within_s=60) == 143
        assert {one["step"] for one in run.journal("GaspSaved")} & {last_step(run, 0), last_step(run, 0) + 1}
    gasps = list((tmp_path / "out" / "_gasp").glob("rank_*/checkpoint-*/optimizer.pt"))
    assert gasps
    for path in gasps:
        os.truncate(path, path.stat().st_size // 2)
    with launched(*command, cwd=tmp_path) as run:
        assert run.wait_for_the_end(within_s=120) == 0
        assert final_line(run.output(1).text) == expected
        assert min(losses(run, 1)) == 9
        refused = [one for point in run.journal("RecoveryPointChosen") for one in point["refused"]]
        assert any("its optimizer.pt: has" in one["why"] for one in refused)
