"""Random numbers of a torch training: written down, kept by step, and drawn again."""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from faultrun.sdk.torch.state.rng import current_rng, restore_rng, rng_from_plain, rng_to_plain
from faultrun.sdk.torch.state.rng_recorder import RngRecorder
from faultrun.sdk.worker.save_files import Position

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.mark.parametrize("waiting", [0, 1])
def test_random_numbers_survive_being_written_down(tmp_path: Path, waiting: int) -> None:
    import numpy as np

    random.seed(7)
    np.random.seed(7)
    for _ in range(waiting):  # normal numbers are made in pairs: the second waits in the state
        random.gauss(0, 1)
        np.random.randn()
    place, own = Position(step=4, epoch=1, step_in_epoch=2), torch.Generator().manual_seed(3)
    documented = current_rng(own.get_state())
    RngRecorder(tmp_path / "n", "run", 2).step(place, own.get_state())
    recorded = RngRecorder(tmp_path / "n", "run", 2).at_step(place)
    assert recorded is not None
    drawn = []
    for one in (documented, rng_from_plain(rng_to_plain(documented)), recorded):
        generator = torch.Generator()
        restore_rng(one, generator)
        drawn.append(
            [
                torch.rand(2).tolist(),
                [random.gauss(0, 1), random.random()],
                np.random.randn(3).tolist(),
                torch.rand(2, generator=generator).tolist(),
            ]
        )
    assert drawn[0] == drawn[1] == drawn[2]


def test_every_record_is_of_its_own_moment(tmp_path: Path) -> None:
    """Quick copies must see every kind of change, also of a number that only waits."""
    import numpy as np

    changes: list[Callable[[], object]] = [
        np.random.randn,
        np.random.randn,
        lambda: random.gauss(0, 1),
        lambda: random.gauss(0, 1),
        lambda: np.random.shuffle([1, 2, 3]),
        *(lambda seed=seed: np.random.seed(seed) for seed in (5, [5], [6])),
        lambda: random.seed(5),
        lambda: torch.rand(1),
    ]
    recorder = RngRecorder(None, "run", 2)
    for change in changes:
        change()
        recorded, documented = recorder.read(recorder.step(Position(step=1), None)), current_rng()
        assert recorded.python == documented.python
        assert recorded.numpy is not None
        assert documented.numpy is not None
        assert (recorded.numpy[1] == documented.numpy[1]).all()
        assert recorded.numpy[2:4] == documented.numpy[2:4]
        assert not recorded.numpy[3] or recorded.numpy[4] == documented.numpy[4]
        assert torch.equal(recorded.cpu, documented.cpu)


def test_the_last_steps_and_the_one_under_way_are_kept(tmp_path: Path) -> None:
    recorder = RngRecorder(tmp_path / "n", "run", 2)
    for step in range(1, 6):
        recorder.under_way(Position(step=step), None)
        recorder.step(Position(step=step), None)
    recorder.under_way(Position(step=6), None)
    found = [step for step in range(8) if recorder.at_step(Position(step=step)) is not None]
    assert found == [4, 5, 6]
    assert RngRecorder(tmp_path / "n", "another run", 2).at_step(Position(step=5)) is None


def test_a_record_of_another_place_is_not_taken(tmp_path: Path) -> None:
    recorder = RngRecorder(tmp_path / "n", "run", 2)
    recorder.step(Position(step=5, epoch=1, step_in_epoch=2), None)
    recorder.epoch(Position(step=3, epoch=1, step_in_epoch=0), None)
    assert recorder.at_step(Position(step=5, epoch=1, step_in_epoch=3)) is None
    assert recorder.at_step(Position(step=3, epoch=1, step_in_epoch=0)) is None
    assert recorder.at_epoch(1) is not None
    assert recorder.at_epoch(2) is None


@given(others=st.lists(st.integers(0, 40), max_size=3), later=st.integers(1, 9))
def test_who_resumes_twice_at_one_step_draws_the_same_numbers_twice(others: list[int], later: int) -> None:
    """Whatever was trained in between, and wherever else it was resumed meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        place = Position(step=50, epoch=2, step_in_epoch=3)
        file = Path(folder, "n")
        first = RngRecorder(file, "run", 2)
        first.epoch(place._replace(step_in_epoch=0), None)
        torch.rand(1)
        first.step(place, None)
        found = RngRecorder(file, "run", 2).at_step(place), RngRecorder(file, "run", 2).at_epoch(2)
        for resumed in (*others, 50):
            training = RngRecorder(file, "run", 2)
            training.at_step(Position(step=resumed, epoch=9))
            for step in range(resumed + 1, resumed + 1 + later):
                torch.rand(1)
                training.epoch(Position(step=step, epoch=step), None)
                training.step(Position(step=step, epoch=step), None)
        again = RngRecorder(file, "run", 2).at_step(place), RngRecorder(file, "run", 2).at_epoch(2)
        for one, other in zip(found, again, strict=True):
            assert one is not None
            assert other is not None
            assert torch.equal(one.cpu, other.cpu)
