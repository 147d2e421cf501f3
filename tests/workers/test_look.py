"""What the kernel says of processes that stand still: real ones, stopped, sleeping, spinning, in state D."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultrun.core.stacks import main_thread
from faultrun.model.wire import STACKS_SIGNAL
from faultrun.workers.look import catches, kernel_view, snapshots, state_of, waiting_in
from faultrun.workers.process import Launch, Process, start
from faultrun.workers.stack_dump import StackDump, read_from_outside
from support.processes import wait_until

SAY = "print('ready', flush=True)\n"
SDK = (
    "import faulthandler; file = open('stacks', 'ab'); "
    f"faulthandler.register({STACKS_SIGNAL}, file, all_threads=False)\n"
)
RESTLESS = (
    "import threading, time\n"
    "def wake():\n    while True: time.sleep(1e-4)\n"
    "for _ in range(4): threading.Thread(target=wake).start()\n"
    "def wait():\n    while True: time.sleep(600)\n"
)
"""Threads that are awake more often than the main one."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator["Runner"]:
    runner = Runner(tmp_path)
    yield runner
    for process in runner.started:
        process.kill_group()
        wait_until(lambda process=process: process.reap() is not None, what="its end")  # type: ignore[misc]


class Runner:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Process] = []

    def __call__(self, code: str) -> Process:
        """A process that has come to the end of its preparations."""
        log = self.folder / f"log_{len(self.started)}"
        process = start(
            Launch(
                argv=(sys.executable, "-S", "-c", code),
                env=dict(os.environ),
                stdout=log,
                cwd=str(self.folder),
            )
        )
        self.started.append(process)
        wait_until(lambda: "ready" in log.read_text(), what="ready")
        return process


def test_a_stopped_process_is_seen_as_stopped_at_once(run: Runner) -> None:
    process = run(f"{SAY}\nwhile True: pass")
    assert state_of(process.pid) == "R"
    process.signal_leader(signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T", what="state T")


def test_a_parent_in_vfork_is_in_state_d(run: Runner) -> None:
    process = run(f"{SAY}import ctypes\nc = ctypes.CDLL(None)\nif c.vfork() == 0: c.sleep(600)")
    wait_until(lambda: state_of(process.pid) == "D", what="state D")
    assert "State:\tD" in kernel_view(process.pid)


def test_a_sleeper_says_in_what_it_sleeps(run: Runner) -> None:
    process = run(f"{SAY}import time; time.sleep(600)")
    wait_until(
        lambda: waiting_in(process.pid)[1] in ("clock_nanosleep", "nanosleep", "pselect6"), what="sleep"
    )


def test_consumption_of_a_worker_and_of_its_children_is_told_apart(run: Runner) -> None:
    process = run(f"{SAY}import os, time\nif os.fork() == 0:\n    while True: pass\ntime.sleep(600)")
    before = snapshots((process.pid,))[process.pid]
    wait_until(
        lambda: snapshots((process.pid,))[process.pid].children_cpu_s >= before.children_cpu_s + 0.1,
        what="a busy child",
    )
    after = snapshots((process.pid,))[process.pid]
    assert after.main_cpu_s - before.main_cpu_s < 0.1


def test_a_process_that_is_gone_has_nothing_to_say() -> None:
    gone = 2**22 + 1
    assert (state_of(gone), waiting_in(gone), catches(gone, STACKS_SIGNAL)) == ("", ("", ""), False)
    assert (snapshots((gone,)), kernel_view(gone)) == ({}, "")


def test_a_worker_with_the_sdk_dumps_its_stacks_even_while_it_spins(run: Runner) -> None:
    process = run(f"{SDK}{SAY}\ndef spin():\n    while True: pass\nspin()")
    dump = StackDump({0: process}, {0: run.folder / "stacks"})
    assert dump.asked == {0}
    (text,) = dump.collect(frozenset({0}), 60.0).values()
    assert [frame.function for frame in main_thread(text)] == ["spin", "<module>"]


@pytest.mark.parametrize("flag", [1, 1 << 30], ids=["Linux 6.9", "before"])
def test_it_is_the_main_thread_that_answers_also_when_it_is_woken_for_it(
    run: Runner, monkeypatch: pytest.MonkeyPatch, flag: int
) -> None:
    monkeypatch.setattr("faultrun.workers.process._PIDFD_SIGNAL_THREAD", flag)
    worker = run(f"{SDK}{RESTLESS}{SAY}wait()")
    for _ in range(5):
        worker.signal_leader(signal.SIGSTOP)
        wait_until(lambda: state_of(worker.pid) == "T", what="state T")
        dump = StackDump({0: worker}, {0: run.folder / "stacks"})
        worker.signal_leader(signal.SIGCONT)
        (text,) = dump.collect(frozenset({0}), 60.0).values()
        assert [frame.function for frame in main_thread(text)] == ["wait", "<module>"]


def test_a_worker_without_the_sdk_is_not_asked_for_it_would_die(run: Runner) -> None:
    process = run(f"{SAY}\nwhile True: pass")
    dump = StackDump({0: process}, {0: run.folder / "stacks"})
    assert dump.collect(frozenset({0}), 60.0) == {}
    assert state_of(process.pid) == "R"


def test_a_stopped_worker_without_the_sdk_is_read_from_outside(run: Runner) -> None:
    process = run(f"{SAY}\ndef spin():\n    while True: pass\nspin()")
    process.signal_leader(signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T", what="state T")
    found = read_from_outside({3: process.pid}, 60.0)
    if not found:
        pytest.skip("py-spy is not installed, or reading other processes is not permitted")
    assert [frame.function for frame in main_thread(found[3])] == ["spin", "<module>"]
    assert state_of(process.pid) == "T"
