"""A MindSpore training that loses a device, goes on with fewer ranks, and takes the device back.

``shrinks_mindspore.py [FOLDER]``: with a folder that all nodes share it is rank 0, which says there that its
host can be killed: MindSpore's scheduler is on that one.
Each step of each rank is a line in ``seen_<incarnation>_<rank>.jsonl``. At the end rank 0 does the same steps
once more, undisturbed and in one process: ``alone.jsonl``.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

os.environ["MS_CPU_COMM_OP_TIMEOUT"] = "300"  # a collective waits for a busy machine

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init

from faultrun import sdk

WORLD, BATCH, EPOCHS, SAMPLES, SEED = 3, 4, 3, 50, 3
STEPS = SAMPLES // (WORLD * BATCH)  # two samples of an epoch are left out
BROKEN, WELL = 3, 7
BAD_RANK = 0 if sys.argv[1:] else 1
LIFE = int(os.environ["FAULTRUN_INCARNATION"])


class Rows:
    """The first number of a row says which it is."""

    def __init__(self) -> None:
        self.inputs = np.random.default_rng(0).standard_normal((SAMPLES, 6)).astype(np.float32)
        self.inputs[:, 0] = np.arange(SAMPLES) / 100
        self.targets = np.sin(self.inputs[:, 1:].sum(1, keepdims=True))

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.inputs[index], self.targets[index]


class Watched(ms.train.Callback):  # type: ignore[misc]  # MindSpore has no types
    """Tells of each step, fails where it is told to, and waits in the smaller world for the larger one."""

    def __init__(self, done: int, network: nn.Cell) -> None:
        super().__init__()
        self.done, self.network = done, network
        self.seen = Path(f"seen_{LIFE}_{get_rank()}.jsonl").open("a", buffering=1)  # noqa: SIM115

    def on_train_step_begin(self, run_context: Any) -> None:
        step = self.done + run_context.original_args().cur_step_num
        if (get_rank(), LIFE, step) != (BAD_RANK, 0, BROKEN):
            return
        if sys.argv[1:]:
            Path("can_be_killed").touch()
            while True:
                signal.pause()  # somebody who asks where it stands interrupts it
        sys.stderr.write("HBM MULTI BIT ECC error\n")
        sys.stderr.flush()
        os._exit(1)  # MindSpore's own shutdown takes half a minute then

    def on_train_step_end(self, run_context: Any) -> None:
        told = run_context.original_args()
        step = self.done + told.cur_step_num
        numbers = (told.train_dataset_element[0].asnumpy()[:, 0] * 100).round().astype(int).tolist()
        line = {"step": step, "loss": float(told.net_outputs.asnumpy()), "samples": numbers}
        self.seen.write(f"{json.dumps(line)}\n")
        if get_group_size() < WORLD and step == WELL:
            self.saves_until_all_leave(step)

    def saves_until_all_leave(self, step: int) -> None:
        epoch, place = divmod(step - 1, STEPS)
        for number in range(100_000):
            time.sleep(0.05)
            if get_rank() == 0 and number % 20 == 0:
                name = f"ck/rank_0/net_{number}-{epoch + 1}_{place + 1}.ckpt"
                ms.save_checkpoint(self.network, name, append_dict={"epoch_num": epoch + 1, "step_num": step})


def network() -> tuple[nn.Cell, nn.Cell]:
    ms.set_seed(1)
    net = nn.SequentialCell(nn.Dense(6, 16), nn.Tanh(), nn.Dense(16, 1))
    return nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.05, 0.9)


def alone() -> None:
    """All batches of a step at once."""
    ms.reset_auto_parallel_context()
    cell = nn.TrainOneStepCell(*network())
    rows, step = Rows(), 0
    with Path("alone.jsonl").open("w") as said:
        for epoch in range(EPOCHS):
            order = np.random.default_rng((SEED, epoch)).permutation(SAMPLES)
            for place in range(STEPS):
                numbers = order[place * WORLD * BATCH : (place + 1) * WORLD * BATCH]
                loss = cell(ms.Tensor(rows.inputs[numbers]), ms.Tensor(rows.targets[numbers]))
                step += 1
                line = {"step": step, "loss": float(loss.asnumpy()), "samples": numbers.tolist()}
                said.write(f"{json.dumps(line)}\n")


def main() -> None:
    for folder in sys.argv[1:]:
        os.chdir(folder)
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    init()
    rank, size = get_rank(), get_group_size()
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=size, global_rank=rank
    )
    with_loss, optimizer = network()
    point = sdk.resume()
    done = (point.step or 0) if point is not None else 0
    if point is not None:
        saved = ms.load_checkpoint(point.path)
        ms.load_param_into_net(with_loss, saved)
        ms.load_param_into_net(optimizer, saved)
    batches = sdk.mindspore.SharedBatches(SAMPLES, BATCH, seed=SEED)
    data = ds.GeneratorDataset(Rows(), ["x", "y"], batch_sampler=batches)
    data.set_init_step(done)
    cell = batches.train_step(with_loss, optimizer)
    callbacks = [sdk.mindspore.DyingGasp("net", f"ck/rank_{rank}"), Watched(done, cell)]
    ms.Model(cell).train(
        EPOCHS, data, callbacks=callbacks, dataset_sink_mode=False, initial_epoch=done // STEPS
    )
    if rank == 0:
        alone()
    sdk.done()


if __name__ == "__main__":
    main()
