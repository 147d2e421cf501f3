"""A script that closes descriptors of ours, or puts files of its own there: what is ours goes elsewhere."""

import json
import signal
from pathlib import Path

import pytest

from sdk.support.fake_supervisor import supervised
from support.places import TESTS

pytestmark = pytest.mark.slow

COUNT = TESTS / "sdk" / "scripts" / "count.py"
SCRIPT = f"""
import os, runpy, signal, sys
before = {{int(fd) for fd in os.listdir("/proc/self/fd")}}
from faultrun import sdk
from faultrun.sdk.worker.worker import worker
step, mine, taken = sdk.step, os.open("mine", os.O_WRONLY | os.O_CREAT | os.O_APPEND), []
signal.signal(signal.SIGUSR2, lambda *_: None)

def is_open(fd):
    try:
        return os.fstat(fd) is not None
    except OSError:
        return False

def stepping(n, **words):
    if n == 40:
        kept = [fd for fd in range(3, 1024) if is_open(fd) and fd not in before and fd != mine]
        print("kept", kept, flush=True)
        if sys.argv[3] == "close":
            os.closerange(3, mine)
            os.closerange(mine + 1, 4096)
            taken.extend(os.dup(mine) for _ in kept)
        else:
            taken.extend(os.dup2(mine, fd) for fd in kept)
    step(n, **words)
    for fd in taken:
        os.write(fd, b"row")
    if n == 200 and (child := os.fork()):
        print("child", os.waitpid(child, 0)[1], flush=True)
    elif n == 200:
        os._exit(not all(map(is_open, taken)))

sdk.step = stepping
runpy.run_path({str(COUNT)!r}, run_name="__main__")
"""


@pytest.mark.parametrize("how", ["close", "take"])
def test_nothing_of_ours_gets_into_a_file_of_the_script_and_the_rank_still_saves(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "closes.py"
    script.write_text(SCRIPT)
    with supervised(tmp_path / "s", 1, grace_s=10.0) as one:
        one.asks_survivors = False
        one.start(0, script, "100000", "0.01", how, env={"CKPT": str(tmp_path / "ckpt")})
        one.wait_for(lambda: "child" in one.logs() and len(one.heard(0, "hello")) == 2, "a second hello")
        seen = one.step_of(0)
        one.wait_for(lambda: one.step_of(0) > seen, "the next step")
        one.children[0].process.send_signal(signal.SIGUSR2)
        one.ask(0)
        assert one.wait_ended(0) == [143]
        (saved,) = one.heard(0, "saved")
        assert json.loads(Path(saved["path"]).read_text())["count"] == saved["step"] >= seen
        assert one.logs().count("rank 0: the script has closed faultrun's wakeup pipe") == 1
        assert "child 0\n" in one.logs()
        assert "Traceback" not in one.logs()
    assert (tmp_path / "mine").read_bytes().replace(b"row", b"") == b""
