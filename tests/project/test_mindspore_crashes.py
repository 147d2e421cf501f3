"""What a test run makes of MindSpore's own crashes: the test is made again, once, and that is said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import TESTS

pytestmark = pytest.mark.slow

OF_MINDSPORE = (
    "RECV_EVENT_LOOP[9002]: segfault at 0 ip 00007f17d0c96d2f error 4 in libmindspore_cluster.so[296d2f]"
)
OF_OTHERS = "python[9002]: segfault at 0 ip 00007f17d0c96d2f error 4 in libtorch_cpu.so[296d2f]"
CASES = f"""
from pathlib import Path
import pytest

HERE = Path(__file__).parent

@pytest.fixture(scope="module")
def reference():
    with (HERE / "references").open("a") as file:
        file.write("x")

def crashes(line):
    with (HERE / "ring_buffer").open("a") as file:
        file.write(line + "\\n")

@pytest.mark.mindspore
@pytest.mark.parametrize("who", ["mindspore", "others"])
def test_fails_the_first_time(who, reference):
    crashes({OF_MINDSPORE!r} if who == "mindspore" else {OF_OTHERS!r})
    before = HERE / f"before_{{who}}"
    assert before.exists() or before.touch()

@pytest.mark.mindspore
def test_fails_each_time():
    crashes("another " + {OF_MINDSPORE!r})
    raise AssertionError

def test_has_no_mindspore():
    crashes("a third " + {OF_MINDSPORE!r})
    raise AssertionError
"""


def test_only_a_crash_has_a_test_made_again_and_only_once(tmp_path: Path) -> None:
    cases = tmp_path / "test_cases.py"
    cases.write_text(CASES)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = mindspore: x\n")
    (tmp_path / "ring_buffer").touch()
    (tmp_path / "dmesg").write_text(f"#!/bin/sh\ncat {tmp_path}/ring_buffer\n")
    (tmp_path / "dmesg").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    words = ("-p", "support.mindspore_crashes", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", *words, str(cases)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS), "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = {
        line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED"))
    }
    assert told == {
        "PASSED test_cases.py::test_fails_the_first_time[mindspore]",
        "FAILED test_cases.py::test_fails_the_first_time[others]",
        "FAILED test_cases.py::test_fails_each_time",
        "FAILED test_cases.py::test_has_no_mindspore",
    }, done.stdout
    again = [line.rpartition("::")[2] for line in done.stdout.splitlines() if line.startswith("MADE AGAIN")]
    assert again == ["test_fails_the_first_time[mindspore]", "test_fails_each_time"]
    assert (tmp_path / "references").read_text() == "xx", "what fixtures had of the crashed one is gone"
