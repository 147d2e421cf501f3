"""What the kernel says of processes that stand still: real ones, stopped, sleeping, spinning, in state D."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faultrun.core.hangs.process_activity import main_thread
from faultrun.model.wire import STACKS_SIGNAL
from faultrun.workers.launch import Launch
from faultrun.workers.proc_reader import (
    Member,
    catches,
    is_shell,
    kernel_view,
    members,
    snapshots,
    state_of,
    to_ask,
    waiting_in,
)
from faultrun.workers.process import Process, start
from faultrun.workers.stack_dump import StackDump, read_from_outside
from support.machine.processes import wait_until

SAY = "print('ready', flush=True)\n"
SDK = (
    "import faulthandler; file = open('stacks', 'ab'); "
    f"faulthandler.register({STACKS_SIGNAL}, file, all_threads=False)\n"
)
RESTLESS = (
    "import threading, time\n"
    "def wake():\n    while True: time.sleep(1e-4)\n"
    "for _ in range(4): threading.Thread(target=wake).start()\n"
    "def wait():\n    print('ready', flush=True)\n    while True: time.sleep(600)\n"
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


def await_functions(dump: StackDump, *expected: str) -> None:
    """Until the main thread is written to its end: a dump may pause on a busy machine."""

    def written() -> bool:
        (text,) = dump.collect(frozenset({0}), 60.0).values()
        return [frame.function for frame in main_thread(text)] == list(expected)

    wait_until(written, what=f"a dump of {expected}")


def test_a_stopped_process_is_seen_as_stopped_at_once(run: Runner) -> None:
    process = run(f"{SAY}\nwhile True: pass")
    wait_until(lambda: state_of(process.pid) == "R", what="state R")
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
    process = run(f"{SDK}def spin():\n    {SAY}    while True: pass\nspin()")
    dump = StackDump({0: process}, {0: run.folder / "stacks"})
    assert dump.asked == {0}
    await_functions(dump, "spin", "<module>")


IN_TWO_PIECES = f"""
import signal, time
def dump(*_):
    with open("stacks", "ab", 0) as stacks:
        stacks.write(b'Stack (most recent call first):\\n  File "a.py", line 2 in inner')
        time.sleep(0.05)
        stacks.write(b'\\n  File "a.py", line 9 in <module>\\n')
signal.signal({STACKS_SIGNAL}, dump)
{SAY}while True: signal.pause()
"""


def test_a_dump_whose_writer_loses_its_processor_in_the_middle_is_waited_for(run: Runner) -> None:
    dump = StackDump({0: run(IN_TWO_PIECES)}, {0: run.folder / "stacks"}, still_looks=1_000_000)
    (text,) = dump.collect(frozenset({0}), 60.0).values()
    assert [frame.function for frame in main_thread(text)] == ["inner", "<module>"]


def test_a_dump_that_ends_elsewhere_is_whole_once_it_grows_no_more(run: Runner) -> None:
    leaves = IN_TWO_PIECES.replace("<module>", "_shutdown")
    (text,) = StackDump({0: run(leaves)}, {0: run.folder / "stacks"}).collect(frozenset({0}), 60.0).values()
    assert text.startswith("Stack")


@pytest.mark.parametrize("flag", [1, 1 << 30], ids=["Linux 6.9", "before"])
def test_it_is_the_main_thread_that_answers_also_when_it_is_woken_for_it(
    run: Runner, monkeypatch: pytest.MonkeyPatch, flag: int
) -> None:
    monkeypatch.setattr("faultrun.workers.process._PIDFD_SIGNAL_THREAD", flag)
    worker = run(f"{SDK}{RESTLESS}wait()")
    for _ in range(5):
        worker.signal_leader(signal.SIGSTOP)
        wait_until(lambda: state_of(worker.pid) == "T", what="state T")
        dump = StackDump({0: worker}, {0: run.folder / "stacks"})
        worker.signal_leader(signal.SIGCONT)
        await_functions(dump, "wait", "<module>")


def test_a_worker_without_the_sdk_is_not_asked_for_it_would_die(run: Runner) -> None:
    process = run(f"{SAY}\nwhile True: pass")
    assert StackDump({0: process}, {0: run.folder / "stacks"}).collect(frozenset({0}), 60.0) == {}
    wait_until(lambda: state_of(process.pid) == "R", what="state R")


def test_a_stopped_worker_without_the_sdk_is_read_from_outside(run: Runner) -> None:
    process = run(f"def spin():\n    {SAY}    while True: pass\nspin()")
    process.signal_leader(signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T", what="state T")
    found = read_from_outside({3: process.pid}, 60.0)
    if not found:
        pytest.skip("py-spy is not installed, or reading other processes is not permitted")
    assert [frame.function for frame in main_thread(found[3])] == ["spin", "<module>"]
    assert state_of(process.pid) == "T"


_HEARS = "import signal; signal.signal(signal.SIGTERM, print); signal.pause()"
_FORKS = "import os, signal\nos.fork()\nsignal.pause()"


@contextmanager
def session(script: str, count: int) -> Iterator[int]:
    """A shell that leads a session, once ``count`` processes live in it beside it."""
    command = ["/bin/sh", "-c", script, sys.executable, _FORKS]
    with subprocess.Popen(command, start_new_session=True) as shell:
        wait_until(lambda: len(members(shell.pid)) == count, what=f"{count} processes")
        try:
            yield shell.pid
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def test_a_program_and_its_copies_are_told_apart_and_the_highest_found() -> None:
    with session('"$0" -S -c "$1"; true', 2) as leader:
        (program,) = [one for one in members(leader).values() if one.program]
        (copy,) = [one for one in members(leader).values() if not one.program]
        assert (program.parent, copy.parent) == (leader, program.pid)
        assert to_ask(members(leader)) == [program.pid]


def test_a_shell_below_the_shell_hides_no_program() -> None:
    with session('("$0" -S -c "$1"; true); true', 3) as leader:
        found = members(leader)
        (program,) = [one.pid for one in found.values() if one.program]
        assert set(to_ask(found)) == {program, found[program].parent}


def test_a_session_is_known_when_its_leader_has_ended_but_is_not_reaped() -> None:
    with session('"$0" -S -c "$1"; true', 2) as leader:
        os.kill(leader, signal.SIGKILL)
        os.waitid(os.P_PID, leader, os.WEXITED | os.WNOWAIT)
        found = members(leader)
        assert len(found) == 2
        assert len(to_ask(found)) == 1
        assert is_shell(leader)


def test_who_catches_the_request_hears_it_and_who_would_die_of_it_does_not() -> None:
    with session('"$0" -S -c "$1"; true', 2) as leader:
        assert not any(one.hears for one in members(leader).values())
    with session(f'"$0" -S -c "{_HEARS}"; true', 1) as leader:
        wait_until(lambda: all(one.hears for one in members(leader).values()), what="its handler")


@pytest.mark.parametrize(
    ("found", "asked"),
    [
        ([(2, 1, "program hears"), (3, 1, "program")], [2]),
        ([(2, 1, "copy"), (3, 2, "program hears"), (4, 1, "program")], [2, 3]),
        ([(2, 1, "program"), (3, 2, "program hears"), (4, 1, "program"), (5, 1, "copy")], [2]),
        ([(2, 1, "program"), (3, 1, "program"), (4, 3, "copy hears")], [2, 3]),
    ],
    ids=["a pipe", "a copy of the shell", "another shell", "no program hears it"],
)
def test_what_serves_a_program_that_hears_the_request_is_not_asked_before_it(
    found: list[tuple[int, int, str]], asked: list[int]
) -> None:
    session_of_1 = {
        pid: Member(pid=pid, parent=parent, program="program" in what, hears="hears" in what)
        for pid, parent, what in found
    }
    assert to_ask(session_of_1) == asked


def test_who_has_ended_is_no_member_whether_it_was_reaped_or_not() -> None:
    with session('"$0" -S -c "$1"; true', 2) as leader:
        (program,) = [one.pid for one in members(leader).values() if one.program]
        os.kill(program, signal.SIGKILL)
        wait_until(lambda: program not in members(leader), what="its end")


def test_python_is_no_shell_and_a_stranger_none_either() -> None:
    assert not is_shell(os.getpid())
    assert not is_shell(2**22 + 1)
