# ruff: noqa: T201 - what a worker prints goes to its log
"""Data-parallel MindSpore training on the CPU, protected by the SDK and checked bit for bit.

Every rank appends "step <n> <crc>" to ``sums_<rank>`` in $OUT after each step, over parameters and optimizer
state. The arguments are the steps of an epoch, the mode (0 graph, 1 PyNative), the pace, and words.
"""

import os
import signal
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init

from faultrun import sdk

STEPS_PER_EPOCH = int(sys.argv[1])
MODE, PACE_S, *WORDS = sys.argv[2:]
OUT = Path(os.environ["OUT"])
CKPT = Path(os.environ["CKPT"])
EPOCHS, BATCH = 3, 8


class Rows:
    """The same data every time; numpy 2 wants 0-d arrays where MindSpore expects scalars."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        count = STEPS_PER_EPOCH * BATCH * get_group_size()
        self.inputs = rng.standard_normal((count, 64)).astype(np.float32)
        self.labels = rng.integers(0, 10, count).astype(np.int32)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.inputs[index], np.array(self.labels[index])


class Note(ms.train.Callback):  # type: ignore[misc]
    """Writes the sums, and misbehaves."""

    def __init__(self, offset: int) -> None:
        super().__init__()
        self.offset = offset

    def on_train_begin(self, run_context: Any) -> None:
        if self.offset:
            self.write("resumed", self.offset, run_context.original_args())

    def on_train_step_begin(self, run_context: Any) -> None:
        step = self.offset + run_context.original_args().cur_step_num
        if f"kill-{get_rank()}-{step}" in WORDS:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_step_end(self, run_context: Any) -> None:
        params = run_context.original_args()
        self.write("step", self.offset + params.cur_step_num, params)
        threading.Event().wait(float(PACE_S))

    def write(self, word: str, step: int, params: Any) -> None:
        crc = 0
        for _, one in sorted(params.train_network.parameters_and_names()):
            if one.name != "tft_updates_begun":
                crc = zlib.crc32(one.asnumpy().tobytes(), crc)
        with (OUT / f"sums_{get_rank()}").open("a") as file:
            file.write(f"{word} {step} {crc:08x}\n")


def main() -> None:
    ms.set_context(mode=int(MODE))
    ms.set_device("CPU")
    init()
    rank, size = get_rank(), get_group_size()
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=size, global_rank=rank
    )
    ms.set_seed(1)
    net = nn.SequentialCell(nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 10))
    # a schedule: the optimizer then counts its steps, before any gradient has arrived
    optimizer = nn.Momentum(net.trainable_params(), nn.ExponentialDecayLR(0.01, 0.9, STEPS_PER_EPOCH), 0.9)
    if "marked" in WORDS:
        optimizer = sdk.mindspore.OptTFTWrapper(optimizer)
    model = ms.Model(net, nn.CrossEntropyLoss(), optimizer)
    data = ds.GeneratorDataset(Rows(), ["x", "y"], shuffle=False, num_shards=size, shard_id=rank)
    data = data.batch(BATCH, drop_remainder=True)
    done = resume(net, optimizer)
    if done:
        data.set_init_step(done)
    note = Note(done)
    callbacks = [callback(rank), note]
    if "periodic" in WORDS:
        config = ms.train.CheckpointConfig(save_checkpoint_steps=7, keep_checkpoint_max=3)
        callbacks.append(ms.train.ModelCheckpoint("net", str(CKPT / f"rank_{rank}"), config))
    model.train(
        EPOCHS, data, callbacks=callbacks, dataset_sink_mode=False, initial_epoch=done // STEPS_PER_EPOCH
    )
    print("done", flush=True)
    leave_together(rank, size)
    os._exit(0)  # MindSpore's own shutdown takes seconds


def leave_together(rank: int, size: int) -> None:
    """Wait for the peers: one that leaves first takes the last acknowledgement of a collective with it."""
    (OUT / f"done_{rank}").touch()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not all((OUT / f"done_{peer}").exists() for peer in range(size)):
        time.sleep(0.01)


def callback(rank: int) -> Any:
    directory = str(CKPT / f"rank_{rank}")
    if "exception" in WORDS:
        config = ms.train.CheckpointConfig(append_info=[{"epoch_num": 0, "step_num": 0}])
        return sdk.mindspore.ExceptionCheckpoint(prefix="net", directory=directory, config=config)
    if "tft" in WORDS:
        return sdk.mindspore.TFTRegister(0, "127.0.0.1", 30051, str(CKPT))
    return sdk.mindspore.DyingGasp("net", directory, every=1 if "every-step" in WORDS else None)


def resume(net: Any, optimizer: Any) -> int:
    point = sdk.resume()
    if point is None:
        return 0
    saved = ms.load_checkpoint(point.path)
    ms.load_param_into_net(net, saved)
    ms.load_param_into_net(optimizer, saved)
    return point.step or 0


if __name__ == "__main__":
    main()
