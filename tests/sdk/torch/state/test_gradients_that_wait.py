"""Gradients that wait for an update are in no save: what is resumed adds them up anew, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from faultrun.sdk.torch.state.trees import copied
from sdk.support.protected import protected

pytestmark = [pytest.mark.torch, pytest.mark.slow]


class AddsUp:
    """A script with an update for every two of an epoch's five batches: some wait for the next epoch."""

    def __init__(self, directory: Path) -> None:
        torch.manual_seed(1)
        self.net = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.guard = protected(directory, self.optimizer, net=self.net)
        self.loader = DataLoader(TensorDataset(torch.arange(15.0).view(5, 3) / 15), shuffle=True)

    def trains(self, *, told_at: int = 0, saves_behind: int = 0) -> Any:
        """The weights behind twenty batches; or the state, with one in its hands or behind one."""
        for epoch in range(self.guard.epoch, 4):
            for (batch,) in self.guard.batches(self.loader, epoch):
                done = 5 * epoch + (self.guard.step_in_epoch or 0)
                if done == told_at:
                    return copied(self.guard.training.state_at(self.guard.training.history[-1]))
                self.net(batch).square().sum().backward()
                if done % 2 == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    self.guard.step()
                if done == saves_behind:
                    return torch.load(self.guard.save("saved.pt").path, weights_only=True)
        return list(self.net.weight.flatten().tolist())


@pytest.mark.parametrize("batch", range(2, 20))
@pytest.mark.parametrize("how", ["told_at", "saves_behind"])
def test_gradients_that_wait_are_added_up_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, batch: int
) -> None:
    monkeypatch.chdir(tmp_path)
    goes_on = AddsUp(tmp_path / "goes_on")
    goes_on.guard.load(AddsUp(tmp_path / "stopped").trains(**{how: batch}))
    assert goes_on.trains() == AddsUp(tmp_path / "whole").trains()
