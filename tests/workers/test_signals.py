"""Signals as bytes, each story in a process of its own."""

import pytest

from support.machine.scripts import ended, printed

_BEGIN = """
import os, signal, sys
from faultrun.workers import signals
"""


def test_signals_that_come_before_the_pipe_are_kept_for_it() -> None:
    code = """
signals.block()
for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    os.kill(os.getpid(), signum)
pipe = signals.SignalPipe()
print(sorted(pipe.drain()))
"""
    assert printed(_BEGIN + code) == "[1, 2, 15]\n"


def test_signals_arrive_in_their_order_and_repeatedly() -> None:
    code = """
pipe = signals.SignalPipe()
for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
    os.kill(os.getpid(), signum)
print(list(pipe.drain()), list(pipe.drain()))
"""
    assert printed(_BEGIN + code) == "[15, 2, 15] []\n"


def test_the_end_of_a_child_is_a_signal_too() -> None:
    code = """
import select, subprocess
pipe = signals.SignalPipe()
subprocess.Popen(["true"]).wait()
print(list(pipe.drain()))
"""
    assert printed(_BEGIN + code) == "[17]\n"


def test_a_lost_terminal_means_nothing_to_whoever_was_started_by_nohup() -> None:
    code = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
pipe = signals.SignalPipe()
os.kill(os.getpid(), signal.SIGHUP)
print(list(pipe.drain()))
"""
    assert printed(_BEGIN + code) == "[]\n"


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
