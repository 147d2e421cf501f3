"""``stop``, ``prestop``, ``checkpoint-now`` and ``status`` of a run that lives, and does not answer."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultrun.journal.supervised import is_supervised, supervisor_of
from support.machine.scripts import faultrun

_LIVES = """
import signal, sys, threading
from pathlib import Path
from faultrun.locks import hold
folder, how = Path(sys.argv[1]), sys.argv[2]
held = open(folder / "journal.jsonl", "a") if "journal" in how else hold(folder / ".lock")
end = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: end.set() if "ends" in how else None)
if "removed" in how:
    [one.unlink() for one in folder.iterdir()]
print("lives", flush=True)
end.wait()
"""


@pytest.fixture
def living(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", _LIVES, str(tmp_path), request.param]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "lives\n"
        yield process
        process.kill()


@pytest.mark.parametrize(
    "living", ["lock", "lock, removed", "journal", "journal, removed"], indirect=True, ids=lambda how: how
)
def test_who_holds_the_lock_or_a_file_of_the_log_dir_lives(
    living: subprocess.Popen[str], tmp_path: Path
) -> None:
    lives = supervisor_of(tmp_path, {"pid": living.pid})
    assert lives is not None
    assert lives.pid == living.pid
    living.kill()
    living.wait()
    for pid in (living.pid, 1, "?", None):
        assert not is_supervised(tmp_path, {"pid": pid, "socket": "/nowhere"})


@pytest.mark.slow
@pytest.mark.parametrize("record", [{}, {"run_id": "r1", "pid": 1, "socket": "/nowhere/s"}])
@pytest.mark.parametrize(("verb", "code"), [("stop", 1), ("prestop", 0), ("checkpoint-now", 1)])
@pytest.mark.parametrize("living", ["ends", "stays"], indirect=True)
def test_who_lives_and_does_not_answer_is_told_by_sigterm_and_has_not_ended_before_it_has(
    verb: str, code: int, record: dict[str, object], living: subprocess.Popen[str], tmp_path: Path
) -> None:
    if record:
        (tmp_path / "run.json").write_text(json.dumps(record))
    ends = living.args[-1] == "ends" and verb != "checkpoint-now"  # type: ignore[index]
    done = faultrun(verb, "--log_dir", str(tmp_path), f"--timeout={20 if ends else 1}")
    assert done.returncode == (0 if ends else code)
    assert f"lives (pid {living.pid} " in done.stderr
    assert ("the run has ended" in done.stderr) is ends
    assert (living.poll() is None) is not ends
