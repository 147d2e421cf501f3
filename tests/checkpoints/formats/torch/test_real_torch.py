"""What the installed torch writes, and what it loads of what we call whole."""

import os
import random
from pathlib import Path

import pytest

from faultrun.checkpoints.format import Unreadable
from support.checkpoints.torch_files import ZIP, read, refused, verify


@pytest.mark.torch
@pytest.mark.slow
def test_what_the_installed_torch_writes_is_whole_and_every_cut_of_it_is_not(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    state = {
        "epoch": 2,
        "global_step": 77,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "shared": torch.arange(10)[2:5],
        "complex": torch.ones(2, dtype=torch.complex64),
        "eighth": torch.ones(3).to(torch.float8_e4m3fn),
        "sparse": torch.eye(3).to_sparse(),
    }
    for name, is_zip in (("new.pt", True), ("old.pt", False)):
        for protocol in (2, 4):
            path = tmp_path / name
            torch.save(state, path, pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)
            assert verify(path).whole, verify(path).why
            assert (read(path).epoch, read(path).global_step) == (2, 77)
            for length in range(path.stat().st_size - 1, -1, -7):
                os.truncate(path, length)
                assert refused(path)


@pytest.mark.torch
@pytest.mark.slow
def test_a_changed_archive_that_we_still_call_whole_loads_in_torch(tmp_path: Path) -> None:
    """Otherwise the proof is worth less than torch's own. Legacy files have no checksums."""
    import torch

    chance = random.Random(11)
    path = tmp_path / "changed.pt"
    whole = ZIP.read_bytes()
    passed = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ chance.randrange(1, 256)]) + whole[at + 1 :])
        try:
            verify(path)
        except Unreadable:
            continue
        passed += 1
        torch.load(path, weights_only=True)
    assert passed > 0
