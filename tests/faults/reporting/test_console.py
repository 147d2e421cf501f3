"""A console that is closed, broken or full does not end a run."""

import os
import subprocess

import pytest

from support.machine.processes import PATIENCE_S
from support.runs import FAULTRUN, Launcher


def test_a_stderr_whose_reader_is_gone(launcher: Launcher) -> None:
    words = ("--worker_num=2", *launcher.program("if life == 0: sys.exit(1)"))
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = launcher.start(words, {}, subprocess.DEVNULL, write_end)
    os.close(write_end)
    assert process.wait(PATIENCE_S) == 0
    assert (launcher.folder / "faultrun_log" / "incident_1.txt").exists()


@pytest.mark.parametrize("closed", ["2", "1", "0 1 2"])
def test_the_number_of_a_closed_stream_is_no_file_of_the_run(launcher: Launcher, closed: str) -> None:
    """What is written there would stand in our lock, our journal or a worker's log."""
    body = 'say([os.readlink(f"/proc/{os.getppid()}/fd/{fd}") for fd in sys.argv[1].split()])'
    words = [*FAULTRUN, "--framework=plain", "--tee=3", *launcher.program(body), closed]
    shut = " ".join(f"{fd}>&-" for fd in closed.split())
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {shut}', "sh", *words], cwd=launcher.folder, timeout=60, check=False
    )
    assert ended.returncode == 0
    told = (launcher.folder / "faultrun_log" / "worker_0.log").read_text()
    assert told == f"{['/dev/null'] * len(closed.split())}\n"


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(launcher: Launcher, closed: str) -> None:
    program = launcher.program("say('output')\nprint('error', file=sys.stderr)\nif life == 0: sys.exit(1)")
    words = [*FAULTRUN, "--framework=plain", "--worker_num=2", *program]
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *words], cwd=launcher.folder, timeout=60, check=False
    )
    assert ended.returncode == 0
    log_dir = launcher.folder / "faultrun_log"
    assert (log_dir / "worker_1.log").read_text() == "output\nerror\n"
    for line in (log_dir / "journal.jsonl").read_text().splitlines():
        assert line.startswith('{"seq":')
