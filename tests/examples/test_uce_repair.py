"""examples/08_mindio_uce on an emulated device: each class of memory error ends as the README says."""

import re
import shlex
from pathlib import Path

import pytest

from examples.documented import documented
from examples.launched import FAULTRUN, finals, launched, run_to_the_end

pytestmark = [pytest.mark.torch, pytest.mark.slow]

LAST_STEP = 40
CARDS = (
    ("rank 1 of 3 has bad memory", "persistent memory fault: EMULATED", "rank 1 was repaired in place"),
    ("rank 0 of 3 has bad memory", "temporary memory fault: EMULATED", "rank 0 was repaired in place"),
    ("rank 2 of 3 exited with code 1", "EMULATED", "ranks 0 1, which stayed"),
    ("rank 1 of 3 exited with code 1", "EMULATED", "ranks 0 2, which stayed"),
)
"""Of classes 3, 2, 1 and 0, in the order of the README's command."""


def test_two_classes_are_repaired_in_place_and_two_end_the_process_and_no_bit_is_lost(tmp_path: Path) -> None:
    example = documented("08_mindio_uce", tmp_path)
    readme = (example.folder / "README.md").read_text(encoding="utf-8")
    line = next(line for line in readme.splitlines() if "repair_emulated.py --uce" in line)
    words = (*FAULTRUN, "--rejoin_timeout=200", *shlex.split(line)[1:])
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    plain = [word for word in words if not word.startswith("--uce=")]
    script = [str(example.folder / word) if word.endswith(".py") else word for word in plain]
    run_to_the_end(*script, cwd=undisturbed, within_s=240)
    with launched(*words, cwd=example.folder) as run:
        assert run.wait_for_the_end(within_s=240) == 0
        for rank in range(3):
            assert finals(text_of(run.log_dir, rank)) == finals(text_of(undisturbed / "faultrun_log", rank))
            assert steps_of(text_of(run.log_dir, rank)) == list(range(1, LAST_STEP + 1))
        for number, expected in enumerate(CARDS, start=1):
            card = (run.log_dir / f"incident_{number}.txt").read_text(encoding="utf-8")
            assert [told for told in expected if told not in card] == []
        assert [len(pids_of(text_of(run.log_dir, rank))) for rank in range(3)] == [1, 2, 2]
        log = text_of(run.log_dir, 0)
        assert log.startswith("EMULATED NPU: ")
        assert "rank 0 MS_ENABLE_TFT={UCE:1,TTP:1} MINDIO_FOR_MINDSPORE=1\n" in log
        # Stopped by another's fault, resumed; its own: looked at, too; two deaths end the group.
        calls = "stop restart resume stop check restart resume stop restart stop restart"
        assert f"rank 0 EMULATED device: {calls}\n" in log


def text_of(log_dir: Path, rank: int) -> str:
    return (log_dir / "incarnation_0" / f"worker_{rank}.log").read_text(encoding="utf-8")


def steps_of(text: str) -> list[int]:
    return sorted({int(step) for step in re.findall(r"rank \d pid \d+ step (\d+) ", text)})


def pids_of(text: str) -> set[str]:
    return set(re.findall(r"rank \d pid (\d+) ", text))
