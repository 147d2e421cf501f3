"""Files that an earlier version wrote are gone on from, bit for bit (made on 2026-11-22 by rank 1 of 2)."""

import gzip
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from faultrun.checkpoints.catalog import Catalog
from faultrun.sdk.session import Session
from faultrun.sdk.torch import protect
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.worker.worker import Worker
from support.places import TESTS

pytestmark = [pytest.mark.torch, pytest.mark.slow]

KEPT = TESTS / "sdk" / "data" / "kept"


def kept_in(directory: Path) -> Path:
    """A directory of saves as rank 1 left it; its gasp."""
    saved = directory / "rank_1"
    shutil.copytree(KEPT / "saved", saved)
    recorded = saved / "random-state.gz"
    (saved / "random-state").write_bytes(gzip.decompress(recorded.read_bytes()))
    recorded.unlink()
    return saved / "gasp-step_3.pt"


def resumed(directory: Path, state: Any) -> tuple[Guard, dict[str, Any]]:
    """Rank 1 with another start, after it has loaded ``state``, and what it draws then."""
    import numpy as np

    worker = Worker(Session(rank=1, world_size=2, run_id="kept"))
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("faultrun.sdk.torch.worker", lambda: worker)
        guard = protect(net, optimizer, directory=directory, objects={"scheduler": scheduler})
    guard.load(state)
    return guard, {
        "drawn": [torch.rand(2).tolist(), [random.gauss(0, 1), random.random()], np.random.randn(3).tolist()],
        "weight": net[0].weight.tolist(),
        "lr": scheduler.get_last_lr(),
        "mean": net[1].running_mean.tolist(),
    }


@pytest.mark.parametrize("rank", [1, 0])
def test_a_gasp_and_the_recorded_random_numbers_are_read(tmp_path: Path, rank: int) -> None:
    """From rank 0's file the numbers are this rank's own: what it recorded before it was killed."""
    state = torch.load(kept_in(tmp_path), weights_only=True)
    if rank == 0:
        state = {**state, "rank": 0, "rng": {**state["rng"], "cpu": torch.get_rng_state()}}
    guard, found = resumed(tmp_path, state)
    assert found == json.loads((KEPT / "drawn.json").read_text())
    assert (guard.global_step, guard.epoch, guard.step_in_epoch) == (3, 0, 3)


def test_the_catalog_reads_the_manifest(tmp_path: Path) -> None:
    gasp = kept_in(tmp_path)
    (entry,) = [one for one in Catalog((str(tmp_path),)).scan().entries if one.path == str(gasp)]
    assert (entry.global_step, entry.rank, entry.world_size, entry.run_id) == (3, 1, 2, "kept")
