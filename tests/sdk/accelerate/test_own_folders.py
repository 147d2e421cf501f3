"""Folders of ``accelerator.save_state``: what accelerate itself knows nothing of lies beside the place."""

from pathlib import Path
from typing import Any

import pytest

from support.machine.installed import need

need("accelerate")

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from torch import nn  # noqa: E402

from faultrun.sdk.accelerate import protect  # noqa: E402

pytestmark = pytest.mark.torch


class Counts(torch.optim.SGD):  # type: ignore[misc]
    """Has its step count as an attribute."""

    count = 0

    def step(self, closure: Any = None) -> Any:
        self.count += 1
        return super().step(closure)


def test_what_only_the_optimizer_has_comes_back_from_a_folder_of_accelerate(tmp_path: Path) -> None:
    def job() -> tuple[Accelerator, Any, Any, Any, nn.Module]:
        accelerator, outside = Accelerator(cpu=True), nn.Linear(2, 2)
        net = nn.Linear(2, 2)
        optimizer = Counts([*net.parameters(), *outside.parameters()], lr=0.1)
        net, prepared = accelerator.prepare(net, optimizer)
        return accelerator, protect(accelerator, directory=tmp_path), net, prepared, outside

    accelerator, guard, net, optimizer, outside = job()
    for _ in range(3):
        accelerator.backward(outside(net(torch.ones(1, 2))).square().sum())
        optimizer.step()
        optimizer.zero_grad()
        guard.step()
    accelerator.save_state(str(tmp_path / "saved"))
    again, place, _, resumed, other = job()
    again.load_state(str(tmp_path / "saved"))
    assert place.global_step == 3
    assert resumed.optimizer.count == optimizer.optimizer.count == 3
    assert torch.equal(other.weight, outside.weight)
