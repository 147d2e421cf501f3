"""Forked helpers: ended in time, whatever they do, and whoever reaped them before."""

import os
import subprocess
import sys

from faultrun.workers.forked_helper import Orders

PROGRAM = """
import os, signal, sys
from faultrun.workers.forked_helper import Forked

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


def test_an_order_that_is_still_being_written_is_heard_when_it_is_whole() -> None:
    orders = Orders()
    text, _ = orders.kept
    orders.send({"path": "one"})
    os.write(text, b'{"path": "tw')
    assert orders.received() == ([{"path": "one"}], True)
    os.write(text, b'o"}\n')
    assert orders.received() == ([{"path": "two"}], True)
    os.close(orders.bell)
    orders.close()
