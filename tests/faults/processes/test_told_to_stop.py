"""Somebody tells the supervisor to stop: the workers save, and the exit code says who asked."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from support.machine.processes import wait_until
from support.runs import FAULTRUN, HELD_SAVE, Launcher, Run

SAVES = "def save(*_):\n    say('saved')\n    sys.exit(143)\nsignal.signal(signal.SIGTERM, save)\ntrain()"
SAVES_SLOWLY = HELD_SAVE + "signal.signal(signal.SIGTERM, held_save)\ntrain()"
STUBBORN = "for one in (2, 15): signal.signal(one, signal.SIG_IGN)\ntrain()"
INTERRUPTED = "try: train()\nexcept KeyboardInterrupt: say('saved')"
OWN_HANDLER = SAVES.replace("SIGTERM", "SIGINT")


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_gives_the_workers_time_to_save_and_starts_nothing_again(
    launcher: Launcher, signum: signal.Signals, code: int
) -> None:
    run = launcher.run(SAVES).trains(range(2))
    run.signal(signum)
    assert run.ends() == code
    assert ["saved" in run.log(rank) for rank in range(2)] == [True, True]
    assert len(run.events("IncarnationStarted")) == 1
    assert f"told to stop by {signum.name}" in run.text
    assert run.text.endswith(
        f"stopped by {signum.name}; no save was reported; exit code {code}, 0 restarts\n"
    )


@pytest.mark.parametrize("code", [INTERRUPTED, OWN_HANDLER])
@pytest.mark.parametrize("shell", [(), ("bash", "-c", '"$@"; true', "wrapper")])
def test_a_script_that_saves_on_ctrl_c_and_knows_no_sigterm_hears_of_ctrl_c(
    launcher: Launcher, code: str, shell: tuple[str, ...]
) -> None:
    run = launcher.command("--worker_num=2", *shell, *launcher.program(code)).trains(range(2))
    run.signal(signal.SIGINT)
    assert run.ends() == 130
    assert ["saved" in run.log(rank) for rank in range(2)] == [True, True]
    assert "incident" not in run.text


def test_a_second_ctrl_c_cuts_the_window_short_and_says_so(launcher: Launcher) -> None:
    run = launcher.run(STUBBORN, "--stop_grace=60s").trains(range(2))
    run.signal(signal.SIGINT)
    run.event("GaspRequested")

    def pressed_again() -> bool:
        if not run.events("StopRequested", phase="killing"):
            run.signal(signal.SIGINT)
            return False
        return True

    wait_until(pressed_again, what="impatience")
    assert run.ends() == 130
    assert "told to stop again by SIGINT: no longer waiting for saves" in run.text


def test_preemptions_in_a_row_each_have_their_window_and_no_save_is_lost(launcher: Launcher) -> None:
    """As a pod is deleted: the hook, SIGTERM behind it, and once more by a trap that passes it on."""
    launcher.holds_saves(0, 1)
    for life in range(3):
        run = launcher.run(SAVES_SLOWLY, "--stop_grace=60s").trains(range(2), incarnation=life)
        hook = subprocess.Popen(
            [*FAULTRUN, "prestop", "--log_dir", str(run.log_dir)], stderr=subprocess.DEVNULL
        )
        run.event("StopRequested", incarnation=life, source="the preStop hook")
        run.signal(signal.SIGTERM)
        run.signal(signal.SIGHUP)
        run.event("StopRequested", incarnation=life, source="SIGHUP")
        launcher.lets_go(0, 1)
        assert run.ends() == 143
        assert hook.wait(60) == 0
        assert ["saved" in run.log(rank, life) for rank in range(2)] == [True, True], life
        assert not run.events("StopRequested", phase="killing")


def test_a_signal_that_comes_while_faultrun_still_starts_is_kept(launcher: Launcher) -> None:
    run = launcher.run("train()")
    _has_blocked_signals(run)
    run.signal(signal.SIGTERM)
    assert run.ends() == 143
    assert not run.events("IncarnationStarted") or run.events("StopRequested")


def test_while_the_platforms_clock_runs_no_time_goes_into_a_report_for_any_code(launcher: Launcher) -> None:
    options = ("--worker_num=1", "--exit_code_on_stop=0", "--no-python")
    clock = {"FAULTRUN_REPORT": "True", "FAULTRUN_TERMINATION_GRACE_S": "60"}
    run = launcher.command(*options, *launcher.program("train()"), environ=clock).trains(range(1))
    run.signal(signal.SIGTERM)
    assert run.ends() == 0
    assert "report not written" in run.text
    assert not (run.log_dir / "report.html").exists()


def test_the_reason_of_the_end_is_left_for_kubernetes(launcher: Launcher) -> None:
    message = launcher.folder / "termination-log"
    run = launcher.run("train()", f"--termination_log={message}").trains(range(2))
    run.signal(signal.SIGTERM)
    run.ends()
    assert message.read_text() == "stopped by SIGTERM; no save was reported; exit code 143, 0 restarts"


def test_a_run_is_stopped_from_another_terminal(launcher: Launcher) -> None:
    run = launcher.run(SAVES).trains(range(2))
    command = [*FAULTRUN, "stop", "--json", "--log_dir", str(run.log_dir)]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert asked.returncode == 0, asked.stderr
    told = json.loads(asked.stdout)
    assert (told["ended"], told["savings"]["faults"]) == (True, 0)
    assert run.ends() == 143
    assert "saved" in run.log(0)


def _has_blocked_signals(run: Run) -> None:
    """Wait until the interpreter is up and holds signals back; nothing slow is imported yet."""
    wanted = 1 << (signal.SIGTERM - 1)

    def blocked() -> bool:
        lines = Path(f"/proc/{run.pid}/status").read_text().splitlines()
        masks = [int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:")]
        return bool(masks[0] & wanted)

    wait_until(blocked, while_runs=run.pid, what="signals are held back")
