"""A log_dir on a disk that fills up: training goes on or ends with a reason, and the journal stays whole."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.machine.processes import wait_until
from support.runs import Launcher

_SIZE = "size=2m"
_FILL = """
def fill():
    "All but nothing of the disk that the log_dir is on."
    try:
        with open("faultrun_log/ballast", "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
    except OSError:
        pass
"""


@pytest.fixture
def small_log_dir(launcher: Launcher) -> Iterator[Path]:
    folder = launcher.folder / "faultrun_log"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", _SIZE, "none", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no file system may be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_ends_no_training_that_prints_nothing(launcher: Launcher, small_log_dir: Path) -> None:
    run = launcher.run(
        _FILL + "if life == 0 and rank == 0:\n    fill()\n    os.remove('faultrun_log/ballast')\n"
        "    fill()\n    open('full', 'w').close()\n"
        "import time\n"
        "while not os.path.exists('full'): time.sleep(0.01)",
        workers=14,  # their ends take more than what is left of the journal's last page
    )
    assert run.ends() == 0
    assert "journal not written: No space left on device" in run.text
    text = (small_log_dir / "journal.jsonl").read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    assert [json.loads(line)["seq"] for line in whole.splitlines()] == list(range(whole.count(b"\n")))


def test_a_worker_that_cannot_print_died_of_the_full_disk(launcher: Launcher, small_log_dir: Path) -> None:
    run = launcher.run(
        _FILL + "if rank == 1:\n    fill()\n    print('x' * 10000, flush=True)\ntrain()", "--max_restarts=0"
    )
    code = run.ends()
    assert code in (1, 120)
    assert "the disk is full: no room in" in run.text


def test_after_a_full_disk_the_journal_is_read_and_goes_on(launcher: Launcher, small_log_dir: Path) -> None:
    waits = "    while not os.path.exists('begin'): time.sleep(0.01)\n"
    fills = f"import time\nif rank == 0:\n{waits}    fill()\n    open('full', 'w').close()\ntrain()"
    first = launcher.run(_FILL + fills, "--stop_grace=5s")
    first.event("IncarnationStarted")
    (launcher.folder / "begin").touch()
    wait_until((launcher.folder / "full").exists, while_runs=first.pid, what="a full disk")
    first.kill_supervisor()
    (small_log_dir / "ballast").unlink()
    second = launcher.run("say('second')")
    assert second.ends() == 0
    assert " faultrun: going on with run " in second.text.splitlines()[0]
