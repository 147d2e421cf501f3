"""Write the small torch checkpoints beside this file anew. Made with torch 2.13.0 (CPU).

python tests/data/torch/make.py
"""

import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import multiprocessing
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

HERE = Path(__file__).parent


def state() -> dict[str, object]:
    """One of each: a shared storage, a view, a half, a bool, nothing at all, and plain values."""
    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    return {
        "epoch": 3,
        "arch": "tiny",
        "state_dict": {
            "w": weight,
            "tied": weight,
            "row": weight[1],
            "half": torch.ones(3, dtype=torch.bfloat16),
        },
        "best_acc1": torch.tensor(71.5),
        "optimizer": {"state": {0: {"step": torch.tensor(9.0), "mask": torch.tensor([True, False])}}},
        "empty": torch.empty(0),
        "global_step": 1215,
    }


def save_sharded(rank: int) -> None:
    """Save one tensor in two halves, and two numbers, from two processes."""
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29713")
    dist.init_process_group("gloo")
    halves = distribute_tensor(torch.arange(4.0), init_device_mesh("cpu", (2,)), [Shard(0)])
    dcp.save({"w": halves, "epoch": 3, "step": 1215}, checkpoint_id="step_1200")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.chdir(HERE)  # .metadata keeps the path that it is given
    torch.save(state(), "zip.pt")
    torch.save(state(), "legacy.pt", _use_new_zipfile_serialization=False)
    torch.serialization.set_crc32_options(False)
    torch.save({"step": 4}, "no_checksums.pt")
    torch.serialization.set_crc32_options(True)
    shutil.rmtree("step_1200", ignore_errors=True)
    multiprocessing.spawn(save_sharded, nprocs=2)
