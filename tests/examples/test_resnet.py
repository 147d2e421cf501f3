"""examples/04_mindspore_resnet: the recipe finds the checkpoints by the YAML and sets three values of it."""

import json
from pathlib import Path

import pytest

from examples.documented import documented
from examples.launched import FAULTRUN, launched, run_to_the_end

pytestmark = [pytest.mark.mindspore, pytest.mark.slow]

CONFIG = "resnet_digits_config.yaml"
STEPS_PER_EPOCH = 15
LAST_STEP = 60


def test_a_killed_worker_costs_no_more_than_an_epoch_and_three_values(tmp_path: Path) -> None:
    example = documented("04_mindspore_resnet", tmp_path)
    with launched(*example.command, "--step_delay=0.02", cwd=example.folder) as run:
        run.wait_until(lambda: run.step(0) >= 2 * STEPS_PER_EPOCH + 5, within_s=240)
        run.kill(1)
        assert run.wait_for_the_end(within_s=240) == 0

        first, second = run.output(0).losses, run.output(1).losses
        path, resumed_at = run.output(1).resumed
        assert resumed_at == max(first) // STEPS_PER_EPOCH * STEPS_PER_EPOCH, "the last epoch that was whole"
        assert list(second) == list(range(resumed_at + 1, LAST_STEP + 1))
        assert float(run.output(1).final.split()[4]) > 0.9
        changed = example.changed_lines(CONFIG)
        assert [new.split("#")[0].strip() for new in changed.values()] == [
            f'pre_trained: "{path}"',
            f"has_trained_epoch: {resumed_at // STEPS_PER_EPOCH}",
            f"has_trained_step: {resumed_at}",
        ]
        assert all(old.partition("#")[2] == new.partition("#")[2] for old, new in changed.items())
        assert not (run.log_dir / "incarnation_2").exists(), "one restart was enough"

    newest = json.loads(
        run_to_the_end(*FAULTRUN, "ckpt", "choose", "--json", "output", cwd=example.folder, within_s=30)
    )
    assert (newest["global_step"], newest["epoch"]) == (LAST_STEP, LAST_STEP // STEPS_PER_EPOCH)
    assert example.rewritten == {CONFIG: 3}
    assert example.is_restored()
