"""examples/03_mindio_ttp: whichever rank is killed, also rank 0, the next step is made and no bit is lost."""

from pathlib import Path

import pytest

from examples.documented import documented
from examples.launched import Output, launched

pytestmark = [pytest.mark.mindspore, pytest.mark.slow]

WORKERS = 2
STEPS_PER_EPOCH = 45
LAST_STEP = 2 * STEPS_PER_EPOCH


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Output:
    example = documented("03_mindio_ttp", tmp_path_factory.mktemp("undisturbed"))
    with launched(*example.command_for(WORKERS), "--epochs=2", "--step_delay=0", cwd=example.folder) as run:
        assert run.wait_for_the_end(within_s=180) == 0, run.console
        return Output(text=run.output(0).text)


def test_the_survivors_save_and_training_goes_on_a_step_later(undisturbed: Output, tmp_path: Path) -> None:
    victim = 0  # the rank that scripts save from, and that nobody else's checkpoint callback can do without
    example = documented("03_mindio_ttp", tmp_path)
    command = (*example.command_for(WORKERS), "--epochs=2", "--step_delay=0.02")
    with launched(*command, cwd=example.folder) as run:
        run.wait_until(lambda: run.step(0, rank=1) >= STEPS_PER_EPOCH + 5, within_s=180)
        run.kill(victim)
        assert run.wait_for_the_end(within_s=180) == 0, run.console

        path, resumed_at = run.output(1).resumed
        made = max(max(run.output(0, rank).losses) for rank in range(WORKERS))
        assert made - 1 <= resumed_at <= made + 1  # a rank may have made a step that it had not printed yet
        epoch, step = (resumed_at - 1) // STEPS_PER_EPOCH + 1, (resumed_at - 1) % STEPS_PER_EPOCH + 1
        rank = int(Path(path).parent.name.removeprefix("rank_"))
        assert rank != victim
        assert Path(path).parts[-4:] == (
            "ttp_checkpoints",
            f"tft_saved_checkpoints-step_{resumed_at}",
            f"rank_{rank}",
            f"ttp_rank_{rank}-{epoch}_{step}.ckpt",
        )
        assert list(run.output(1).losses) == list(range(resumed_at + 1, LAST_STEP + 1))
        card = (example.folder / "faultrun_log" / "incident_1.txt").read_text(encoding="utf-8")
        assert "lost 0 steps" in card or "lost 1 step" in card
        assert run.output(1).final == undisturbed.final
    assert example.is_restored(), "the recipe passes arguments and rewrites nothing"
