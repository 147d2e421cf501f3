"""A bug in faultrun itself: workers do not outlive it, its traceback is kept, the journal is whole."""

import json
import sys

import pytest

from faultrun.observe.console.reporters import ConsoleReporter
from faultrun.supervisor.exit_inspector import ExitInspector
from faultrun.supervisor.workers.worker_group import WorkerGroup
from support.machine.processes import wait_until
from support.runs import FAULTRUN, HELD_SAVE, Launcher, Run

_BROKEN = """
import sys
from {module} import {name}
def broken(*arguments, **more):
    raise RuntimeError("a bug of ours")
{name}.{method} = broken
from faultrun.__main__ import main
sys.argv[0] = "faultrun"
sys.exit(main())
"""


SAVES_ONCE = (
    HELD_SAVE
    + """
def save(*_):
    signal.signal(signal.SIGTERM, lambda *_: say("asked again"))
    held_save()
signal.signal(signal.SIGTERM, save)
train()
"""
)


def broken_program(launcher: Launcher, owner: type, method: str) -> tuple[str, ...]:
    """The real program with one method that raises."""
    path = launcher.folder / "broken.py"
    path.write_text(_BROKEN.format(module=owner.__module__, name=owner.__name__, method=method))
    return (sys.executable, str(path))


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (ConsoleReporter, "_exit"),  # in the loop
        (ExitInspector, "notes"),  # in the helper thread
        (ExitInspector, "saw"),  # between a death and its reaping
    ],
)
def test_a_bug_ends_the_run_with_70_and_leaves_nothing(launcher: Launcher, owner: type, method: str) -> None:
    launcher.faultrun = broken_program(launcher, owner, method)
    run = launcher.run("if rank == 1 and life == 0: sys.exit(3)\ntrain_in_the_first_life()")
    assert run.ends() == 70
    kept = (run.log_dir / "faultrun_traceback.txt").read_text()
    assert "RuntimeError: a bug of ours" in kept
    assert f"a bug in faultrun ended the run; traceback in {run.log_dir}/faultrun_traceback.txt" in run.text
    lines = (run.log_dir / "journal.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(len(lines)))
    goes_on(launcher, run)


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (ConsoleReporter, "_exit"),  # the survivors have been asked
        (ExitInspector, "saw"),  # nobody has
        (WorkerGroup, "request_gasp"),  # nobody can, in the usual way
    ],
)
def test_a_bug_costs_no_save_of_those_who_live(launcher: Launcher, owner: type, method: str) -> None:
    launcher.faultrun = broken_program(launcher, owner, method)
    launcher.holds_saves(0)
    run = launcher.run(SAVES_ONCE, "--grace=600s").trains(range(2))
    run.kill(1)
    wait_until(lambda: "1 worker may still save; SIGKILL in " in run.text, while_runs=run.pid, what="a word")
    run.said(0, "saving")
    launcher.lets_go(0)
    assert run.ends() == 70
    assert run.log(0).splitlines()[-2:] == ["saving", "saved"]


def test_a_program_below_a_shell_may_save_when_a_bug_ends_the_run_not_for_ever(launcher: Launcher) -> None:
    launcher.faultrun = broken_program(launcher, ExitInspector, "saw")
    script = launcher.folder / "train.sh"
    save_or_not = "if rank == 2: signal.signal(signal.SIGTERM, signal.SIG_IGN); train()\n"
    script.write_text(" ".join(launcher.program(save_or_not + SAVES_ONCE)) + "; true")
    launcher.holds_saves(0)
    run = launcher.command("--worker_num=3", "--grace=8s", "bash", str(script)).trains(range(3))
    run.kill(1)
    wait_until(lambda: "2 workers may still save" in run.text, while_runs=run.pid, what="a word")
    run.said(0, "saving")
    launcher.lets_go(0)
    assert run.ends() == 70
    assert run.log(0).splitlines()[-1] == "saved"


def goes_on(launcher: Launcher, run: Run) -> None:
    """With the bug gone the next start takes the run up where it was."""
    launcher.faultrun = FAULTRUN
    again = launcher.run("train_in_the_first_life()")
    assert again.ends() == 0
    assert " faultrun: going on with run " in again.text.splitlines()[0]
