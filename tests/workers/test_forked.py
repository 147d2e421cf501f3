"""Forked helpers: ended in time, whatever they do, and whoever reaped them before."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import lives, wait_until
from support.scripts import ended

PROGRAM = """
import os, signal, sys
from faultrun.workers.forked import Forked

def refuse_to_end():
    while True:
        signal.pause()

def fail():
    sys.stderr = open(os.devnull, "w")
    raise RuntimeError("nobody else ends of this")

read_end, write_end = os.pipe()
helper = Forked({work}, keep=(write_end,))
os.close(write_end)
{before}
helper.end({patience_s})
said = os.read(read_end, 10).decode()
print(said, "and there" if os.path.exists(f"/proc/{{helper.pid}}") else "and over")
"""


def printed(work: str, *, before: str = "", patience_s: float = 60.0) -> str:
    code = PROGRAM.format(work=work, before=before, patience_s=patience_s)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_it_works_and_ends() -> None:
    assert printed("lambda: os.write(write_end, b'done')") == "done and over"


def test_what_it_raises_ends_nobody_else() -> None:
    assert printed("fail") == "and over"


def test_one_that_does_not_end_is_ended() -> None:
    assert printed("refuse_to_end", patience_s=0.1) == "and over"


def test_one_that_somebody_else_has_reaped_is_over() -> None:
    assert printed("lambda: None", before="os.waitpid(helper.pid, 0)") == "and over"


_CODE = """
import os, signal, sys
from pathlib import Path
from faultrun.workers.forked import guard
folder = Path(sys.argv[1])
log = (folder / "log").open("w")
pid = guard(lambda: (folder / "swept").write_text("once"))
(folder / "pid").write_text(str(pid))
"""


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(3)", "raise SystemExit", "os.abort()"]
)
def test_it_sweeps_once_its_maker_is_gone_however_that_ended(tmp_path: Path, end: str) -> None:
    ended(_CODE + end, str(tmp_path))
    wait_until((tmp_path / "swept").exists, what="the sweep")
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not lives(pid), what="the deadman's end")


def test_it_waits_as_long_as_its_maker_lives_and_no_signal_moves_it(tmp_path: Path) -> None:
    code = """
for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE):
    os.kill(pid, signum)
os.killpg(pid, signal.SIGTERM)
state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
print(state in "SR", (folder / "swept").exists())
"""
    assert ended(_CODE + _SETTLED + code, str(tmp_path)).stdout == "True False\n"


def test_it_holds_nothing_of_what_its_maker_had_open(tmp_path: Path) -> None:
    code = """
held = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
print([name for name in held if not name.startswith("pipe:")], len(held))
"""
    # Nor does it keep our end of this very pipe open: the script's output could not end.
    out = ended(_CODE + _SETTLED + code, str(tmp_path)).stdout
    assert out == "[] 1\n"


_SETTLED = """
while os.getsid(pid) != pid or len(os.listdir(f"/proc/{pid}/fd")) > 1:
    pass
"""
