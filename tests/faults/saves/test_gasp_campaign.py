"""A short piece of the campaign of dying gasps, and proof that its judge sees what is broken."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.campaigns.gasps_deadline import Deadline, deadlines
from benchmarks.campaigns.gasps_evidence import Evidence, Life, Reference, State, broken
from benchmarks.campaigns.gasps_job import TORCH
from benchmarks.campaigns.gasps_plan import SAVE_EVERY, STEPS, Fault, Place, draw_faults, draw_stops
from benchmarks.campaigns.gasps_run import Stopped, broken_stop, restarted
from benchmarks.campaigns.gasps_table import loses_little
from benchmarks.harness.notes import Note

from support.lightly import lightly
from support.places import ROOT

FAULT = Fault(number=1, rank=1, step=8, place=Place.UPDATE, fraction=0.5)
WORKERS = 2
KILLED = {"is": "Signaled", "signum": 9}
REFERENCE = Reference(
    {(rank, step): (f"s{step}", f"w{step}r{rank}") for rank in range(WORKERS) for step in range(STEPS + 1)}
)


def said(found: Evidence, fault: Fault = FAULT) -> list[str]:
    """What is said of it, up to the numbers."""
    return shortened(broken(fault, found, REFERENCE))


def shortened(words: Sequence[str]) -> list[str]:
    return [text.split(":")[0].split(" [")[0].split(" (")[0].split(" 'saved")[0] for text in words]


def evidence(done: int = 8, resumed: int = 8) -> Evidence:
    """A run of two ranks in which rank 1 dies after step ``done`` and both go on from ``resumed``."""
    ranks = range(WORKERS)
    first = [note(rank, "step", step) for rank in ranks for step in range(1, done + 1)]
    second = [note(rank, "resumed", resumed) for rank in ranks]
    second += [note(rank, "step", step) for rank in ranks for step in range(resumed + 1, STEPS + 1)]
    second += [note(rank, "final", STEPS) for rank in ranks]
    lines: list[dict[str, Any]] = [
        {"event": "IncarnationStarted", "incarnation": 0},
        {"event": "WorkerExit", "incarnation": 0, "rank": 1, "status": KILLED},
        {"event": "WorkerExit", "incarnation": 0, "rank": 0, "status": {"is": "Exited", "code": 143}},
        {"event": "IncarnationStarted", "incarnation": 1},
    ]
    return Evidence(
        exit_code=0,
        workers=WORKERS,
        lives=(Life(notes=tuple(first), lines=()), Life(notes=tuple(second), lines=())),
        lines=lines,
        files=(State(0, resumed, REFERENCE.bits[0, resumed]),),
        orphans=0,
    )


def with_second(found: Evidence, other: Note, what: str, step: int | None = None) -> Evidence:
    """The same, but that one note of the second life is ``other``."""
    wanted = other.value.split()[0] if step is None else str(step)
    notes = []
    for one in found.lives[1].notes:
        hit = (one.rank, one.what) == (other.rank, what) and (
            what != "step" or one.value.split()[0] == wanted
        )
        notes.append(other if hit else one)
    return replace(found, lives=(found.lives[0], replace(found.lives[1], notes=tuple(notes))))


def note(rank: int, what: str, step: int, bits: tuple[str, str] | None = None) -> Note:
    shared, whole = REFERENCE.bits[rank, step] if bits is None else bits
    return Note(at_s=0.0, rank=rank, life=0, pid=1, what=what, value=f"{step} {shared} {whole}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "words",
    [
        # the fourth dies in an update
        pytest.param("--runs=4 --stops=4 --only=4 --workers=2 --seed=7", id="torch", marks=pytest.mark.torch),
        pytest.param(
            "--framework=mindspore --runs=1 --stops=0 --seed=5", id="mindspore", marks=pytest.mark.mindspore
        ),
    ],
)
def test_a_seeded_piece_of_the_campaign_keeps_every_promise(words: str) -> None:
    """Of MindSpore as ``DyingGasp()`` comes; one that copies every step is in ``tests/sdk``."""
    campaign = (sys.executable, "-m", "benchmarks.campaigns.gasps", *words.split())
    environ = {**os.environ, **lightly()}
    ended = subprocess.run(
        campaign, cwd=ROOT, env=environ, timeout=500, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 1 deaths kept every promise" in ended.stdout
    assert "--stops=0" in words or "1 of 1 stops kept every promise" in ended.stdout


def test_a_seed_draws_the_same_campaign_and_a_longer_one_begins_like_a_shorter_one() -> None:
    def drawn(runs: int, seed: int) -> tuple[object, ...]:
        return draw_faults(runs, seed, TORCH.workers, TORCH.places), draw_stops(runs, seed)

    assert drawn(20, 3) == drawn(20, 3)
    assert drawn(20, 3) != drawn(20, 4)
    for longer, shorter in zip(drawn(20, 3), drawn(5, 3), strict=True):
        assert isinstance(longer, tuple)
        assert longer[:5] == shorter


def test_every_rank_dies_in_every_place_at_steps_that_exist() -> None:
    faults = draw_faults(300, 1, TORCH.workers, TORCH.places)
    assert {(fault.rank, fault.place) for fault in faults} == {
        (rank, place) for rank in range(TORCH.workers) for place in TORCH.places
    }
    assert {fault.step for fault in faults} == set(range(1, STEPS + 1))
    assert all(fault.step % SAVE_EVERY == 0 for fault in faults if fault.place is Place.SAVE)


def test_a_run_that_kept_every_promise_is_not_accused_and_one_step_may_be_lost() -> None:
    assert said(evidence()) == said(evidence(done=9, resumed=8)) == []
    buffers_of_another_rank = note(1, "resumed", 8, ("s8", "w8r0"))
    assert said(with_second(evidence(), buffers_of_another_rank, "resumed")) == []


def seen_only_by_the_page() -> Evidence:
    """A step that no rank told, but the progress page."""
    beat = {"event": "Heartbeat", "incarnation": 0, "steps": [{"rank": 0, "step": 10}]}
    first, second = evidence().lives
    return replace(evidence(), lives=(replace(first, lines=(*first.lines, beat)), second))


def otherwise_before() -> Evidence:
    first, second = evidence().lives
    notes = (*first.notes, note(0, "step", 9, ("s9", "else")))
    return replace(evidence(), lives=(replace(first, notes=notes), second))


RESTARTED_TWICE = {"event": "IncarnationStarted", "incarnation": 2}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (evidence(done=9, resumed=7), ["2 steps lost"]),
        (seen_only_by_the_page(), ["2 steps lost"]),
        (
            with_second(evidence(), note(0, "resumed", 8, ("s8", "torn")), "resumed"),
            ["resumed another state"],
        ),
        (
            with_second(evidence(), note(1, "resumed", 8, ("s8", "w9r0")), "resumed"),
            ["resumed another state"],
        ),
        (replace(evidence(), files=(State(0, 8, ("s8", "w7r0")),)), ["saved another state"]),
        (otherwise_before(), ["trained otherwise before the fault"]),
        (
            with_second(evidence(), note(0, "step", 20, ("else", "w20r0")), "step", 20),
            ["trained otherwise afterwards"],
        ),
        (
            with_second(evidence(), note(0, "final", STEPS, ("else", "else")), "final"),
            ["ended with other weights"],
        ),
        (with_second(evidence(), note(1, "resumed", 7), "resumed"), ["the ranks resumed at"]),
        (with_second(evidence(), note(0, "step", 21), "step", 20), ["rank 0 resumed at 8 and counted steps"]),
        (replace(evidence(), exit_code=1, orphans=2), ["exit code 1", "2 orphans"]),
        (replace(evidence(), lines=[*evidence().lines, RESTARTED_TWICE]), ["not one restart"]),
    ],
)
def test_what_was_not_kept_is_seen(found: Evidence, words: list[str]) -> None:
    assert said(found) == words


def test_wrong_blame_is_seen() -> None:
    assert said(evidence(), replace(FAULT, rank=0)) == ["rank 1 is blamed"]


def test_a_stop_that_loses_a_step_or_does_not_say_what_it_saved_is_seen() -> None:
    stopped = Stopped(
        exit_code=143,
        life=evidence().lives[0],
        files=(),
        orphans=0,
        last_line="stopped by SIGTERM; saved step 8; exit code 143, 0 restarts",
        took_s=0.1,
    )
    assert broken_stop(stopped, 8) == []
    assert shortened(broken_stop(stopped, 7)) == ["1 steps lost", "the last line does not say"]
    assert broken_stop(replace(stopped, exit_code=0), 8) == ["exit code 0"]
    assert shortened(broken_stop(replace(stopped, last_line="no save was reported;"), 8)) == [
        "the last line does not say"
    ]


def test_a_next_start_that_fails_by_itself_is_named_with_whoever_failed_first() -> None:
    once = Life(notes=(), lines=({"event": "IncarnationStarted", "incarnation": 1},))
    assert restarted(once) == []
    left = {"event": "WorkerExit", "incarnation": 1, "rank": 1, "status": {"is": "Exited", "code": 1}}
    twice = replace(once, lines=(*once.lines, left, {"event": "IncarnationStarted", "incarnation": 2}))
    assert restarted(twice) == [
        "the next start needed 2 lives; rank 1 ended first: {'is': 'Exited', 'code': 1}"
    ]


def test_more_losses_than_promised_break_the_campaign_although_no_run_broke_a_promise() -> None:
    assert loses_little([{"lost": 0}] * 19 + [{"lost": 1}])
    assert not loses_little([{"lost": 0}] * 18 + [{"lost": 1}] * 2)


def test_a_deadline_is_read_from_the_journal_where_its_timer_closed_the_window() -> None:
    asked = {"event": "GaspRequested", "incarnation": 0, "ranks": [0, 2], "deadline_s": 7.0}
    fired = {"event": "TimerFired", "incarnation": 0, "timer": "grace", "run_s": 7.001}

    def left(rank: int, run_s: float) -> dict[str, Any]:
        return {"event": "WorkerExit", "incarnation": 0, "rank": rank, "run_s": run_s, "status": KILLED}

    lines = [left(1, 5.0), asked, fired, left(0, 7.004), left(2, 7.03)]
    (found,) = deadlines(lines)
    assert found.exact
    assert round(found.timer_s, 6) == 0.001
    assert round(found.last_exit_s, 6) == 0.03
    assert deadlines([line for line in lines if line is not fired]) == []
    assert not Deadline(timer_s=0.0, first_exit_s=-0.001, last_exit_s=0.01).exact
    assert not Deadline(timer_s=0.0, first_exit_s=0.001, last_exit_s=0.051).exact
