"""What cannot begin says so in three lines, with an exit code of its own, and leaves nothing running."""

import json
import platform
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from support.machine.processes import marked
from support.places import GOLDEN
from support.runs import Launcher, Run

_STAMP = re.compile(r"^(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d \S+ (?=faultrun: )", re.MULTILINE)
"""The time and host before a line of a run that has begun."""


def refusal(run: Run) -> str:
    """What a person reads, with this test's folder called HERE, and no times."""
    return _STAMP.sub("", run.text).replace(str(run.log_dir.parent), "HERE")


def test_a_script_that_is_not_there(launcher: Launcher) -> None:
    (launcher.folder / "train.py").touch()
    run = launcher.command("--worker_num=2", "trian.py")
    assert run.ends() == 64
    assert refusal(run) == (GOLDEN / "error_no_script.txt").read_text()
    assert not run.log_dir.exists()


@pytest.mark.parametrize("join", ["True", "False"])
def test_a_log_dir_below_a_file_cannot_be_made(launcher: Launcher, join: str) -> None:
    (launcher.folder / "file").touch()
    run = launcher.run("train()", "--log_dir=file/logs", f"--join={join}")
    assert run.ends() == 73
    assert refusal(run).replace("HERE/file", "file") == (GOLDEN / "error_log_dir.txt").read_text()


@pytest.mark.parametrize("join", ["True", "False"])
def test_a_log_dir_that_another_run_uses_is_refused_with_its_pid(launcher: Launcher, join: str) -> None:
    first = launcher.run("train()").trains(range(2))
    second = launcher.run("train()", f"--join={join}")
    assert second.ends() == 73
    run_id = json.loads((first.log_dir / "run.json").read_text())["run_id"]
    text = refusal(second).replace(str(first.pid), "PID").replace(run_id, "RUN_ID").replace("HERE/", "")
    assert text == (GOLDEN / "error_log_dir_in_use.txt").read_text()
    assert len(marked(launcher.mark)) >= 3, "the first run goes on"
    first.signal(15)
    assert first.ends() == 143


def test_a_worker_that_cannot_start_takes_the_started_ones_with_it(launcher: Launcher) -> None:
    (launcher.folder / "faultrun_log").mkdir()
    (launcher.folder / "faultrun_log" / "device1").touch()
    run = launcher.run("train()", workers=3)
    assert run.ends() == 71
    assert [line["rank"] for line in run.events("SpawnFailed")] == [1, 2]
    assert [line["rank"] for line in run.events("WorkerExit")] == [0]


def test_a_fixed_port_that_is_taken_is_named(launcher: Launcher) -> None:
    with a_taken_port() as port:
        run = launcher.run("train()", f"--master_port={port}", "--fixed_port")
        assert run.ends() == 64
    assert f"\n{(GOLDEN / 'error_port.txt').read_text()}" in refusal(run).replace(str(port), "PORT")
    assert not run.events("WorkerStarted")


def test_a_port_that_is_taken_for_the_etcd_of_the_first_node_is_no_bug_of_faultrun(
    launcher: Launcher,
) -> None:
    with a_taken_port() as port:
        place = ("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", f"--master_port={port}")
        run = launcher.run("train()", *place, workers=2)
        assert run.ends() == 69
    assert "address already in use" in refusal(run)
    assert "a bug in faultrun" not in refusal(run)


@contextmanager
def a_taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


_FORBIDDING = """
import ctypes, errno, os, struct, sys
words, error = sys.argv[1].split(","), getattr(errno, sys.argv[2])
load, allow = (0x20, 0, 0, 0), (0x06, 0, 0, 0x7FFF0000)
denied = [((0x15, 0, 1, int(word)), (0x06, 0, 0, 0x50000 | error)) for word in words]
rules = [load, *(rule for pair in denied for rule in pair), allow]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in rules))
program = struct.pack("HP", len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert not libc.prctl(38, 1, 0, 0, 0) and not libc.prctl(22, 2, ctypes.c_char_p(program))
os.execv(sys.argv[3], sys.argv[3:])
"""
"""A seccomp profile: linux/filter.h and seccomp(2), for system calls of x86_64."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls have other numbers")
@pytest.mark.parametrize(
    ("calls", "error", "code", "said"),
    [
        ("434", "EPERM", 69, "pidfd_open: Operation not permitted"),
        ("82,264,316", "ENOSYS", 73, "no file can be renamed there: Function not implemented"),
    ],
)
def test_a_sandbox_that_forbids_what_a_run_needs_is_named_at_the_start(
    launcher: Launcher, calls: str, error: str, code: int, said: str
) -> None:
    under = (sys.executable, "-c", _FORBIDDING, calls, error)
    run = replace(launcher, faultrun=(*under, *launcher.faultrun)).run("train()")
    assert run.ends() == code
    assert said in refusal(run)
    assert "Traceback" not in refusal(run)
