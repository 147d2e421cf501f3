"""One of two real MindSpore workers, with ``exception_save``; rank 1 kills itself after step 25.

``sys.argv[1]`` is where checkpoints go. Without MS_ROLE=MS_WORKER it is the scheduler.
"""

import os
import signal
import sys
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.communication import get_rank, init
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint

DEATH_STEP = 25
SAVE_STEPS = 20


class DieAt(Callback):  # type: ignore[misc,unused-ignore]
    def on_train_step_end(self, run_context: Any) -> None:
        if run_context.original_args().cur_step_num == DEATH_STEP and get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    ms.set_device("CPU")
    init()
    rank = get_rank()
    ms.set_auto_parallel_context(
        parallel_mode="data_parallel", gradients_mean=True, device_num=2, global_rank=rank
    )
    ms.set_seed(1)
    net = nn.SequentialCell(nn.Dense(16, 8), nn.ReLU(), nn.Dense(8, 4))
    optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
    rng = np.random.default_rng(rank)
    rows = [(rng.random(16, dtype=np.float32), rng.random(4, dtype=np.float32)) for _ in range(320)]
    dataset = ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(8)
    config = CheckpointConfig(
        save_checkpoint_steps=SAVE_STEPS, append_info=["epoch_num", "step_num"], exception_save=True
    )
    saver = ModelCheckpoint("net", f"{sys.argv[1]}/rank_{rank}", config)
    model = Model(net, nn.MSELoss(), optimizer)
    try:
        model.train(3, dataset, callbacks=[saver, DieAt()], dataset_sink_mode=False)
    finally:
        os._exit(1)  # the save is made; MindSpore itself would wait for the dead peer as it shuts down


if __name__ == "__main__":
    main()
