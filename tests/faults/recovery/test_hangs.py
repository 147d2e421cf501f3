"""Ranks that stand still, in the real program: found, blamed, saved around, replaced; and no false alarm."""

import re
import signal
from pathlib import Path

from support.places import TESTS
from support.runs import Launcher, Run

COUNT = TESTS / "faults" / "scripts" / "hang_count.py"
_CALL = re.compile(r'hang_count\.py(?:", line \d+ in |:\d+\))')
"""As the rank says it, or py-spy: one that somebody stops again and again may not come to say it."""


def counting(launcher: Launcher, last: int, *deeds: str, options: tuple[str, ...] = ()) -> Run:
    own = ("--worker_num=3", "--checkpoint_dir=ck", "--backoff=10ms..20ms", "--max_restarts=9", *options)
    return launcher.command(*own, str(COUNT), str(last), *deeds)


def test_a_stopped_a_spinning_a_sleeping_and_a_rank_stuck_in_a_save_are_each_found_and_blamed(
    launcher: Launcher,
) -> None:
    run = counting(
        launcher, 260, "0:1:60:restop", "1:0:60:spin", "2:2:60:sleep", "3:1:60:saving",
        options=("--hang_limits=step=200ms..30m,checkpoint=4s",),
    )  # fmt: skip
    assert run.ends(within_s=400) == 0
    found = [(line["incarnation"], line["rank"], line["stance"]) for line in run.events("HangDetected")]
    assert found == [(0, 1, "stopped"), (1, 0, "spinning"), (2, 2, "sleeping"), (3, 1, "sleeping")]
    (waking,) = [line for line in run.events("HangWarned") if line["stance"] == "stopped"]
    assert waking["actions"] == [{"is": "Wake", "ranks": [1]}]
    # The stopped one was woken, and may have gone on; all others stay where they are.
    assert [line["step"] - line["point"]["global_step"] for line in _lost(run)][1:] == [0, 0, 0]
    for number, word in enumerate(["state T", "spins", "sleeps", "while saving"], start=1):
        assert word in run.judgement(number)["explanation"]
        assert "hang_count.py" in run.judgement(number)["stacks"]
        folder = _folder(run, number)
        assert sorted(path.name for path in folder.iterdir()) == [f"rank_{rank}.txt" for rank in range(3)]
        for rank in range(3):
            text = (folder / f"rank_{rank}.txt").read_text()
            assert _CALL.search(text) or (rank != found[number - 1][1] and text.startswith("no stack")), text
    kept = [path.read_text() for number in range(1, 5) for path in _folder(run, number).iterdir()]
    assert any('Thread "loader"' in text and " in fetch" in text for text in kept)
    assert "rank 1 of 3 hung at step" in run.card(1)
    assert "saved" in run.card(1)


def _folder(run: Run, number: int) -> Path:
    return run.log_dir / f"incident_{number}"


def _lost(run: Run) -> list[dict]:  # type: ignore[type-arg]
    """For each hang, its step and the recovery point that followed."""
    chosen = {line["incarnation"]: line["point"] for line in run.events("RecoveryPointChosen")}
    return [
        {"step": line["step"], "point": chosen[line["incarnation"]]} for line in run.events("HangDetected")
    ]


def test_as_it_comes_a_silence_is_warned_of_with_all_stacks_and_nobody_is_killed(launcher: Launcher) -> None:
    run = counting(launcher, 100, "0:1:60:sleep:6")
    assert run.ends(within_s=180) == 0
    (warned,) = run.events("HangWarned", rank=1, step=59)  # a disk that stands still is a pause, too
    assert warned["stance"] == "sleeping"
    assert (warned["acts_s"], warned["actions"]) == (300.0, [])
    stacks = run.log_dir / warned["folder"]
    assert "hang_count.py" in (stacks / "rank_1.txt").read_text()
    assert len(list(stacks.iterdir())) == 3
    assert max(over["paused_s"] for over in run.events("PauseOver", rank=1)) >= 6.0
    assert "rank 1 may hang after step 59: sleeps" in run.text
    assert "rank 1 goes on after" in run.text
    assert not run.events("HangDetected")


def test_slow_starts_evaluations_saves_slower_steps_real_work_early_ends_and_a_frozen_supervisor(
    launcher: Launcher,
) -> None:
    run = counting(
        launcher, 150, "0:*:1:sleep:2", "0:0:60:evaluating:2", "0:1:80:saving:2", "0:*:100:slow:5",
        "0:2:120:compute:2",
        options=("--hang_limits=step=500ms..30m,checkpoint=60s,evaluation=60s",),
    )  # fmt: skip
    run.trains(range(3))
    run.said(0, "evaluating")
    run.signal(signal.SIGSTOP)
    run.said(1, "slow")
    run.said(2, "compute")
    run.signal(signal.SIGCONT)
    assert run.ends(within_s=180) == 0
    assert not run.events("HangDetected")


def test_ranks_that_train_on_while_their_supervisor_alone_stands_still_have_not_stood(
    launcher: Launcher,
) -> None:
    run = launcher.run(
        """
import time
for step in range(1, 141):
    time.sleep(0.1)
    say(f"step {step} loss 0.5")
"""
    )
    run.said(0, "step 30 loss 0.5")
    run.signal(signal.SIGSTOP)
    run.said(0, "step 110 loss 0.5")
    run.signal(signal.SIGCONT)
    assert run.ends(within_s=180) == 0
    assert not run.events("PauseOver", all_stood=True)


def test_without_the_sdk_a_silent_log_and_an_idle_tree_are_a_hang_with_all_stacks(launcher: Launcher) -> None:
    code = """
import time
if life == 0 and rank == 1:
    say("ready")
    time.sleep(600)
until_s = time.monotonic() + 600
say("ready")
while life == 0 and time.monotonic() < until_s:
    pass
"""
    run = launcher.run(code, "--hang_signal=log", "--hang_timeout=2s", "--grace=1s")
    assert run.ends(within_s=120) == 0
    (found,) = run.events("HangDetected")
    assert (found["rank"], found["incarnation"]) == (1, 0)
    assert found["stance"] in ("sleeping", "blocked")
    assert "nothing heard" in found["because"]
