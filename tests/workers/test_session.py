"""Who lives in a session: programs, copies of them, and who is asked to save."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from faultrun.workers.session import Member, is_shell, members, to_ask
from support.processes import wait_until

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
