"""What trainings of MindSpore on the CPU have in common: how they begin, rows, loading, and the end."""

import sys
import time
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init

_PATIENCE_S, _LOOK_S = 30.0, 0.02


class Rows:
    """The same images and labels every time; numpy 2 wants 0-d arrays where MindSpore expects scalars."""

    def __init__(self, seed: int, count: int, features: int, classes: int = 10) -> None:
        rng = np.random.default_rng(seed)
        self.images = rng.standard_normal((count, features)).astype(np.float32)
        self.labels = rng.integers(0, classes, count).astype(np.int32)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.images[index], np.array(self.labels[index])


class Sum(nn.Cell):  # type: ignore[misc]  # MindSpore has no types
    """The loss itself: what a row adds to every weight is known."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.zeros(features, np.float32)), name="weight")

    def construct(self, rows: Any) -> Any:
        """Rows to loss."""
        return (self.weight * rows).sum() / rows.shape[0]


def meet() -> None:
    """Meet the others."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    init()


def in_parallel() -> tuple[int, int]:
    """Train in data parallel, once all have met: rank and how many."""
    rank, size = get_rank(), get_group_size()
    mode = ms.ParallelMode.DATA_PARALLEL
    ms.set_auto_parallel_context(parallel_mode=mode, gradients_mean=True, device_num=size, global_rank=rank)
    return rank, size


def load(path: str, *cells: nn.Cell) -> Any:
    """Put back what was saved; all of it."""
    saved = ms.load_checkpoint(path)
    for cell in cells:
        ms.load_param_into_net(cell, saved)
    return saved


def leave_together(folder: Path, life: int, rank: int, size: int) -> None:
    """Wait for the others: MindSpore ends a rank whose peer is gone, be it after the last step."""
    (folder / f"done_{life}_{rank}").touch()
    until_s = time.monotonic() + _PATIENCE_S
    while not all((folder / f"done_{life}_{other}").exists() for other in range(size)):
        if time.monotonic() > until_s:
            sys.exit("the others did not come to the end")
        time.sleep(_LOOK_S)
