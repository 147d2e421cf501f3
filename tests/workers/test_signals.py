"""Signals as bytes, each story in a process of its own."""

import pytest

from support.machine.scripts import ended, printed

_BEGIN = """
import os, signal, sys
from faultrun.workers import signals
"""


HEARD = {
    "those that come before the pipe are kept for it": """
signals.block()
for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    os.kill(os.getpid(), signum)
assert sorted(signals.SignalPipe().drain()) == [1, 2, 15]
""",
    "they arrive in their order and repeatedly": """
pipe = signals.SignalPipe()
for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
    os.kill(os.getpid(), signum)
assert (list(pipe.drain()), list(pipe.drain())) == ([15, 2, 15], [])
""",
    "the end of a child is one too": """
import subprocess
pipe = signals.SignalPipe()
subprocess.Popen(["true"]).wait()
assert list(pipe.drain()) == [17]
""",
    "a lost terminal means nothing to a program that nohup started": """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
pipe = signals.SignalPipe()
os.kill(os.getpid(), signal.SIGHUP)
assert list(pipe.drain()) == []
""",
}


@pytest.mark.parametrize("story", HEARD)
def test_signals_are_heard_as_bytes(story: str) -> None:
    assert printed(f"{_BEGIN}{HEARD[story]}print('heard')") == "heard\n"


@pytest.mark.parametrize("signum", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_once_the_end_is_decided_stop_signals_change_nothing(signum: str) -> None:
    code = f"""
pipe = signals.SignalPipe()
pipe.close()
os.kill(os.getpid(), signal.{signum})
sys.exit(42)
"""
    assert ended(_BEGIN + code).returncode == 42


def test_a_verb_that_does_not_supervise_can_be_interrupted() -> None:
    code = """
signals.block()
signals.unblock()
os.kill(os.getpid(), signal.SIGTERM)
"""
    assert ended(_BEGIN + code).returncode == -15
