"""The deadman: it waits for the end of whoever made it, and only for that."""

from pathlib import Path

import pytest

from support.processes import lives, wait_until
from support.scripts import ended

_CODE = """
import os, signal, sys
from pathlib import Path
from faultrun.workers.deadman import guard
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
