"""What a script that has said that it is done may still die of, without being repeated."""

import signal
import sys

import pytest

from support.runs import Launcher, Run

COUNTS = """
from faultrun import sdk
sdk.start()
sdk.step(1)
"""


def started_once(run: Run) -> bool:
    return len(run.events("IncarnationStarted")) == 1


@pytest.mark.parametrize("signum", [signal.SIGSEGV, signal.SIGKILL])
def test_a_signal_that_ends_a_rank_which_was_done_is_said_and_nothing_is_repeated(
    launcher: Launcher, signum: signal.Signals
) -> None:
    run = script(launcher, f"sdk.done()\nif rank == 1: os.kill(os.getpid(), {int(signum)})")
    assert run.ends() == 0
    assert started_once(run)
    (left,) = run.events("WorkerExit", rank=1)
    assert (left["done"], left["status"]) == (True, {"is": "Signaled", "signum": signum})
    assert f"killed by {signum.name}, after it was done; it counts as finished" in run.text
    assert not list(run.log_dir.glob("incident_*"))


def test_a_rank_that_cannot_end_is_ended_after_its_time(launcher: Launcher) -> None:
    run = script(launcher, "sdk.done(ends_within_s=0.2)\nif rank == 0: train()")
    assert run.ends() == 0
    assert started_once(run)
    assert "rank 0 (pid" in run.text
    assert "killed by SIGALRM, after it was done" in run.text


CRASHES_AS_IT_IS_TAKEN_DOWN = """
import atexit
atexit.register(os.abort)
"""


@pytest.mark.parametrize("end", ["sys.exit(0)", "threading.Thread(target=print).start()"])
def test_a_script_that_came_to_its_end_is_not_repeated_when_its_interpreter_crashes(
    launcher: Launcher, end: str
) -> None:
    run = script(launcher, f"import threading\n{end}", before=CRASHES_AS_IT_IS_TAKEN_DOWN)
    assert run.ends() == 0
    assert started_once(run)
    (left,) = run.events("WorkerExit", rank=1)
    assert (left["done"], left["status"]) == (True, {"is": "Signaled", "signum": signal.SIGABRT})


@pytest.mark.parametrize(
    "end",
    [
        "raise SystemExit(3)",
        "raise ValueError('a mistake')",
        "import atexit; atexit.register(os.abort)",  # after the SDK: part of the job
    ],
)
def test_a_script_that_did_not_come_to_its_end_has_failed(launcher: Launcher, end: str) -> None:
    run = script(launcher, f"if rank == 1 and life == 0:\n {end}", before=CRASHES_IN_THE_FIRST_LIFE)
    assert run.ends() == 0
    assert len(run.events("IncarnationStarted")) == 2
    assert not any(left["done"] for left in run.events("WorkerExit", rank=1, incarnation=0))


CRASHES_IN_THE_FIRST_LIFE = """
import atexit
if rank == 1 and life == 0:
    atexit.register(os.abort)
"""


def test_what_a_shell_does_after_its_program_is_part_of_the_job(launcher: Launcher) -> None:
    path = launcher.folder / "done.py"
    launcher.program(COUNTS, path.name)
    shell = f"{sys.executable} {path}; [ $RANK$FAULTRUN_INCARNATION = 10 ] && kill -ABRT $$; true"
    run = launcher.command("--worker_num=2", "--backoff=1ms..1ms", "--no-python", "bash", "-c", shell)
    assert run.ends() == 0
    assert "rank 1 of 2 killed by SIGABRT" in run.card(1)


@pytest.mark.parametrize("below", ["a shell", "a script"])
def test_a_program_that_a_rank_has_started_is_not_done_for_the_rank(launcher: Launcher, below: str) -> None:
    launcher.program(COUNTS + "sdk.done()", "part.py")
    part = f"{sys.executable} {launcher.folder / 'part.py'}"
    dies = "[ $RANK$FAULTRUN_INCARNATION = 10 ] && kill -KILL $$; true"
    command = ["--no-python", "bash", "-c", f"{part}; {dies}"]
    if below == "a script":
        path = launcher.folder / "whole.py"
        launcher.program(
            f"import subprocess\nsubprocess.run({part.split()!r}, check=True)\n"
            "if rank == 1 and life == 0: os.kill(os.getpid(), 9)",
            path.name,
        )
        command = [str(path)]
    run = launcher.command("--worker_num=2", "--backoff=1ms..1ms", *command)
    assert run.ends() == 0
    assert "rank 1 of 2 killed by SIGKILL" in run.card(1)


def test_a_time_that_is_none_is_refused(launcher: Launcher) -> None:
    run = script(launcher, "sdk.done(ends_within_s=float('inf'))", "--max_restarts=0")
    assert run.ends() != 0
    assert "ValueError: ends_within_s is inf, not a time of up to a day" in run.card(1)


def script(launcher: Launcher, code: str, *options: str, before: str = "") -> Run:
    """Two workers that do a step under the SDK and then ``code``."""
    path = launcher.folder / "done.py"
    launcher.program(before + COUNTS + code, path.name)
    return launcher.command("--worker_num=2", "--backoff=1ms..1ms", *options, str(path))
