"""The dying gasp in trouble: slow saves, full disks, frozen survivors, impatient people; real processes.

How exactly a window closes is measured by ``benchmarks.campaigns.gasps --deadlines``, not here.
"""

import hashlib
import signal
from typing import Any

import pytest

from support.places import TESTS
from support.runs import Launcher, Run

COUNT = TESTS / "faults" / "scripts" / "gasp_count.py"


def counting(launcher: Launcher, *words: str, trouble: int = 0, options: tuple[str, ...] = ()) -> Run:
    """Three ranks that count; ``words`` are about their saves in life ``trouble``."""
    own = ("--worker_num=3", "--checkpoint_dir=ck", "--backoff=10ms..20ms", *options)
    return launcher.command(*own, str(COUNT), str(trouble), *words)


def in_the_second_life(launcher: Launcher, *words: str, options: tuple[str, ...] = ()) -> Run:
    """All stand at step 8, came from the gasp of step 5, and the next save will be in trouble."""
    run = counting(launcher, *words, trouble=1, options=options).trains(range(3))
    run.kill(0)
    run.trains(range(3), incarnation=1)
    assert [run.log(rank, 1).splitlines()[0] for rank in range(3)] == ["from 5"] * 3
    return run


def resumed(run: Run, incarnation: int) -> dict[str, Any]:
    (chosen,) = [
        line["point"]
        for line in run.events("RecoveryPointChosen", incarnation=incarnation - 1)
        if line["point"] is not None
    ]
    point: dict[str, Any] = chosen
    return point


def checkpoints(launcher: Launcher) -> dict[str, str]:
    """Name to digest of all that lies in the checkpoint directory."""
    files = (path for path in (launcher.folder / "ck").rglob("*") if path.is_file())
    files = (path for path in files if ".faultrun" not in path.parts)  # ours, where the folder is a mount
    return {
        str(path.relative_to(launcher.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def after_the_deadline(run: Run, rank: int, incarnation: int) -> float:
    """Seconds from the end of the window to the end of ``rank``, which SIGKILL ended."""
    (asked,) = run.events("GaspRequested", incarnation=incarnation)
    (left,) = run.events("WorkerExit", incarnation=incarnation, rank=rank)
    assert left["status"] == {"is": "Signaled", "signum": signal.SIGKILL}
    return float(left["run_s"] - asked["deadline_s"])


def test_a_save_that_outlives_the_window_is_cut_off_and_the_older_checkpoint_serves(
    launcher: Launcher,
) -> None:
    run = in_the_second_life(launcher, "slow", options=("--grace=6s",))
    before = checkpoints(launcher)
    run.kill(1)
    assert run.ends() == 0
    for rank in (0, 2):
        assert after_the_deadline(run, rank, 1) >= 0
    why = "the save did not finish within the window"
    assert {(line["rank"], line["because"]) for line in run.events("GaspFailed", incarnation=1)} == {
        (0, why), (2, why)
    }  # fmt: skip
    assert resumed(run, 2)["global_step"] == 5
    assert before.items() <= checkpoints(launcher).items()
    card = run.card(2)
    assert f"saved     nothing: ranks 0 2: {why}" in card
    assert "step 5, lost 3 steps" in card
    assert run.log(0, 2).splitlines()[0] == "from 5"


@pytest.mark.parametrize(
    ("word", "why"),
    [("device-full", "[Errno 28] No space left on device"), ("limited", "[Errno 27] File too large")],
)
def test_a_disk_that_refuses_is_told_and_the_older_checkpoint_is_untouched(
    launcher: Launcher, word: str, why: str
) -> None:
    run = in_the_second_life(launcher, word)
    before = checkpoints(launcher)
    run.kill(1)
    assert run.ends() == 0
    assert_refused(launcher, run, before, why)


def assert_refused(launcher: Launcher, run: Run, before: dict[str, str], why: str) -> None:
    """Both survivors said so, left at once, and life 2 went on from step 5."""
    failed = run.events("GaspFailed", incarnation=1)
    assert [line["rank"] for line in sorted(failed, key=lambda line: int(line["rank"]))] == [0, 2]
    assert all(line["because"].startswith(why) for line in failed)
    assert not run.events("GaspSaved", incarnation=1)
    assert not run.events("TimerFired", incarnation=1, timer="grace")
    assert checkpoints(launcher) == before
    assert f"saved     nothing: ranks 0 2: {why}" in run.card(2)
    assert resumed(run, 2)["global_step"] == 5
    assert run.log(2, 2).splitlines()[0] == "from 5"


def test_a_frozen_survivor_is_woken_and_saves_when_it_is_the_only_one_that_can(launcher: Launcher) -> None:
    launcher.holds_saves(2)
    run = counting(launcher, "unable-0", "held").trains(range(3))
    run.kill(2, signum=signal.SIGSTOP)
    run.kill(1)
    run.event("GaspFailed", rank=0)
    launcher.lets_go(2)  # not before: once one has saved, nobody waits for what another has to say
    assert run.ends() == 0
    (saved,) = run.events("GaspSaved")
    assert (saved["rank"], saved["step"]) == (2, 5)
    assert resumed(run, 1)["path"] == str(launcher.folder / "ck" / "rank_2" / "count-step_5.json")
    assert "rank 2 saved step 5" in run.card(1)
    assert "not saved: rank 0: ValueError: no such luck" in run.card(1)


def test_what_a_rank_that_left_with_0_leaves_behind_is_saved(launcher: Launcher) -> None:
    run = counting(launcher, "left")
    assert run.ends() == 0
    assert {line["step"] for line in run.events("GaspSaved")} == {5}
    assert "rank 0 of 3 exited with code 0 at step 5   failed first; ranks 1 2 stopped" in run.card(1)
    assert run.log(1, 1).splitlines()[0] == "from 5"


def test_a_survivor_that_stays_frozen_is_killed_at_the_deadline(launcher: Launcher) -> None:
    run = counting(launcher, "unable-0", "freezes-2", options=("--grace=2s",)).trains(range(3))
    run.kill(1)
    assert run.ends() == 0
    assert after_the_deadline(run, 2, 0) >= 0
    assert "from the beginning: no known checkpoint in ck, lost 5 steps" in run.card(1)
    assert run.log(0, 1).splitlines()[0] == "from 0"


def test_being_told_again_while_it_saves_changes_nothing_for_a_worker(launcher: Launcher) -> None:
    launcher.holds_saves(0, 2)
    run = counting(launcher, "held").trains(range(3))
    run.kill(1)
    for rank in (0, 2):
        run.said(rank, "saving")
        run.kill(rank, signum=signal.SIGTERM)
        run.kill(rank, signum=signal.SIGTERM)
    launcher.lets_go(0)
    run.event("GaspSaved", rank=0)
    assert run.ends() == 0
    assert run.log(0).count("saving") == 1
    assert len(run.events("GaspSaved", rank=0)) == 1
    (left,) = run.events("WorkerExit", incarnation=0, rank=0)
    assert left["status"] in ({"is": "Exited", "code": 143}, {"is": "Signaled", "signum": signal.SIGKILL})
    assert resumed(run, 1)["global_step"] == 5
