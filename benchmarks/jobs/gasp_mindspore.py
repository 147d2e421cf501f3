"""As ``gasp_torch``, with MindSpore on CPU: ``Model.train``, ``DyingGasp``, a death somewhere in a step.

``--guard=default`` adds ``DyingGasp()`` and nothing else, ``marked`` wraps the optimizer in
``OptTFTWrapper`` too, ``copies`` copies the state at every step, ``none`` is a training without the SDK.
"""

import argparse
import os
import sys
import threading
from pathlib import Path
from typing import Any

from benchmarks.jobs.gasp_death import STEPS_AN_EPOCH, Death
from benchmarks.jobs.gasp_death import options as common_options
from benchmarks.jobs.tell import Teller, life

tell = Teller()
tell("running")

import mindspore as ms  # noqa: E402  the note above must not wait for it
import mindspore.dataset as ds  # noqa: E402
from mindspore import nn  # noqa: E402

from benchmarks.jobs.gasp_sums import parameter_digests  # noqa: E402
from benchmarks.jobs.mindspore_parts import Rows, in_parallel, leave_together, load, meet  # noqa: E402
from faultrun import sdk  # noqa: E402

FEATURES, BATCH = 64, 8
_MILESTONES = ("imported", "met", "created", "resumed")
_A_STEP_S = 0.02


class Notes(ms.train.Callback):  # type: ignore[misc]  # MindSpore has no types
    """Tells the bits after every step, and dies where it is told to; comes behind ``DyingGasp``."""

    def __init__(self, done: int, death: Death, step_s: float) -> None:
        super().__init__()
        self.done, self.death, self.step_s = done, death, step_s
        self.pause = threading.Event()

    def on_train_begin(self, run_context: Any) -> None:
        """Everything is loaded."""
        tell("resumed", bits(self.done, run_context.original_args().train_network))
        self.death.reached("resumed")

    def on_train_step_begin(self, run_context: Any) -> None:
        """The death may come from now on."""
        step = self.step_of(run_context)
        self.death.later("anytime", step)
        self.death.later("step", step, within_s=_A_STEP_S)
        self.pause.wait(self.step_s)

    def on_train_step_end(self, run_context: Any) -> None:
        """The step is done, but for the training's own checkpoint."""
        step = self.step_of(run_context)
        if self.death.due("step", step):
            self.death.now("step:its end")
        tell("step", bits(step, run_context.original_args().train_network))
        self.death.in_save(step)

    def step_of(self, run_context: Any) -> int:
        """The global step: a resumed training counts its own steps from 1."""
        return self.done + int(run_context.original_args().cur_step_num)


class AfterSave(ms.train.Callback):  # type: ignore[misc]
    """Behind ``ModelCheckpoint``: who was to die while it saved, and did not, dies now."""

    def __init__(self, death: Death) -> None:
        super().__init__()
        self.death = death

    def on_train_step_end(self, run_context: Any) -> None:
        """It has saved, if it was its turn."""
        if self.death.due("save", int(run_context.original_args().cur_step_num)):
            self.death.now("save:done")


def main() -> None:
    parser = common_options()
    parser.add_argument("--guard", choices=("default", "marked", "copies", "none"), default="default")
    options = parser.parse_args()
    death = Death.parse(options.die, tell, *_MILESTONES)
    death.reached("imported")
    meet()
    death.reached("met")
    rank, workers = in_parallel()
    ms.set_seed(options.seed)
    net = nn.SequentialCell(nn.Dense(FEATURES, 64), nn.ReLU(), nn.Dense(64, 10))
    optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
    if options.guard == "marked":
        optimizer = sdk.mindspore.OptTFTWrapper(optimizer)
    model = ms.Model(net, nn.CrossEntropyLoss(), optimizer)
    death.reached("created")
    data = ds.GeneratorDataset(
        Rows(options.seed, STEPS_AN_EPOCH * BATCH * workers, FEATURES),
        ["image", "label"],
        shuffle=False,
        num_shards=workers,
        shard_id=rank,
    ).batch(BATCH, drop_remainder=True)
    done = resume(net, optimizer)
    if done < options.steps:
        data.set_init_step(done)
        model.train(
            options.steps // STEPS_AN_EPOCH,
            data,
            callbacks=callbacks(options, death, done, rank),
            dataset_sink_mode=False,
            initial_epoch=done // STEPS_AN_EPOCH,
        )
    else:  # a rank died after its last step
        tell("resumed", bits(done, model.train_network))
    tell("final", bits(options.steps, model.train_network))
    leave_together(Path(), life(), rank, workers)
    sys.stdout.flush()
    os._exit(0)  # MindSpore's own shutdown takes seconds


def callbacks(options: argparse.Namespace, death: Death, done: int, rank: int) -> list[Any]:
    """The order matters: the SDK's, ours, and the training's own checkpoint between two of ours."""
    folder = str(options.checkpoint_dir / f"rank_{rank}")
    every = 1 if options.guard == "copies" else None
    gasp = [] if options.guard == "none" else [sdk.mindspore.DyingGasp("net", folder, every=every)]
    saves = []
    if options.save_every:
        config = ms.train.CheckpointConfig(save_checkpoint_steps=options.save_every, keep_checkpoint_max=3)
        saves = [ms.train.ModelCheckpoint("net", folder, config)]
    return [*gasp, Notes(done, death, options.step_s), *saves, AfterSave(death)]


def resume(net: nn.Cell, optimizer: nn.Cell) -> int:
    """Put back parameters and optimizer; the global step at which training goes on."""
    point = sdk.resume()
    if point is None:
        return 0
    load(point.path, net, optimizer)
    return point.step or 0


def bits(step: int, train_network: nn.Cell) -> str:
    """The step and the digest, as every note has them."""
    arrays = {one.name: one.asnumpy() for _, one in train_network.parameters_and_names()}
    return " ".join((str(step), *parameter_digests(arrays)))


if __name__ == "__main__":
    main()
