"""A small data-parallel MindSpore training on CPU that tells what it does, and dies where it is told to.

Started by msrun it is its own scheduler too: that process never leaves ``init``.
"""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from benchmarks.jobs import options as jobs_options
from benchmarks.jobs.tell import BORN_S, Teller, forked_s, hear_sigterm, life

tell = Teller()
tell("forked", at_s=forked_s())
tell("running", at_s=BORN_S)
hear_sigterm(tell)

import mindspore as ms  # noqa: E402  the signal must be heard while this takes its seconds
import numpy as np  # noqa: E402
from mindspore import nn  # noqa: E402

from benchmarks.jobs.mindspore_parts import in_parallel, load, meet  # noqa: E402

tell("imported")

FEATURES, CLASSES, BATCH, STEPS_PER_EPOCH = 64, 10, 32, 20


def main() -> None:
    options = read_options()
    meet()
    tell("met")
    rank, _ = in_parallel()
    ms.set_seed(options.seed)
    net = nn.SequentialCell(nn.Dense(FEATURES, 128), nn.ReLU(), nn.Dense(128, CLASSES))
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    with_loss = nn.WithLossCell(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    train = nn.TrainOneStepCell(with_loss, optimizer)
    train.set_train()
    tell("ready")
    done = resume(train, find_checkpoint(options))
    fit(train, options, rank, done)
    tell("final")


def read_options() -> argparse.Namespace:
    """``step_s`` is how long a step takes, about, ``pre_trained`` the checkpoint to go on from."""
    usual = {"steps": 30, "save_every": 10, "step_s": 0.05, "seed": 1, "pre_trained": ""}
    parser = jobs_options.options(**usual, checkpoint_dir=Path("checkpoints"))
    parser.add_argument("--find_newest", action="store_true", help="look for it in checkpoint_dir")
    parser.add_argument("--kill", default="-1:0", help="RANK:STEP, before it or later, in the first life")
    parser.add_argument("--kill_once", type=Path, help="nobody dies before this file is there")
    parser.add_argument("--steps_after", type=int, help="train until killed; in later lives, so many steps")
    return parser.parse_args()


def find_checkpoint(options: argparse.Namespace) -> str:
    """The file named by argument; or, where the launcher knows nothing of it, the newest."""
    if options.find_newest:
        files = sorted(options.checkpoint_dir.glob("net-*.ckpt"), key=lambda file: file.stat().st_mtime_ns)
        return str(files[-1]) if files else ""
    return str(options.pre_trained)


def resume(train: nn.TrainOneStepCell, path: str) -> int:
    """The global step at which training goes on."""
    done = 0
    if path:
        saved = load(path, train)
        done = int(saved["global_step"].asnumpy().item())
    tell("resumed", done)
    return done


def fit(train: nn.TrainOneStepCell, options: argparse.Namespace, rank: int, done: int) -> None:
    victim, at_step = map(int, options.kill.split(":"))
    last = options.steps
    if options.steps_after is not None:
        last = done + options.steps_after if life() > 0 else sys.maxsize
    pause = threading.Event()
    for step in range(done + 1, last + 1):
        its_turn = options.kill_once is None and step == at_step
        told_to = options.kill_once is not None and step >= at_step and options.kill_once.exists()
        if life() == 0 and rank == victim and (its_turn or told_to):
            tell("dying", step)
            os.kill(os.getpid(), signal.SIGKILL)
        loss = float(train(*batch(options.seed, step, rank)).asnumpy())
        tell("step", step)
        print(f"step {step} loss {loss:.6f}", flush=True)
        if rank == 0 and step % options.save_every == 0:
            save(train, options.checkpoint_dir, step)
        pause.wait(options.step_s)


def batch(seed: int, step: int, rank: int) -> tuple[ms.Tensor, ms.Tensor]:
    rng = np.random.default_rng((seed, step, rank))
    images = rng.standard_normal((BATCH, FEATURES), dtype=np.float32)
    return ms.Tensor(images), ms.Tensor(rng.integers(0, CLASSES, BATCH).astype(np.int32))


def save(train: nn.TrainOneStepCell, folder: Path, step: int) -> None:
    """MindSpore writes beside and renames; the numbers that say where training stands come last."""
    folder.mkdir(parents=True, exist_ok=True)
    epoch, in_epoch = (step - 1) // STEPS_PER_EPOCH + 1, (step - 1) % STEPS_PER_EPOCH + 1
    where = {"epoch_num": epoch, "step_num": step}
    ms.save_checkpoint(train, str(folder / f"net-{epoch}_{in_epoch}.ckpt"), append_dict=where)
    tell("saved", step)


if __name__ == "__main__":
    main()
