"""examples/08_mindio_uce: the switches arrive in a spelling that works, and killed workers come back."""

from pathlib import Path

import pytest

from examples.documented import documented
from examples.launched import launched

pytestmark = [pytest.mark.mindspore, pytest.mark.slow]

SAVE_EVERY = 10
LAST_STEP = 88
SWITCHES = "MS_ENABLE_TFT={UCE:1,TTP:1} features UCE TTP parser {'UCE': '1', 'TTP': '1'}"


def test_the_documents_spelling_is_put_right_and_training_recovers(tmp_path: Path) -> None:
    example = documented("08_mindio_uce", tmp_path)
    with launched(*example.command, "--epochs=4", "--step_delay=0.01", cwd=example.folder) as run:
        run.wait_until(lambda: run.step(0) > 2 * SAVE_EVERY, within_s=240)
        run.kill(0)
        assert run.wait_for_the_end(within_s=240) == 0

        assert "MS_ENABLE_TFT={UCE:1 TTP:1} is handed on as {UCE:1,TTP:1}" in run.console
        for incarnation in range(2):
            for rank in range(2):
                assert f"rank {rank} {SWITCHES}\n" in run.output(incarnation, rank).text
        first, second = run.output(0).losses, run.output(1).losses
        path, resumed_at = run.output(1).resumed
        assert Path(path).is_relative_to(example.folder / "ttp_checkpoints")
        assert max(first) - SAVE_EVERY <= resumed_at <= max(first) + 1  # the other rank may be a line ahead
        assert list(second) == list(range(resumed_at + 1, LAST_STEP + 1))
        assert all(second[step] == first[step] for step in first if step > resumed_at)
        assert float(run.output(1).final.split()[4]) > 0.9
    assert example.is_restored(), "the recipe sets variables and rewrites nothing"
