"""As ``hang_torch``, with MindSpore on CPU: ``Model.train``, ``DyingGasp``, a rank that stands still."""

import argparse
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.jobs import options as jobs_options
from benchmarks.jobs.pause_deed import Deed, add_options
from benchmarks.jobs.tell import BORN_S, Teller

tell = Teller()
tell("running", at_s=BORN_S)

import mindspore as ms  # noqa: E402  the note above must not wait for it
import mindspore.dataset as ds  # noqa: E402
from mindspore import nn  # noqa: E402

from benchmarks.jobs.mindspore_parts import Rows, in_parallel, load, meet  # noqa: E402
from faultrun import sdk  # noqa: E402

FEATURES, CLASSES, BATCH, STEPS_AN_EPOCH = 64, 10, 8, 1000


class Notes(ms.train.Callback):  # type: ignore[misc]  # MindSpore has no types
    """Stands still where it is told to, and ends the training."""

    def __init__(self, done: int, options: argparse.Namespace) -> None:
        super().__init__()
        self.done, self.options = done, options
        self.deed = Deed(options, tell)

    def on_train_step_begin(self, run_context: Any) -> None:
        """The step takes about ``step_s``."""
        self.deed.before(self.done + int(run_context.original_args().cur_step_num))
        time.sleep(self.options.step_s)

    def on_train_step_end(self, run_context: Any) -> None:
        """Tell it; leave after the last."""
        step = self.done + int(run_context.original_args().cur_step_num)
        tell("step", step)
        if step >= self.options.steps:
            tell("final")
            time.sleep(1.0)  # the peers' last acknowledgements
            os._exit(0)


def main() -> None:
    options = read_options()
    meet()
    rank, size = in_parallel()
    ms.set_seed(1)
    net = nn.SequentialCell(nn.Dense(FEATURES, 128), nn.ReLU(), nn.Dense(128, CLASSES))
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    model = ms.Model(net, nn.CrossEntropyLoss(), optimizer)
    rows = Rows(1, STEPS_AN_EPOCH * BATCH * size, FEATURES)
    data = ds.GeneratorDataset(rows, ["x", "y"], shuffle=False, num_shards=size, shard_id=rank)
    point = sdk.resume()
    done = 0
    if point is not None:
        load(point.path, net, optimizer)
        done = point.step or 0
    gasp = sdk.mindspore.DyingGasp("net", str(options.checkpoint_dir / f"rank_{rank}"))
    model.train(1, data.batch(BATCH), callbacks=[gasp, Notes(done, options)], dataset_sink_mode=False)


def read_options() -> argparse.Namespace:
    parser = jobs_options.options(steps=90, step_s=0.05, checkpoint_dir=Path("checkpoints"))
    add_options(parser)
    parser.add_argument("--collective_timeout", type=float, default=0.0, help="torch's; ignored here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
