"""examples/10_accelerate: whatever kills it and whenever, it ends with the same bits."""

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

need("accelerate")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = ROOT / "examples" / "10_accelerate" / "train.py"
OPTIONS = ("--output_dir", "out", "--steps", "64", "--save_every", "8")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    cwd = tmp_path_factory.mktemp("undisturbed")
    return final_line(undisturbed(SCRIPT, *OPTIONS, imports=("accelerate",), cwd=cwd))


def test_a_rank_killed_in_the_middle_and_one_killed_as_it_saves_change_no_bit(
    expected: str, tmp_path: Path
) -> None:
    def half_written() -> bool:
        folders = (tmp_path / "out" / f"checkpoint-{step}" for step in (32, 40, 48, 56))
        return any(one.is_dir() and not (one / "custom_checkpoint_0.pkl").exists() for one in folders)

    command = faultrun("--checkpoint_dir=out", SCRIPT, *OPTIONS, "--step_s=0.05")
    with launched(*command, cwd=tmp_path) as run:
        run.wait_until(lambda: last_step(run, 0) >= 20, within_s=120)
        run.kill(1)
        run.wait_until(lambda: last_step(run, 1) >= 25, within_s=120)
        killed_while(run, 0, half_written, within_s=60)
        assert run.wait_for_the_end(within_s=120) == 0
        assert final_line(run.output(2).text) == expected
        for incident in (0, 1):
            assert max(losses(run, incident)) - resumed_at(run, incident) <= 1, "a step was lost"
            assert min(losses(run, incident + 1)) == resumed_at(run, incident) + 1


def test_a_stop_and_a_torn_gasp_go_on_from_accelerates_own_folder(expected: str, tmp_path: Path) -> None:
    command = faultrun("--checkpoint_dir=out", SCRIPT, *OPTIONS, "--step_s=0.05")
    with launched(*command, cwd=tmp_path) as run:
        run.wait_until(lambda: last_step(run, 0) >= 20, within_s=120)
        os.kill(run.supervisor, signal.SIGTERM)
        assert run.wait_for_the_end(within_s=60) == 143
    gasps = list((tmp_path / "out" / "gasp").glob("rank_*/*.pt"))
    assert gasps
    for path in gasps:
        os.truncate(path, path.stat().st_size // 2)
    with launched(*command, cwd=tmp_path) as run:
        assert run.wait_for_the_end(within_s=120) == 0
        assert final_line(run.output(1).text) == expected
        assert min(losses(run, 1)) % 8 == 1
