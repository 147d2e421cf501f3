"""Real runs of every kind: whoever tells of one says the same numbers, and those of its journal."""

import json
import signal
import subprocess
import sys

import pytest

from support.places import TESTS
from support.reporting.outlets import all_agree
from support.runs import FAULTRUN, Launcher, Run
from support.stories.recount import Recount

STEPS = (sys.executable, str(TESTS / "faults" / "scripts" / "steps.py"))
OPTIONS = ("--worker_num=2", "--metrics_file=run.prom", "--on_event=(cat; echo) >> told.jsonl")


def started(launcher: Launcher, *words: str, options: tuple[str, ...] = ()) -> Run:
    """A run that tells whoever can be told."""
    return launcher.command(*OPTIONS, *options, *STEPS, *words, environ={"FAULTRUN_REPORT": "True"})


def agreed(launcher: Launcher, run: Run, *, whole: bool = True) -> Recount:
    """What all outlets say of the run that has ended; ``whole``: one supervisor saw all of it."""
    told = [json.loads(line) for line in (launcher.folder / "told.jsonl").read_text().splitlines() if line]
    return all_agree(
        run.log_dir,
        console=run.text if whole else "",
        announced=told if whole else None,
        exposition=(launcher.folder / "run.prom").read_text(),
    )


def test_a_run_that_repeats_everything_from_zero_by_its_logs(launcher: Launcher) -> None:
    run = started(launcher, "60", "0:1:20:9", "1:1:40:9")
    assert run.ends() == 0
    truth = agreed(launcher, run)
    assert (truth.incidents, truth.newest_step) == (2, 60)
    assert truth.lost_steps is not None
    assert truth.lost_steps >= 60
    assert truth.productive_s is not None
    assert truth.productive_s < truth.wall_s / 2
    assert "at step 20 by its log" in run.card(1) or "at step 20, others at" in run.card(1)


def test_a_run_of_which_nobody_tells_a_step_claims_nothing(launcher: Launcher) -> None:
    run = started(launcher, "30", "silent", "0:1:10:9")
    assert run.ends() == 0
    truth = agreed(launcher, run)
    assert (truth.incidents, truth.restarts, truth.newest_step, truth.lost_steps) == (1, 1, None, None)
    assert "goodput unknown (the script reports no steps)" in run.text
    assert "workers running again after" in run.card(1)


def test_a_script_that_cannot_be_imported_was_not_productive(launcher: Launcher) -> None:
    run = launcher.command(
        *OPTIONS, *launcher.program("import nothing_of_this_name"), environ={"FAULTRUN_REPORT": "True"}
    )
    assert run.ends() == 93
    truth = agreed(launcher, run)
    assert (truth.incidents, truth.restarts, truth.productive_s) == (1, 0, None)
    assert "goodput unknown (it failed before a step was seen)" in run.text


def test_saves_of_the_sdk_and_two_kills(launcher: Launcher) -> None:
    run = started(launcher, "160", "save", "0:1:20:9", "1:1:40:9")
    assert run.ends() == 0
    truth = agreed(launcher, run)
    assert (truth.incidents, truth.restarts, truth.saves, truth.newest_step) == (2, 2, 2, 160)
    # Ranks do not wait for each other here: what is lost is how far they are apart at the save.
    assert truth.lost_steps is not None
    assert truth.lost_steps < 20
    assert "2 of 3 left this hour (1 earlier one given back for progress)" in run.card(2)


@pytest.mark.parametrize("words", [("sdk",), ()], ids=["reported", "logged"])
def test_a_rank_that_hangs_while_others_go_on_a_little(words: tuple[str, ...], launcher: Launcher) -> None:
    options = ("--hang_timeout=3",) if words else ("--hang_timeout=3", "--hang_signal=log")
    run = started(launcher, "30", *words, "0:1:10:hang", "0:0:14:hang", options=options)
    assert run.ends() == 0
    truth = agreed(launcher, run)
    assert (truth.incidents, truth.restarts, truth.newest_step, truth.lost_steps) == (1, 1, 30, 14)
    assert set(truth.recoveries_s) == {1}
    report = json.loads((run.log_dir / "report.json").read_text())
    assert report["causes"] == {"hung: sleeps": 1}
    if words:
        assert "rank 1 of 2 hung at step 10, others at 14 " in run.card(1)


def test_a_run_that_is_stopped_and_goes_on(launcher: Launcher) -> None:
    words = ("40", "save", "0:0:20:ready", "0:1:20:ready")
    run = started(launcher, *words)
    run.trains((0, 1)).signal(signal.SIGTERM)
    assert run.ends() == 143
    # Its report has three seconds after a stop, in which Python may not even have started.
    subprocess.run([*FAULTRUN, "report"], cwd=launcher.folder, check=True, stdout=subprocess.DEVNULL)
    first = agreed(launcher, run, whole=False)
    assert (first.incidents, first.newest_step, first.lost_steps) == (0, 20, 0)
    assert "failed" not in (run.log_dir / "report.md").read_text()
    again = started(launcher, *words)
    assert again.ends() == 0
    truth = agreed(launcher, again, whole=False)
    assert (truth.incidents, truth.newest_step, truth.lost_steps) == (0, 40, 0)


@pytest.mark.parametrize("words", [("sdk",), ()], ids=["reported", "logged"])
def test_what_a_lost_supervisor_took_along_was_trained_twice(
    words: tuple[str, ...], launcher: Launcher
) -> None:
    command = ("40", *words, "0:0:30:ready", "0:1:30:ready")
    run = started(launcher, *command)
    run.trains((0, 1)).kill_supervisor()
    again = started(launcher, *command)
    assert again.ends() == 0
    (lost,) = again.events("WorkersLost")
    assert ([one["step"] for one in lost["steps"]], lost["by_log"]) == ([30, 30], not words)
    truth = agreed(launcher, again, whole=False)
    assert (truth.incidents, truth.newest_step, truth.lost_steps) == (0, 40, 30)
    assert "30 steps trained twice" in again.text
