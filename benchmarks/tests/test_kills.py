"""A short piece of ``make soak``: real trainings, a rank of each killed by chance from a seed."""

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.campaigns.evidence import Evidence, broken
from benchmarks.campaigns.kill_plan import SAVE_EVERY, STEPS, WORKERS, Kill, Way, When, plan
from benchmarks.harness.notes import Note

from support.lightly import lightly
from support.places import ROOT

DIGEST = "c0ffee"
KILL = Kill(number=1, rank=1, step=8, when=When.BEFORE, way=Way.REWRITE)


@pytest.mark.torch
@pytest.mark.slow
def test_a_training_with_a_rank_killed_keeps_every_promise() -> None:
    campaign = (sys.executable, "-m", "benchmarks.campaigns.kills", "--runs=1", "--seed=7")
    environ = {**os.environ, **lightly()}
    ended = subprocess.run(
        campaign, cwd=ROOT, env=environ, timeout=560, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 1 runs kept every promise" in ended.stdout


def test_a_seed_draws_the_same_kills_and_a_longer_campaign_begins_like_a_shorter_one() -> None:
    assert plan(20, seed=3)[:5] == plan(5, seed=3)
    assert plan(20, seed=3) != plan(20, seed=4)


def test_a_campaign_kills_every_rank_in_every_way_at_steps_that_exist() -> None:
    kills = plan(200, seed=1)
    assert {(kill.rank, kill.when, kill.way) for kill in kills} == {
        (rank, when, way) for rank in range(WORKERS) for when in When for way in Way
    }
    assert {kill.step for kill in kills} == set(range(1, STEPS + 1))


def test_a_run_that_kept_every_promise_is_not_accused() -> None:
    assert broken(KILL, evidence(), DIGEST) == []


def test_a_step_that_is_counted_twice_is_seen() -> None:
    twice = evidence(second=[6, 7, 7, *range(8, STEPS + 1)])
    assert said(twice) == [f"rank {rank} resumed at 5 and counted steps" for rank in range(WORKERS)]


def test_a_step_that_is_left_out_is_seen() -> None:
    assert said(evidence(second=list(range(7, STEPS + 1)))) == [
        f"rank {rank} resumed at 5 and counted steps" for rank in range(WORKERS)
    ]


def test_other_weights_than_those_of_an_undisturbed_training_are_seen() -> None:
    assert said(evidence(digest="dead")) == [
        f"rank {rank} ends with other weights" for rank in range(WORKERS)
    ]


def test_a_second_restart_is_seen() -> None:
    lines = [*evidence().lines, {"event": "IncarnationStarted", "incarnation": 2}]
    assert said(replace(evidence(), lines=lines)) == ["not recovered at the first restart"]


def test_orphans_and_exit_codes_are_seen() -> None:
    assert said(replace(evidence(), orphans=2, exit_code=1)) == ["exit code 1", "2 orphans"]


def test_a_checkpoint_that_is_older_than_the_newest_is_seen() -> None:
    late = evidence(first=list(range(1, 13)), saved=(5, 10))
    assert said(late) == ["resumed at 5 although 10 was saved", "7 steps lost"]


def test_blaming_another_rank_than_the_killed_one_is_seen() -> None:
    assert said(evidence(), kill=replace(KILL, rank=0)) == ["rank 1 is blamed"]


def said(found: Evidence, *, kill: Kill = KILL) -> list[str]:
    """What is said of it, up to the numbers."""
    words = broken(kill, found, DIGEST)
    return [
        text.split(" [")[0].split(" (")[0].split(" than")[0].split(":")[0].split(",")[0] for text in words
    ]


def evidence(
    first: list[int] | None = None,
    second: list[int] | None = None,
    saved: tuple[int, ...] = (5,),
    digest: str = DIGEST,
) -> Evidence:
    """A run in which rank 1 is killed before step 8 and both go on from 5, but for what a test changes."""
    first = list(range(1, 8)) if first is None else first
    second = list(range(6, STEPS + 1)) if second is None else second
    notes = [note(rank, 0, "step", step) for rank in range(WORKERS) for step in first]
    notes += [note(0, 0, "saved", step) for step in saved]
    for rank in range(WORKERS):
        notes.append(note(rank, 1, "resumed", SAVE_EVERY))
        notes += [note(rank, 1, "step", step) for step in second]
        notes.append(note(rank, 1, "final", digest))
    killed: dict[str, Any] = {"is": "Signaled", "signum": 9}
    lines = [
        {"event": "IncarnationStarted", "incarnation": 0},
        {"event": "WorkerExit", "incarnation": 0, "rank": 1, "status": killed},
        {"event": "WorkerExit", "incarnation": 0, "rank": 0, "status": {"is": "Exited", "code": 143}},
        {"event": "IncarnationStarted", "incarnation": 1},
    ]
    return Evidence(exit_code=0, notes=tuple(notes), lines=lines, orphans=0)


def note(rank: int, life: int, what: str, value: object) -> Note:
    return Note(at_s=0.0, rank=rank, life=life, pid=1, what=what, value=str(value))
