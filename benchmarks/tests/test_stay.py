"""A short piece of ``make soak-stay``, and proof that its judge sees what it is there to see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.campaigns.stay_judge import (
    Line,
    differing,
    lost_steps,
    missing,
    out_of_order,
    parse,
    trained_again_s,
    truth_of,
)
from benchmarks.campaigns.stay_plan import How, Whom, of_phases, sessions
from benchmarks.jobs.stay_board import OF_A_REPAIR, OF_A_STEP, Board, Place

from support.lightly import lightly
from support.places import ROOT


@pytest.mark.slow
@pytest.mark.torch
def test_deaths_that_survivors_outlive_break_no_promise(tmp_path: Path) -> None:
    words = ("--deaths=2", "--seed=3", "--only=0", f"--see={tmp_path / 'see'}")
    campaign = (sys.executable, "-m", "benchmarks.campaigns.stay", *words)
    environ = {**os.environ, **lightly("launcher", "."), "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        campaign, cwd=ROOT, env=environ, timeout=560, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_seed_draws_the_same_deaths_and_all_that_there_are() -> None:
    drawn = sessions(500, seed=5)
    assert drawn == sessions(500, seed=5)
    by_mode = {mode: [one for one in drawn if one.mode == mode] for mode in ("ddp", "fsdp")}
    assert [sum(len(one.deaths) for one in of) for of in by_mode.values()] == [300, 200]
    deaths = [death for session in drawn for death in session.deaths]
    assert {death.how for death in deaths} == set(How)
    assert {death.place for death in deaths} == {*OF_A_STEP, Place.ENDS}
    assert {death.second.whom for death in deaths if death.second is not None} == set(Whom)
    assert {len(death.victims) for death in deaths} == {1, 2}


def test_each_phase_of_a_repair_has_a_second_death_of_each_kind() -> None:
    planned = of_phases()
    assert [session.mode for session in planned] == ["ddp", "fsdp"]
    for session in planned:
        seconds = [death.second for death in session.deaths if death.second is not None]
        cells = {(second.whom, second.place) for second in seconds}
        assert len(cells) == len(session.deaths) == len(seconds)
        assert {place for whom, place in cells if whom is Whom.SURVIVOR} == set(OF_A_REPAIR)
        joins = {place for place in OF_A_REPAIR if place >= Place.JOIN}
        assert {place for whom, place in cells if whom is Whom.NEWCOMER} == joins
        assert {death.ready for death in session.deaths} == {True, False}


UNDISTURBED = truth_of(
    parse("1.0 7 begin 1 aa\n1.1 7 done 1 11\n1.2 7 begin 2 bb\n1.3 7 done 2 22\n1.4 7 begin 3 cc")
)


def told(*lines: str) -> list[Line]:
    return parse("\n".join(lines))


def test_a_step_that_was_taken_back_counts_once() -> None:
    lines = told("1.0 7 begin 1 aa", "1.1 7 done 1 11", "1.2 7 begin 2 bb", "1.5 7 back 1 -")
    lines += told("1.6 7 begin 2 bb", "1.7 7 done 2 22", "1.8 7 begin 3 cc")
    assert not [*differing(0, lines, UNDISTURBED), *out_of_order(0, lines), *missing(0, lines, 2)]
    assert trained_again_s([lines], 1.3) == 1.7
    assert trained_again_s([lines, lines[:-2]], 1.3) is None
    assert lost_steps([lines], 1.3) == 0


def test_other_bits_are_seen() -> None:
    assert [*differing(0, told("1.0 7 begin 2 xx"), UNDISTURBED)]
    assert [*differing(0, told("1.0 7 done 1 12"), UNDISTURBED)]


@pytest.mark.parametrize(
    ("after", "seen"),
    [
        (("1.2 7 begin 1 aa",), "made again"),
        (("1.2 7 begin 3 cc",), "1 was the last"),
        (("1.2 8 begin 1 aa",), ""),
        (("1.2 7 back 0 -", "1.3 7 begin 1 aa"), ""),
    ],
)
def test_a_step_made_twice_or_left_out_is_seen(after: tuple[str, ...], seen: str) -> None:
    found = [*out_of_order(0, told("1.0 7 begin 1 aa", *after))]
    assert len(found) == bool(seen)
    assert all(seen in words for words in found)


def test_steps_that_are_not_there_are_seen() -> None:
    (words,) = missing(1, told("1.0 7 begin 1 aa"), 2)
    assert words == "rank 1: steps 2 to 3 are not there (2)"


def test_only_whom_it_is_meant_for_ends_itself(tmp_path: Path) -> None:
    board = Board(tmp_path / "board", 2)
    board.arm(1, os.getpid() + 1, Place.LOADER)
    board.arm(1, -os.getpid(), Place.JOIN, second=True)
    for rank, place in ((0, Place.LOADER), (1, Place.LOADER), (1, Place.JOIN)):
        board.strike(rank, 5, place)
    board.arm(1, os.getpid(), Place.LOADER, step=6)
    board.strike(1, 5, Place.LOADER)
    if (pid := os.fork()) == 0:
        board.arm(1, os.getpid(), Place.UPDATE, step=5)
        board.strike(1, 5, Place.UPDATE)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 9
    assert board.struck_s(1) > 0
    assert board.struck_s(0) == 0
