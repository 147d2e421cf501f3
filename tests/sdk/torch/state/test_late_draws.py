"""What a killed rank had drawn behind its last note: as many numbers as in the step before."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faultrun.sdk.torch.state.late_draws import drawn_as_before
from faultrun.sdk.torch.state.rng import current_rng, restore_rng
from faultrun.sdk.torch.state.rng_recorder import RngRecorder, noted_in
from faultrun.sdk.torch.state.trees import same
from faultrun.sdk.worker.save_files import Position

pytestmark = pytest.mark.torch

DRAWS: dict[str, Callable[[int], object]] = {
    "python": lambda n: [random.random() for _ in range(n)],
    "pairs of python": lambda n: [random.gauss(0, 1) for _ in range(2 * n)],
    "choices of python": lambda n: random.choices(range(9), k=n),
    "numpy": np.random.rand,
    "torch": torch.rand,
    "normal numbers of torch": lambda n: torch.randn(16 + n),
    "pairs of torch": lambda n: torch.randn(2 * (n % 7)),
    "an order of torch": torch.randperm,
}
SOME = st.lists(st.tuples(st.sampled_from([*DRAWS]), st.integers(0, 2000)), max_size=5)
FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def draw(some: list[tuple[str, int]]) -> None:
    for kind, count in some:
        DRAWS[kind](count)


def following() -> object:
    return [
        random.random(),
        random.gauss(0, 1),
        np.random.rand(),
        np.random.randn(),
        *torch.randn(3).tolist(),
    ]


@FEW
@given(seed=st.integers(0, 99), before=SOME, tail=SOME, between=SOME)
def test_a_step_that_draws_as_much_as_the_one_before_ends_with_the_same_numbers(
    seed: int, before: list[tuple[str, int]], tail: list[tuple[str, int]], between: list[tuple[str, int]]
) -> None:
    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
    draw(before)
    then = current_rng()
    draw(tail)
    end = current_rng()
    draw(between)
    now = current_rng()
    draw(tail)
    expected = following()
    found = drawn_as_before(now, then, end)
    assert found is not None
    restore_rng(found)
    assert following() == expected


def test_half_a_pair_and_numbers_that_do_not_follow_are_not_guessed() -> None:
    torch.manual_seed(1)
    then = current_rng()
    torch.randn(1)
    assert drawn_as_before(then, then, current_rng()) is None
    torch.manual_seed(2)
    assert drawn_as_before(then, then, current_rng()) is None


@pytest.mark.parametrize("killed", ["behind the forward pass", "behind the update"])
def test_a_rank_finds_what_it_had_drawn_in_a_step_that_it_did_not_end_and_again_the_next_time(
    killed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(4)
    recorder = RngRecorder(tmp_path / "r", "run", 2)
    for step in (1, 2, 3):
        torch.rand(10 * step)
        recorder.under_way(Position(step), None)
        torch.rand(step if killed == "behind the update" else 5)
        if step < 3 or killed == "behind the update":
            recorder.under_way(Position(step), None, updated=True)
            noted = current_rng()
        torch.rand(700)
        if step < 3:
            recorder.step(Position(step), None)
    expected = current_rng()
    if killed == "behind the update":
        found = noted_in(tmp_path / "r", "run", 2, Position(3))
        assert found is not None
        assert same(found.cpu, noted.cpu)
    for _ in range(2):
        found = RngRecorder(tmp_path / "r", "run", 2).at_step(Position(3))
        assert found is not None
        assert same(found.cpu, expected.cpu)
    assert capsys.readouterr().err.count("as many as a step before") == 1
