"""What a test run makes of MindSpore's own crashes: the test is made again, once, and that is said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.mindspore_crashes import told_by_journals

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
CASES = """
import json
from pathlib import Path
import pytest

HERE = Path(__file__).parent

@pytest.fixture(scope="module")
def reference():
    with (HERE / "references").open("a") as file:
        file.write("x")

def ends_by(signum, folder):
    line = {"event": "WorkerExit", "done": False, "status": {"is": "Signaled", "signum": signum}}
    (folder / "journal.jsonl").write_text(json.dumps(line))

@pytest.mark.mindspore
@pytest.mark.parametrize("signum", [11, 9])
def test_fails_the_first_time(signum, reference, tmp_path):
    ends_by(signum, tmp_path)
    before = HERE / f"before_{signum}"
    assert before.exists() or before.touch()

@pytest.mark.mindspore
def test_fails_each_time(tmp_path):
    ends_by(11, tmp_path)
    raise AssertionError

def test_has_no_mindspore(tmp_path):
    ends_by(11, tmp_path)
    raise AssertionError
"""


def test_only_a_crash_has_a_test_made_again_and_only_once(tmp_path: Path) -> None:
    cases = tmp_path / "test_cases.py"
    cases.write_text(CASES)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = mindspore: x\n")
    words = ("-p", "support.mindspore_crashes", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", *words, str(cases)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = {
        line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED"))
    }
    assert told == {
        "PASSED test_cases.py::test_fails_the_first_time[11]",
        "FAILED test_cases.py::test_fails_the_first_time[9]",
        "FAILED test_cases.py::test_fails_each_time",
        "FAILED test_cases.py::test_has_no_mindspore",
    }, done.stdout
    again = [line.rpartition("::")[2] for line in done.stdout.splitlines() if line.startswith("MADE AGAIN")]
    assert again == ["test_fails_the_first_time[11]", "test_fails_each_time"]
    assert (tmp_path / "references").read_text() == "xx", "what fixtures had of the crashed one is gone"


@pytest.mark.parametrize(
    ("line", "crash"),
    [
        ('{"event": "WorkerExit", "status": {"is": "Signaled", "signum": 11}}', True),
        ('{"event": "HelperExit", "status": {"is": "Signaled", "signum": 6}}', True),
        ('{"event": "WorkerExit", "done": true, "status": {"is": "Signaled", "signum": 11}}', False),
        ('{"event": "WorkerExit", "status": {"is": "Exited", "code": 1}}', False),
        ('{"event": "WorkerEx', False),
    ],
)
def test_a_crash_is_told_by_a_journal(line: str, crash: bool, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "journal.jsonl").write_text(line)
    assert told_by_journals(tmp_path, 0.0) is crash
