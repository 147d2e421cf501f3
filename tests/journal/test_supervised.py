"""Who supervises a log_dir is known by what a process holds, whether or not it answers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultrun.journal.logdir import LOCK
from faultrun.journal.supervised import is_supervised, supervisor_of

_HOLDS = """
import os, sys
from pathlib import Path
from faultrun.locks import hold
folder, way = Path(sys.argv[1]), sys.argv[2]
held = hold(folder / ".lock") if way.startswith("lock") else open(folder / "journal.jsonl", "a")
if way.endswith("removed"):
    [one.unlink() for one in folder.iterdir()]
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["lock", "lock, removed", "journal", "journal, removed"])
def holder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", _HOLDS, str(tmp_path), request.param]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        yield process
        process.kill()


def test_who_holds_the_lock_or_a_file_of_the_log_dir_lives_although_no_socket_answers(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    record = {"pid": holder.pid, "socket": str(tmp_path / "control.sock")}
    lives = supervisor_of(tmp_path, record)
    assert lives is not None
    assert lives.pid == holder.pid
    assert is_supervised(tmp_path, record)
    holder.kill()
    holder.wait()
    assert supervisor_of(tmp_path, record) is None


@pytest.mark.parametrize("record", [{}, {"pid": os.getpid()}, {"pid": 1}, {"pid": "?"}, {"pid": None}])
def test_a_process_that_has_nothing_of_the_log_dir_open_does_not_supervise_it(
    record: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / LOCK).touch()
    assert supervisor_of(tmp_path, record) is None
    assert not is_supervised(tmp_path, record)
