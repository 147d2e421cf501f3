"""Check mode: whatever differs when a step comes again is named, and what may differ is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from faultrun.errors import FaultrunError
from faultrun.sdk.session import Session
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.worker.worker import Worker
from sdk.support.protected import protected

pytestmark = [pytest.mark.torch, pytest.mark.slow]


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(1, 2), nn.BatchNorm1d(2)
        self.hidden, self.calls = torch.zeros(2), 0

    def forward(self, x: Any) -> Any:
        return self.norm(nn.functional.dropout(self.layer(x), 0.3))


class Loop:
    def __init__(self, directory: Path, *, checks: bool = True) -> None:
        torch.manual_seed(1)
        self.net = Net()
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.loader = DataLoader(torch.arange(24.0)[:, None], batch_size=4, shuffle=True)
        by = Worker(Session(run_id="r", checks=checks))
        self.guard: Guard = protected(directory, self.optimizer, net=self.net, by=by)

    def train(self, last: int, after: Callable[["Loop"], object] = lambda _: None) -> None:
        """To the middle of the step that follows ``last``. ``after`` is done in the middle of each step."""
        for epoch in range(self.guard.epoch, 9):
            for x in self.guard.batches(self.loader, epoch):
                self.optimizer.zero_grad()
                self.net(x).square().sum().backward()
                after(self)
                if self.guard.global_step == last:
                    return
                self.optimizer.step()
                self.guard.step()


def comes_back(first: Loop, directory: Path, changed: Callable[[Loop], object] = lambda _: None) -> Loop:
    """Another process in the place of ``first``, as ``Guard.resume`` makes it."""
    training = first.guard.training
    state = training.state_at(training.history[-1])
    torch.save(state, directory / "gasp.pt")
    again = Loop(directory)
    again.guard.load(torch.load(directory / "gasp.pt", weights_only=True))
    changed(again)
    again.guard.training.resumed()
    return again


def test_a_process_that_goes_on_finds_what_the_one_before_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for last in (2, 6, 7):
        first = Loop(tmp_path / str(last))
        first.train(last)
        comes_back(first, tmp_path / str(last)).train(last + 3)
    told = capsys.readouterr().err
    assert "gradient layer.weight cannot be compared" in told
    assert told.count("cannot be compared") == 3


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("parameter layer.weight", lambda one: one.net.layer.weight.data.add_(1)),
        ("frozen layer.bias", lambda one: one.net.layer.bias.requires_grad_(False)),
        ("buffer norm.running_var", lambda one: one.net.norm.running_var.add_(1)),
        ("tensor .hidden", lambda one: one.net.hidden.add_(1)),
        (
            "optimizer 0.state.0.exp_avg",
            lambda one: one.optimizer.state[one.net.layer.weight]["exp_avg"].add_(1),
        ),
        ("optimizer 0.param_groups.0.lr", lambda one: one.optimizer.param_groups[0].update(lr=7.0)),
        ("random numbers of torch", lambda one: torch.rand(1)),
        ("gradient layer.bias", lambda one: setattr(one.net.layer.bias, "grad", torch.ones(2))),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_whatever_differs_ends_the_run_with_its_name(
    name: str, change: Callable[[Loop], object], tmp_path: Path
) -> None:
    first = Loop(tmp_path)
    first.train(3)
    with pytest.raises(FaultrunError) as told:
        comes_back(first, tmp_path, change).train(3)
    assert told.value.what == "step 4 would come again from another state than at first"
    assert told.value.because == f"{name} differs"


def test_gradients_that_were_emptied_where_they_are_may_differ(tmp_path: Path) -> None:
    first = Loop(tmp_path)
    first.train(3)
    comes_back(first, tmp_path, lambda one: setattr(one.net.layer.bias, "grad", torch.zeros(2))).train(5)


def test_a_batch_that_is_another_is_named(tmp_path: Path) -> None:
    first = Loop(tmp_path)
    first.train(3)
    again = comes_back(first, tmp_path)
    again.loader.dataset.add_(1)
    with pytest.raises(FaultrunError, match="batch 4 of epoch 0 is another"):
        again.train(9)


def test_what_is_not_taken_back_on_a_survivor_is_named(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    training = loop.guard.training
    loop.train(4, lambda one: setattr(one.net, "hidden", one.net.hidden + 1))
    training.parts.forget_gradients()
    training.put_back()
    with pytest.raises(FaultrunError, match=r"tensor \.hidden differs"):
        training.came_back()


def test_a_number_among_attributes_may_differ_and_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Loop(tmp_path)
    first.train(3, lambda one: setattr(one.net, "calls", one.net.calls + 1))
    comes_back(first, tmp_path).train(5)
    assert capsys.readouterr().err.count("number .calls cannot be compared") == 1


def test_without_check_mode_nothing_is_written(tmp_path: Path) -> None:
    Loop(tmp_path, checks=False).train(3)
    assert not [*tmp_path.rglob("state-digests")]
