"""``--join=False``: the command returns, the supervisor stays."""

import json
import os
import signal

from support.machine.processes import lives, marked, open_files, wait_until
from support.runs import Launcher, Run


def behind(launcher: Launcher, command: Run) -> Run:
    """The supervisor that the command left in the background."""
    record = json.loads((command.log_dir / "run.json").read_text())
    run = Run(record["pid"], command.log_dir, command.log_dir / "faultrun.log")
    launcher.started.append(run)
    return run


def test_the_command_returns_once_the_workers_run_and_its_pid_can_be_told_to_stop(launcher: Launcher) -> None:
    command = launcher.run("train()", "--join=False")
    assert command.ends() == 0
    assert command.text.splitlines()[-4:] == [
        "faultrun: supervising in the background",
        "faultrun:   follow:  faultrun logs -f --log_dir faultrun_log",
        "faultrun:   status:  faultrun status --log_dir faultrun_log",
        "faultrun:   stop:    faultrun stop --log_dir faultrun_log",
    ]
    run = behind(launcher, command).trains(range(2))
    assert run.pid != command.pid
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    wait_until(lambda: not marked(launcher.mark), what="the end of all processes")
    assert run.text.endswith("stopped by SIGTERM; no save was reported; exit code 143, 0 restarts\n")


def test_what_ends_before_the_workers_run_ends_the_command_with_its_code(launcher: Launcher) -> None:
    command = launcher.run("train()", "--join=False", "--master_port=1", "--fixed_port")
    with_root = os.geteuid() == 0
    assert command.ends() == (0 if with_root else 64)
    if with_root:
        run = behind(launcher, command)
        run.signal(signal.SIGTERM)
        run.ends()


def test_the_supervisor_goes_on_when_the_waiting_command_is_killed(launcher: Launcher) -> None:
    command = launcher.run("train_in_the_first_life()", "--join=False")
    command.event("RunStarted")
    command.kill_supervisor()
    run = behind(launcher, command).trains(range(2))
    run.kill(0)
    assert run.ends() == 0
    assert not (run.log_dir / "faultrun_traceback.txt").exists()


def test_the_background_belongs_to_no_terminal_and_holds_no_stream_of_it(launcher: Launcher) -> None:
    command = launcher.run("train()", "--join=False")
    assert command.ends() == 0
    run = behind(launcher, command).trains(range(2))
    assert os.getsid(run.pid) != os.getsid(0)
    held = open_files(run.pid)
    assert {held[fd] for fd in "012"} == {"/dev/null", str(run.log_dir / "faultrun.log")}
    assert str(command.console) not in held.values()
    assert lives(run.pid)
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
