"""As ``chaos``, with MindSpore on CPU: ``Model.train``, ``DyingGasp``, a ``ModelCheckpoint`` on every rank.

Every step takes the same power of two from every weight, so a weight tells
exactly how many updates it has had. Prints ``WRONG`` and leaves with 9 when a
resumed or a final weight is not the truth.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.jobs import options as jobs_options
from faultrun import sdk, testing

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
_WRONG = 9
_FEATURES, _STEPS_AN_EPOCH = 64, 4
_RATE = 2.0**-10

chaos = testing.from_environment()
point = sdk.resume()
chaos.at("startup")

import mindspore as ms  # noqa: E402  a fault at start-up comes before the ranks meet
import mindspore.dataset as ds  # noqa: E402
import numpy as np  # noqa: E402
from mindspore import nn  # noqa: E402

from benchmarks.jobs.mindspore_parts import Sum, in_parallel, leave_together, load, meet  # noqa: E402


class Rows:
    """Ones: the gradient of every weight is one, on every rank."""

    def __init__(self, rows: int) -> None:
        self.row = np.ones(_FEATURES, np.float32)
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> tuple[Any]:
        return (self.row,)


class Moments(ms.train.Callback):  # type: ignore[misc]
    """Announces where the training is; comes behind ``DyingGasp`` and before ``ModelCheckpoint``."""

    def __init__(self, done: int, options: argparse.Namespace, own: Path) -> None:
        super().__init__()
        self.done, self.options, self.own = done, options, own

    def on_train_begin(self, _run_context: Any) -> None:
        """The first step compiles."""
        chaos.at("compile")

    def on_train_step_begin(self, _run_context: Any) -> None:
        """A step takes a while."""
        time.sleep(self.options.step_s)

    def on_train_step_end(self, run_context: Any) -> None:
        """Steps are counted over all lives."""
        step = self.done + int(run_context.original_args().cur_step_num)
        print(f"step {step}", flush=True)
        chaos.at("step", step)
        if step % self.options.save_every == 0:
            chaos.at("save", step, path=str(self.own / "x"))


def main() -> None:
    options = jobs_options.options(steps=12, save_every=4, step_s=0.02, ckpt="ckpt").parse_args()
    own = Path(options.ckpt).absolute() / f"rank_{RANK}"
    meet()
    in_parallel()
    net = Sum(_FEATURES)
    optimizer = nn.SGD(net.trainable_params(), learning_rate=_RATE)
    done = resume(net, optimizer)
    rows = ds.GeneratorDataset(Rows(_STEPS_AN_EPOCH * WORLD), ["row"], num_shards=WORLD, shard_id=RANK)
    config = ms.train.CheckpointConfig(save_checkpoint_steps=options.save_every, keep_checkpoint_max=3)
    saves = ms.train.ModelCheckpoint("net", str(own), config)
    callbacks = [sdk.mindspore.DyingGasp("net", str(own)), Moments(done, options, own), saves]
    data = rows.batch(1)
    if done:
        data.set_init_step(done)
    model = ms.Model(net, optimizer=optimizer)
    epochs = options.steps // _STEPS_AN_EPOCH
    model.train(epochs, data, callbacks, dataset_sink_mode=False, initial_epoch=done // _STEPS_AN_EPOCH)
    check(net, options.steps)
    print(f"final step {options.steps}", flush=True)
    leave_together(Path(), int(os.environ.get("FAULTRUN_INCARNATION", "0")), RANK, WORLD)
    os._exit(0)  # MindSpore's own shutdown takes seconds


def resume(net: nn.Cell, optimizer: nn.Cell) -> int:
    """Put back what was saved; the steps that are in it."""
    if point is None:
        return 0
    load(point.path, net, optimizer)
    done = point.step or 0
    check(net, done)
    print(f"resumed at step {done}", flush=True)
    return done


def check(net: nn.Cell, steps: int) -> None:
    """Leave with 9 unless the weights have had ``steps`` updates."""
    weights = net.weight.asnumpy()
    if not (weights == np.float32(-steps * _RATE)).all():
        print(f"WRONG step {steps}: {weights[0]} is {-weights[0] / _RATE:g} updates", flush=True)
        os._exit(_WRONG)


if __name__ == "__main__":
    main()
