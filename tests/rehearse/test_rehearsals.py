"""Real rehearsals of a small training that does everything right."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faultrun.rehearse.isolation.file_digests import changed, marks_of
from support.machine.processes import PATIENCE_S, marked, wait_until
from support.places import TESTS
from support.rehearsals import fault

pytestmark = pytest.mark.slow

SCRIPT = TESTS / "rehearse" / "scripts" / "train.py"

Rehearse = Callable[..., tuple[int, dict[str, Any]]]


def test_a_sound_training_survives_all_and_leaves_everything_as_it_was(
    rehearse: Rehearse, tmp_path: Path
) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "model-step_900.safetensors").write_bytes(b"of another training")
    (tmp_path / "faultrun_log").mkdir()
    (tmp_path / "faultrun_log" / "mine.txt").write_text("kept")
    before = marks_of([str(tmp_path)])
    code, found = rehearse("--hang_signal=log", least_s=14.4)
    assert changed(before, marks_of([str(tmp_path)])) == ()
    assert (code, found["survived"], found["complete"], found["changed"]) == (0, True, True, [])
    assert [one["outcome"] for one in found["faults"]] == ["survived"] * 6
    for name in ("rank", "rank0", "stop", "supervisor", "torn"):
        one = fault(found, name)
        assert one["losses"] == "same" and one["losses_compared"] > 0
        assert one["steps_lost"] <= 40
        assert one["training_again_s"] > 0
        assert one["resumed_from"].startswith("step ")
    assert fault(found, "freeze")["resumed_from"] == "woken by SIGCONT"
    assert found["grade"] in ("A", "B")
    assert found["files_checked"] == len(before)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nothing_outlives_a_rehearsal_that_is_ended(tmp_path: Path, signum: int) -> None:
    (tmp_path / "scratch").mkdir()
    name, value = "TEST_MARK", os.urandom(8).hex()
    words = ("rehearse", "--minutes=2", f"--scratch={tmp_path}/scratch", "--worker_num=2", str(SCRIPT))
    with (tmp_path / "said").open("wb") as said:
        running = subprocess.Popen(
            [sys.executable, "-m", "faultrun", *words],
            cwd=tmp_path,
            env={**os.environ, name: value},
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    with running:
        # The command, the process of its scene, the supervisor, two workers and their helpers.
        wait_until(lambda: len(marked(f"{name}={value}")) > 4, while_runs=running.pid, what="its workers")
        running.send_signal(signum)
        running.wait(PATIENCE_S)
    wait_until(lambda: not marked(f"{name}={value}"), what="the end of all processes")
    if signum != signal.SIGKILL:
        assert running.returncode == 128 + signum
        name = signal.Signals(signum).name
        assert f"the rehearsal was ended by {name}" in (tmp_path / "said").read_text().splitlines()[-1]
        assert not list((tmp_path / "scratch").iterdir())
