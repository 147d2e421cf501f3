"""What ``guard.state_dict`` puts into a checkpoint of ``torch.distributed.checkpoint`` comes back."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from faultrun.sdk.session import Session
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.loader.script_generators import ScriptGenerators
from faultrun.sdk.torch.state.boundary import Objects, device_of
from faultrun.sdk.torch.state.own_attributes import own_states
from faultrun.sdk.torch.state.state_dict import Parts
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Folder, SaveWriter

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


class Lookahead(torch.optim.SGD):  # type: ignore[misc]
    """Has nothing before its first step."""

    slow: torch.Tensor | None = None

    def step(self, closure: Any = None) -> Any:
        self.slow = torch.full((3,), 7.0)
        return super().step(closure)


class Job:
    def __init__(self, folder: Path, seed: int) -> None:
        self.generator = random.Random(seed)
        net = nn.Linear(2, 2)
        self.optimizer = Lookahead(net.parameters(), lr=0.1)
        parts = Parts(
            model=net,
            optimizers=(self.optimizer,),
            objects=Objects(
                {
                    **own_states([self.optimizer]),
                    "faultrun.generators": ScriptGenerators({"one": self.generator}),
                }
            ),
            device=device_of(net),
        )
        writer = SaveWriter(Folder(directory=folder), Session())
        self.guard = Guard(Training(lambda: parts, None, writer))


def test_generators_and_own_optimizers_come_back_though_they_held_less_as_it_was_loaded(
    tmp_path: Path,
) -> None:
    job, again = Job(tmp_path, 1), Job(tmp_path, 2)
    job.optimizer.step()
    job.generator.gauss(0, 1)  # keeps a second number
    dcp.save({"guard": job.guard.state_dict()}, checkpoint_id=tmp_path / "step-1", no_dist=True)
    loaded = {"guard": again.guard.state_dict()}
    dcp.load(loaded, checkpoint_id=tmp_path / "step-1", no_dist=True)
    again.guard.load_state_dict(loaded["guard"])
    assert torch.equal(again.optimizer.slow, torch.full((3,), 7.0))
    assert again.generator.gauss(0, 1) == job.generator.gauss(0, 1)
