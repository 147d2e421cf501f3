"""What our processes agree on about a terminal: colours, its last row, and writes that return."""

import os
import pty
import select
from contextlib import suppress
from datetime import datetime

import pytest

from faultrun.cli.console import Head
from faultrun.model.line_tone import Tone, coloured, toned
from faultrun.terminal import BottomRow, has_colours, never_waits


@pytest.mark.parametrize(
    ("environ", "on_a_terminal", "elsewhere"),
    [
        ({"TERM": "xterm"}, True, False),
        ({}, False, False),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"TERM": "xterm", "FORCE_COLOR": "0"}, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_who_wants_colours_has_them(environ: dict[str, str], on_a_terminal: bool, elsewhere: bool) -> None:
    assert has_colours(environ, is_terminal=True) is on_a_terminal
    assert has_colours(environ, is_terminal=False) is elsewhere


def test_each_line_has_its_tone_and_the_last_one_that_of_all_that_follow() -> None:
    said = toned("a\nb\nc", Tone.FAILED, Tone.PLAIN)
    assert said == "a\nb\nc"
    assert coloured(said, said.tones) == "\x1b[31ma\x1b[0m\nb\nc"
    assert coloured("plain", ()) == "plain"


def test_a_process_sees_the_row_that_another_one_set() -> None:
    row = BottomRow(1, Tone.QUIET)
    assert row.again() == b""
    pid = os.fork()
    if pid == 0:
        row.set("step 5 █")
        os._exit(0)
    os.waitpid(pid, 0)
    assert row.again() == "\x1b[2mstep 5 █\x1b[0m".encode()
    row.set("")
    assert row.again() == b""


def test_a_terminal_that_takes_no_more_makes_nobody_wait_and_keeps_its_own_way() -> None:
    ours, theirs = pty.openpty()
    fd = never_waits(theirs)
    try:
        assert fd != theirs
        with pytest.raises(BlockingIOError):
            while True:
                os.write(fd, b"x" * 4096)
        assert os.get_blocking(theirs), "the shell and the workers have this one"
        while select.select([], [fd], [], 0.1)[1]:  # the kernel moved what it had taken: there is room again
            with suppress(BlockingIOError):
                os.write(fd, b"x" * 4096)
    finally:
        for one in (ours, theirs, fd):
            os.close(one)


def test_what_is_no_terminal_is_left_as_it_is() -> None:
    read_end, write_end = os.pipe()
    assert never_waits(write_end) == write_end
    os.close(read_end)
    os.close(write_end)
    assert never_waits(write_end) == write_end


def test_a_head_has_the_date_first_and_at_midnight() -> None:
    times = [datetime(2026, 11, 22, 23, 59, 58), datetime(2026, 11, 22, 23, 59, 59), datetime(2026, 11, 23)]
    head = Head("node7", lambda: times.pop(0))
    assert [head(), head(), head()] == [
        "2026-11-22 23:59:58 node7 faultrun: ",
        "23:59:59 node7 faultrun: ",
        "2026-11-23 00:00:00 node7 faultrun: ",
    ]
    assert Head()() == "faultrun: "
