"""Real rehearsals of a small training that does something wrong: the grade names it."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.places import TESTS
from support.rehearsals import fault, rehearse_command

SCRIPT = TESTS / "rehearse" / "scripts" / "train.py"

pytestmark = pytest.mark.slow

Rehearse = Callable[..., tuple[int, dict[str, Any]]]


@pytest.mark.parametrize(
    ("wrong", "faults", "grade", "named"),
    [
        ("--save_every=0", "rank", "F", "saves nothing"),
        ("--in_place", "torn", "D", "saves over its checkpoint in place"),
        ("--ignores_resume", "rank", "F", "ignores what it is given to resume from"),
        ("--hides_errors", "rank", "F", "exits 0 after an error"),
    ],
)
def test_what_is_wrong_is_named_by_the_grade(
    rehearse: Rehearse, wrong: str, faults: str, grade: str, named: str
) -> None:
    code, found = rehearse(f"--faults={faults}", script=(wrong,))
    assert (code, found["grade"]) == (1, grade)
    assert named in found["found"]
    assert fault(found, faults)["outcome"] == "not survived"


def test_the_proposed_diff_is_what_was_missing(tmp_path: Path) -> None:
    shutil.copy(SCRIPT, tmp_path)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    rehearsal = ("--json", "--minutes=5", "--faults=rank", "--worker_num=2", "train.py")
    outcomes = []
    for _ in range(2):
        done = subprocess.run(
            [*rehearse_command(), *rehearsal], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        if not done.stdout:
            pytest.skip(done.stderr)
        found = json.loads(done.stdout)
        outcomes.append((done.returncode, fault(found, "rank")["outcome"]))
        if done.returncode:
            diff = found["proposed"]
            subprocess.run(["git", "apply"], cwd=tmp_path, input=diff, text=True, check=True)
    assert outcomes == [(1, "not survived"), (0, "survived")]
    assert "--resume={checkpoint}" in (tmp_path / "faultrun.yaml").read_text()
