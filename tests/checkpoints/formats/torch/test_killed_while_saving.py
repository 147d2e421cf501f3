"""torch processes killed while they save: what we call whole loads, and is of one step."""

import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faultrun.checkpoints.format import Format, Look, Unreadable
from faultrun.checkpoints.formats.torch.dcp import TORCH_DCP
from faultrun.checkpoints.formats.torch.saved_file import TORCH_FILE
from support.checkpoints.entries import entry_of
from support.places import TESTS

SAVER = TESTS / "support" / "checkpoints" / "torch_saver.py"
KILLS = 40


def is_whole(how: Format, path: Path) -> bool:
    try:
        return how.verify(entry_of(path), Look()).whole
    except (Unreadable, FileNotFoundError):
        return False


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_no_torn_file_of_a_killed_process_passes_for_whole(tmp_path: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    chance = random.Random(23)
    found = {"whole": 0, "torn": 0}
    with subprocess.Popen(
        [sys.executable, str(SAVER), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for round_number in range(KILLS):
            server.stdin.write(f"{1 + 1000 * round_number}\n")
            child = int(server.stdout.readline())
            select.select([server.stdout], [], [], chance.uniform(0.0, 0.1))
            os.kill(child, signal.SIGKILL)
            assert server.stdout.readline() == "dead\n"
            for how, name in ((TORCH_FILE, "zip.pt"), (TORCH_FILE, "legacy.pt"), (TORCH_DCP, "dcp")):
                path = tmp_path / name
                if not is_whole(how, path):
                    found["torn"] += 1
                    continue
                found["whole"] += 1
                state = {"global_step": 0, "w": torch.zeros(100_000, dtype=torch.int64)}
                state |= {"v": torch.zeros(30_000, dtype=torch.int64)}
                if name == "dcp":
                    dcp.load(state, checkpoint_id=str(path), no_dist=True)
                else:
                    state = torch.load(path, weights_only=True)
                step = how.read(entry_of(path)).global_step
                assert step == state["global_step"]
                assert bool((state["w"] == step).all())
                assert bool((state["v"] == step).all())
        server.stdin.close()
    assert min(found.values()) > 0, found
