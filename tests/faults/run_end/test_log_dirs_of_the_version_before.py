"""Whole folders that an earlier version left: the same command goes on with each where it ended.

``tests/data/log_dirs/*.tar.gz`` were written by runs of that version, not by hand: two workers of
``count.py``, one killed in the first life. Paths, host and Python are put back as they are here.
"""

import json
import socket
import subprocess
import sys
import tarfile

import pytest

from support.machine.processes import PATIENCE_S
from support.places import DATA
from support.runs import Launcher, Run

KEPT = DATA / "log_dirs"


def left_by(name: str, launcher: Launcher) -> None:
    """Lay the folder ``name`` out as the version before left it."""
    with tarfile.open(KEPT / f"{name}.tar.gz") as packed:
        packed.extractall(launcher.folder, filter="tar")
    here = {
        b"@HERE@": bytes(launcher.folder),
        b"@NODE@": socket.gethostname().encode(),
        b"@PYTHON@": sys.executable.encode(),
    }
    for path in [p for p in launcher.folder.rglob("*") if p.suffix in (".json", ".jsonl", ".txt")]:
        content = path.read_bytes()
        for mark, value in here.items():
            content = content.replace(mark, value)
        path.write_bytes(content)


def again(name: str, launcher: Launcher) -> Run:
    """The command that began it, once more."""
    run = launcher.command(
        "--worker_num=2", "--checkpoint_dir=ck", "--log_dir=log", "--standby=none", f"--run_id=kept-{name}",
        "--backoff=0s", "count.py",
    )  # fmt: skip
    run.log_dir = launcher.folder / "log"
    return run


@pytest.mark.parametrize(("name", "step"), [("cut_off", 5), ("stopped", 8)])
def test_a_run_that_was_cut_off_or_stopped_goes_on(name: str, step: int, launcher: Launcher) -> None:
    left_by(name, launcher)
    (launcher.folder / "unfinished").unlink()
    run = again(name, launcher)
    assert run.ends() == 0, run.text
    assert f"from {step}\n" in run.log(0, incarnation=2)
    assert [line["seq"] for line in run.events()] == list(range(len(run.events())))
    assert run.events("RunFinished")[-1]["incarnation"] == 2
    assert not list(run.log_dir.glob("incident_2.*"))


def test_a_run_that_was_given_up_gets_another_try_from_its_checkpoint(launcher: Launcher) -> None:
    left_by("given_up", launcher)
    (launcher.folder / "broken").unlink()
    run = again("given_up", launcher)
    assert run.ends() == 0, run.text
    assert "given up" in run.text
    assert "from 5\n" in run.log(0, incarnation=5)
    assert run.events("IncarnationStarted")[-1]["incarnation"] == 5


def test_what_an_earlier_version_left_is_shown_by_the_verbs(launcher: Launcher) -> None:
    left_by("stopped", launcher)
    for words in (("status", "--json"), ("incident", "1"), ("report", "--json")):
        shown = subprocess.run(
            [*launcher.faultrun, *words, "--log_dir=log"],
            cwd=launcher.folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert shown.returncode == 0, shown.stderr
        if "--json" in words:
            assert json.loads(shown.stdout)["run_id"] == "kept-stopped"
