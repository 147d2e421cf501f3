# ruff: noqa: T201 - what a worker prints goes to its log
"""Data-parallel MindSpore training over several hosts that prints each step's loss, to the last bit.

``nodes_mindspore.py CHECKPOINTS STEP STEP ...``: each rank saves every five steps, and can in a dying gasp.
In its first life the last rank stops before the collective of the first STEP, in the next before that
of the second; the others wait in it until somebody ends them.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

os.environ["MS_CPU_COMM_OP_TIMEOUT"] = (
    "300"  # a collective waits for a busy machine, and for the lease of a host
)

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init

from faultrun import sdk

CHECKPOINTS, STOPS = Path(sys.argv[1]), [int(step) for step in sys.argv[2:]]
LIFE = int(os.environ["FAULTRUN_INCARNATION"])
EPOCHS, STEPS_AN_EPOCH, BATCH = 2, 15, 8  # with 4 MindSpore itself resumes with other last bits
PATIENCE_S = 30.0


class Rows:
    """The same data every time; numpy 2 wants 0-d arrays where MindSpore expects scalars."""

    def __init__(self, size: int) -> None:
        rng = np.random.default_rng(0)
        count = STEPS_AN_EPOCH * BATCH * size
        self.inputs = rng.standard_normal((count, 64)).astype(np.float32)
        self.labels = rng.integers(0, 10, count).astype(np.int32)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.inputs[index], np.array(self.labels[index])


class Losses(ms.train.Callback):  # type: ignore[misc]  # MindSpore has no types
    """Tells the loss of every step, and stops where it is told to."""

    def __init__(self, done: int) -> None:
        super().__init__()
        self.done = done

    def on_train_step_begin(self, run_context: Any) -> None:
        """The collective of this step comes soon."""
        if self.done + run_context.original_args().cur_step_num == dict(enumerate(STOPS)).get(LIFE):
            say("ready")
            while get_rank() == get_group_size() - 1:
                signal.pause()  # somebody who asks where it stands interrupts it

    def on_train_step_end(self, run_context: Any) -> None:
        """The step is complete."""
        told = run_context.original_args()
        say("step", self.done + told.cur_step_num, "loss", float(told.net_outputs.asnumpy()).hex())


def main() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    init()
    rank, size = get_rank(), get_group_size()
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=size, global_rank=rank
    )
    ms.set_seed(1)
    net = nn.SequentialCell(nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 10))
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    model = ms.Model(net, nn.CrossEntropyLoss(), optimizer)
    data = ds.GeneratorDataset(Rows(size), ["x", "y"], shuffle=False, num_shards=size, shard_id=rank)
    data = data.batch(BATCH, drop_remainder=True)
    done = resume(net, optimizer)
    data.set_init_step(done)
    folder = str(CHECKPOINTS / f"rank_{rank}")
    saves = ms.train.CheckpointConfig(save_checkpoint_steps=5, keep_checkpoint_max=3)
    callbacks = [
        sdk.mindspore.DyingGasp("net", folder),
        Losses(done),
        ms.train.ModelCheckpoint("net", folder, saves),
    ]
    first = done // STEPS_AN_EPOCH
    model.train(EPOCHS, data, callbacks=callbacks, dataset_sink_mode=False, initial_epoch=first)
    leave_together(rank, size)
    os._exit(0)  # MindSpore's own shutdown takes seconds


def resume(net: nn.Cell, optimizer: nn.Cell) -> int:
    point = sdk.resume()
    say("resumed", point and point.path)
    if point is None:
        return 0
    saved = ms.load_checkpoint(str(point.path))
    ms.load_param_into_net(net, saved)
    ms.load_param_into_net(optimizer, saved)
    return point.step or 0


def leave_together(rank: int, size: int) -> None:
    """One that leaves first takes the last acknowledgement of a collective with it."""
    (CHECKPOINTS / f"done_{rank}").touch()
    until_s = time.monotonic() + PATIENCE_S
    others = [CHECKPOINTS / f"done_{other}" for other in range(size)]
    while not all(other.exists() for other in others) and time.monotonic() < until_s:
        threading.Event().wait(0.02)


def say(*words: object) -> None:
    print(*words, flush=True)


if __name__ == "__main__":
    main()
