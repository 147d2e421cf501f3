"""examples/07_tensorflow: one value of a Python configuration is set, and the file comes back as it was."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.documented import documented
from examples.launched import launched

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="needs faultrun[tensorflow]"),
]

CONFIG = "configs/res50_digits_1p.py"
SAVE_EVERY = 10
LAST_STEP = 132


def test_a_killed_worker_changes_no_bit_of_the_result(tmp_path: Path) -> None:
    example = documented("07_tensorflow", tmp_path)
    with launched(*example.command, "--step_delay=0.02", cwd=example.folder) as run:
        run.wait_until(lambda: run.step(0) >= 44, within_s=240)
        run.kill(1)
        assert run.wait_for_the_end(within_s=240) == 0

        first, second = run.output(0).losses, run.output(1).losses
        path, resumed_at = run.output(1).resumed
        assert run.output(1, 1).resumed == (path, resumed_at)
        assert Path(path) == example.folder / "model_dir" / "device_0" / f"model.ckpt-{resumed_at}"
        assert max(first) - SAVE_EVERY <= resumed_at <= max(first)
        assert list(second) == list(range(resumed_at + 1, LAST_STEP + 1))
        assert all(second[step] == first[step] for step in first if step > resumed_at)
        assert run.output(1, 0).final == run.output(1, 1).final
        assert float(run.output(1).final.split()[4]) > 0.9
        assert example.changed_lines(CONFIG) == {
            "    'restore_path': '',": f"    'restore_path': '{Path(path).parent}',"
        }
    assert example.rewritten == {CONFIG: 1}
    assert example.is_restored()
