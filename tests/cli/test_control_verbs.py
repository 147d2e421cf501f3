"""``stop``, ``prestop``, ``checkpoint-now`` and ``status`` of a run that lives, and does not answer."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.machine.scripts import faultrun

_LIVES = """
import signal, sys, threading
from pathlib import Path
from faultrun.journal.append import FILE_NAME
from faultrun.locks import hold
folder, heeds = Path(sys.argv[1]), sys.argv[2] == "ends"
held, end = hold(folder / ".lock"), threading.Event()
signal.signal(signal.SIGTERM, lambda *_: end.set() if heeds else None)
print("lives", flush=True)
end.wait()
"""


@pytest.fixture(params=["a socket that is gone", "no record"])
def log_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    record = {"run_id": "r1", "pid": 1} | ({"socket": "/nowhere/s"} if "gone" in request.param else {})
    if request.param != "no record":
        (tmp_path / "run.json").write_text(json.dumps(record))
    return tmp_path


@pytest.fixture
def living(log_dir: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", _LIVES, str(log_dir), request.param]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "lives\n"
        yield process
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["stop", "prestop"])
@pytest.mark.parametrize("living", ["ends"], indirect=True)
def test_who_does_not_answer_is_told_by_sigterm_and_waited_for(
    verb: str, living: subprocess.Popen[str], log_dir: Path
) -> None:
    done = faultrun(verb, "--log_dir", str(log_dir))
    assert (done.returncode, living.wait(10)) == (0, 0)
    assert f"lives (pid {living.pid} " in done.stderr
    assert "sent SIGTERM, and its end is waited for" in done.stderr
    assert "the run has ended" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "code"), [("stop", 1), ("prestop", 0), ("checkpoint-now", 1)])
@pytest.mark.parametrize("living", ["stays"], indirect=True)
def test_who_lives_has_not_ended_whatever_it_answers(
    verb: str, code: int, living: subprocess.Popen[str], log_dir: Path
) -> None:
    done = faultrun(verb, "--log_dir", str(log_dir), "--timeout=1")
    assert done.returncode == code
    assert f"lives (pid {living.pid} " in done.stderr
    assert "has ended" not in done.stderr
    assert "no supervisor" not in done.stderr
    assert living.poll() is None
