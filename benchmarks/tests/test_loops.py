"""The zoo of loops: what a seed composes ends as the undisturbed training does, or was refused by name."""

import os
import subprocess
import sys

import pytest
from benchmarks.campaigns import loops
from benchmarks.campaigns.loops import draw

from support.lightly import lightly
from support.places import ROOT

pytestmark = pytest.mark.torch


def test_a_seed_draws_the_same_loops_and_every_part_of_one() -> None:
    cases = [draw(number, seed=5) for number in range(600)]
    assert cases == [draw(number, seed=5) for number in range(600)]
    drawn = {(name, part) for one in cases for name, part in one.parts.items()}
    assert drawn == {(name, part) for name, known in loops._PARTS.items() for part in known}
    assert {one.stay for one in cases if one.parts["parallel"] == "by hand"} == {True, False}


def test_what_is_not_as_it_was_is_named() -> None:
    case = next(one for one in (draw(number, seed=1) for number in range(9)) if one.parts["size"] == "same")
    whole = [[{"step": step, "loss": 0.5, "batch": [step]} for step in (1, 2, 3, "end")] for _ in range(2)]
    assert not loops._difference(case, whole, [[*whole[0], whole[0][2]], whole[1]], stayed=True)
    other = {"step": 3, "loss": 0.5000001, "batch": [3]}
    told = loops._difference(case, whole, [whole[0], [*whole[1][:2], other, whole[1][3]]], stayed=True)
    assert told == "rank 1, step 3: loss"
    assert loops._difference(case, whole, [whole[0], whole[1][:3]], stayed=True) == "rank 1: missing end"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_of_the_zoo_end_as_if_nobody_had_died() -> None:
    assert_right("--loops=40", "--seed=1", *(f"--only={number}" for number in (0, 1, 3, 5, 7)))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thirty_of_the_zoo_end_as_if_nobody_had_died() -> None:
    assert_right("--loops=30", "--seed=1")


def assert_right(*options: str) -> None:
    """None of them differs in silence."""
    ended = subprocess.run(
        (sys.executable, "-m", "benchmarks.campaigns.loops", *options),
        cwd=ROOT,
        env={**os.environ, **lightly()},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
