"""``everything_mindspore.py GUARD FOLDER STEP_S [--pre_trained=FILE]``: as ``everything_torch``.

``Model.train`` in data parallel, a ``ModelCheckpoint`` of each rank, and with ``sdk`` a ``DyingGasp``. The
weights are sums of whole numbers, of which each sample adds its own.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["MS_CPU_COMM_OP_TIMEOUT"] = "300"  # for a busy machine, and for the lease of a host

from benchmarks.jobs.everything_notes import Notes, handed

GUARD, FOLDER, STEP_S = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
NOTES = Notes(FOLDER)
NOTES.born()
NOTES.at("startup")

import mindspore as ms  # noqa: E402  who starts is seen before this takes its seconds
import mindspore.dataset as ds  # noqa: E402
from mindspore import nn  # noqa: E402

from benchmarks.jobs import everything_numbers as numbers  # noqa: E402
from benchmarks.jobs.mindspore_parts import Sum, in_parallel, leave_together, load, meet  # noqa: E402
from faultrun import sdk  # noqa: E402

CKPT = FOLDER / "ckpt"
OWN = CKPT / f"rank_{NOTES.rank}"
SAVE_EVERY, KEEP, EPOCHS = 20, 4, 100_000


class Rows:
    """What a sample adds to every weight."""

    def __len__(self) -> int:
        return numbers.STEPS_AN_EPOCH * NOTES.world

    def __getitem__(self, at: int) -> tuple[Any]:
        return (numbers.row(int(at)),)


class Moments(ms.train.Callback):  # type: ignore[misc]
    """Tells where the training is; comes behind ``DyingGasp`` and before ``ModelCheckpoint``."""

    def __init__(self, net: Sum, done: int) -> None:
        super().__init__()
        self.net, self.done = net, done

    def on_train_begin(self, _run_context: Any) -> None:
        """The first step compiles."""
        NOTES.at("compile")

    def on_train_step_begin(self, _run_context: Any) -> None:
        """A step takes a while."""
        time.sleep(STEP_S)

    def on_train_step_end(self, run_context: Any) -> None:
        """Steps are counted over all lives."""
        told = run_context.original_args()
        step = self.done + int(told.cur_step_num)
        weights = self.net.weight.asnumpy()
        loss = float(told.net_outputs.asnumpy())
        NOTES.note("step", step, f"{numbers.digest([weights], [])} {loss!r}")
        print(f"step {step} loss {loss}", flush=True)
        NOTES.at("step")
        if step % SAVE_EVERY == 0:
            NOTES.at("save")
        if NOTES.ends_at(step):
            run_context.request_stop()


class Saved(ms.train.Callback):  # type: ignore[misc]
    """Comes last: what was to be saved has been."""

    def __init__(self, done: int) -> None:
        super().__init__()
        self.done = done

    def on_train_step_end(self, run_context: Any) -> None:
        """The same step."""
        number = int(run_context.original_args().cur_step_num)
        if number % SAVE_EVERY == 0:
            newest = max(OWN.glob("*.ckpt"), key=lambda path: path.stat().st_mtime_ns, default=OWN)
            NOTES.note("saved", self.done + number, str(newest))
            NOTES.at("saved", str(newest))


def main() -> None:
    meet()
    in_parallel()
    net = Sum(numbers.COLUMNS)
    optimizer = nn.SGD(net.trainable_params(), learning_rate=1.0)
    there = newest_true()
    done = resume(net, optimizer)
    NOTES.begins(done, there)
    rows = ds.GeneratorDataset(Rows(), ["row"], shuffle=False, num_shards=NOTES.world, shard_id=NOTES.rank)
    data = rows.batch(1)
    if done:
        data.set_init_step(done)
    config = ms.train.CheckpointConfig(save_checkpoint_steps=SAVE_EVERY, keep_checkpoint_max=KEEP)
    callbacks = [
        *([sdk.mindspore.DyingGasp("net", str(OWN))] if GUARD == "sdk" else []),
        Moments(net, done),
        ms.train.ModelCheckpoint("net", str(OWN), config),
        Saved(done),
    ]
    model = ms.Model(net, optimizer=optimizer)
    first = done // numbers.STEPS_AN_EPOCH
    model.train(EPOCHS, data, callbacks, dataset_sink_mode=False, initial_epoch=first)
    leave_together(FOLDER, NOTES.life, NOTES.rank, NOTES.world)
    if GUARD == "sdk":
        sdk.done()
    os._exit(0)  # MindSpore's own shutdown takes seconds


def newest_true() -> int:
    """The newest step of which any rank's file can be read and holds the right weights; -1: none."""
    truth = numbers.Sums(NOTES.world)
    for path in sorted(CKPT.rglob("*.ckpt"), key=lambda one: one.stat().st_mtime_ns, reverse=True)[:8]:
        try:
            weights = ms.load_checkpoint(str(path))["weight"].asnumpy()
        except (ValueError, KeyError, OSError):
            continue
        step = truth.step_of(weights)
        if step >= 0:
            return step
    return -1


def resume(net: nn.Cell, optimizer: nn.Cell) -> int:
    """Put back what was saved; the steps that are in it. The optimizer counts them in each file."""
    point = sdk.resume() if GUARD == "sdk" else None
    path = handed() if point is None else point.path
    if not path:
        return 0
    saved = load(str(path), net, optimizer)
    said = point.step if point is not None else None
    return int(saved["global_step"].asnumpy()[0]) if said is None else said


if __name__ == "__main__":
    main()
