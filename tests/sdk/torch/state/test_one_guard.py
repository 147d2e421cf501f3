"""One guard holds all that a rank trains, and what it counts is what was done."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from faultrun.errors import FaultrunError
from faultrun.sdk.session import ResumePoint, Session
from faultrun.sdk.torch import protect
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.worker.save_files import Position
from faultrun.sdk.worker.state_provider import SaveOrder
from faultrun.sdk.worker.worker import Worker

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(autouse=True)
def beside_faultrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker for all guards of a test."""
    this = Worker(Session())
    monkeypatch.setattr("faultrun.sdk.torch.worker", lambda: this)


class Part:
    def __init__(self, directory: Path) -> None:
        self.net = nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.guard: Guard = protect(self.net, self.optimizer, directory=directory)

    def update(self) -> None:
        self.net(torch.ones(1, 2)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self) -> None:
        self.update()
        self.guard.step()


def test_a_second_training_beside_the_first_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    first = Part(tmp_path)
    with pytest.raises(FaultrunError) as told:
        Part(tmp_path)
    assert "cannot be protected at once" in told.value.what
    assert "guard.close()" in told.value.hint
    first.step()


def test_the_next_stage_of_a_script_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    first = Part(tmp_path)
    first.step()
    second = Part(tmp_path)
    second.step()
    with pytest.raises(FaultrunError) as told:
        first.step()
    assert "one guard all" in told.value.hint


def test_a_stage_that_was_done_before_a_restart_makes_no_step_and_gives_way_all_the_same(
    tmp_path: Path,
) -> None:
    first = Part(tmp_path)
    first.step()
    saved = first.guard.save(tmp_path / "saved.pt")
    first.guard.close()
    again = Part(tmp_path)
    again.guard.load(torch.load(saved.path, weights_only=True))
    Part(tmp_path).step()


def test_a_step_of_the_points_number_that_was_made_here_is_saved_and_not_taken_for_the_point(
    tmp_path: Path,
) -> None:
    first = Part(tmp_path / "a")
    first.step()
    point = first.guard.save(tmp_path / "point.pt")
    told = ResumePoint(path=point.path, step=1, epoch=None, reason="fault", incarnation=1)
    second = Part(tmp_path / "b")
    this = second.guard.training.worker
    assert this is not None and this.provider is not None
    this.session.point = told
    second.step()
    assert this.provider.save(SaveOrder(until_s=time.monotonic() + 30)).path != point.path


def test_a_training_that_never_begins_can_be_closed(tmp_path: Path) -> None:
    Part(tmp_path).guard.close()
    Part(tmp_path).step()


@pytest.mark.parametrize("ends", [("step", "step"), ("update", "step", "step")], ids=" ".join)
def test_a_step_without_an_update_is_no_place_to_go_on_from_and_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ends: tuple[str, ...]
) -> None:
    part = Part(tmp_path)
    part.step()
    for what in ends * 3:
        part.update() if what == "update" else part.guard.step()
    updates = 1 + 3 * ends.count("update")
    assert part.guard.global_step == 1 + 3 * ends.count("step")
    assert part.guard.training.history[-1].updates == (updates,), "what is saved is as of the last update"
    assert part.guard.training.history[-1].position.step == part.guard.global_step - (1 if updates > 1 else 6)
    assert capsys.readouterr().err.count("ends without an update") == 1


def test_updates_without_a_step_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = Part(tmp_path)
    part.step()
    for _ in range(300):
        part.update()
    assert capsys.readouterr().err.count("is guard.step() missing?") == 1


def test_a_scaler_may_skip_an_update(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net: Any = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    guard = protect(net, optimizer, directory=tmp_path, objects={"scaler": scaler})
    for factor in (1.0, float("inf"), 1.0):
        scaler.scale(net(torch.full((1, 2), factor)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        guard.step()
    assert "faultrun:" not in capsys.readouterr().err


@pytest.mark.parametrize("late", [True, False], ids=["late", "early"])
def test_random_numbers_behind_the_forward_pass_are_told_once_and_noted_at_the_update(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    this = Worker(Session(world_size=2))
    monkeypatch.setattr("faultrun.sdk.torch.worker", lambda: this)
    part = Part(tmp_path)
    for _ in range(3):
        if not late:
            torch.rand(3)
        loss = part.net(torch.ones(1, 2)).sum()
        if late:
            torch.rand(3)
        loss.backward()
        part.optimizer.step()
        part.optimizer.zero_grad()
        noted = part.guard.training.recorder.at_step(Position(step=part.guard.global_step + 1))
        there = torch.get_rng_state()
        part.guard.step()
    assert capsys.readouterr().err.count("step 1 draws random numbers behind") == (1 if late else 0)
    assert noted is not None
    assert torch.equal(noted.cpu, there)


@pytest.mark.parametrize("counted", [0, 1])
def test_batches_that_a_script_skips_at_an_epochs_end_are_no_place_to_go_on_from(
    tmp_path: Path, counted: int
) -> None:
    """Their error may have been that of a lost peer."""
    part, data = Part(tmp_path), TensorDataset(torch.ones(4, 2))
    for batch, _ in enumerate(part.guard.batches(DataLoader(data), epoch=0)):
        if batch < 2:
            part.step()
        elif batch < 2 + counted:
            part.guard.step()
    for _ in part.guard.batches(DataLoader(data), epoch=1):
        break
    assert part.guard.training.history[-1].position == Position(2, 0, 2)
