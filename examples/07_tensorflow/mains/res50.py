"""A small residual network on handwritten digits, configured and resumed as ResNet-50 for TensorFlow.

As in the ModelZoo, ``--config_file`` names a module of ``../configs``, and ``'restore_path'`` in it what to
start from. The workers are data parallel: each saves the common model under ``<model_dir>/device_<index>``,
and any of these folders brings it back.
"""

import argparse
import importlib
import os
import sys
import time
import zlib
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

from faultrun import sdk

TRAIN_IMAGES = 1440  # of 1797; the rest is held out


class ResNet(tf.Module):  # type: ignore[misc]
    """Two residual layers. The names of its variables are what a checkpoint holds."""

    def __init__(self, num_classes: int, seed: int) -> None:
        super().__init__()
        draw = tf.random.Generator.from_seed(seed)
        self.stem = tf.Variable(draw.normal((64, 64), stddev=0.1))
        self.blocks = [tf.Variable(draw.normal((64, 64), stddev=0.1)) for _ in range(2)]
        self.head = tf.Variable(draw.normal((64, num_classes), stddev=0.1))

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        x = tf.nn.relu(images @ self.stem)
        for block in self.blocks:
            x = x + tf.nn.relu(x @ block)
        return x @ self.head


class Average:
    """The mean of everybody's gradients, made by worker 0 (on Ascend by HCCL). EOFError when one is gone."""

    def __init__(self, rank: int, workers: int) -> None:
        address = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "0")))
        self.first = connected(address) if rank != 0 else None
        self.others: list[Connection] = []
        if rank == 0:
            with Listener(address, backlog=workers) as listener:
                self.others = [listener.accept() for _ in range(workers - 1)]

    def __call__(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        if self.first is not None:
            self.first.send(arrays)
            mean: list[np.ndarray] = self.first.recv()
            return mean
        everybody = [arrays, *(other.recv() for other in self.others)]
        mean = [sum(same) / len(everybody) for same in zip(*everybody, strict=True)]
        for other in self.others:
            other.send(mean)
        return mean


def connected(address: tuple[str, int]) -> Connection:
    """A connection to worker 0, which may not listen yet."""
    deadline = time.monotonic() + 120
    while (connection := attempt(address)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody listens at {address}")
        time.sleep(0.1)
    return connection


def attempt(address: tuple[str, int]) -> Connection | None:
    try:
        return Client(address)
    except ConnectionRefusedError:
        return None


class Trainer:
    """Gradient descent with momentum; everything that a checkpoint has to bring back is in here."""

    def __init__(self, config: dict[str, Any], model_dir: Path) -> None:
        self.config = config
        self.model = ResNet(config["num_classes"], config["seed"])
        self.moments = [tf.Variable(tf.zeros_like(one)) for one in self.model.trainable_variables]
        self.global_step = tf.Variable(0, dtype=tf.int64)
        self.checkpoint = tf.train.Checkpoint(
            model=self.model, moments=self.moments, global_step=self.global_step
        )
        self.manager = tf.train.CheckpointManager(
            self.checkpoint,
            str(model_dir),
            max_to_keep=config["keep_checkpoint_max"],
            checkpoint_name="model.ckpt",
            step_counter=self.global_step,
        )

    def restore(self) -> str:
        """Load what 'restore_path' names, if it is there; return the file's name."""
        restore_path = self.config.get("restore_path", "")
        if not restore_path or not Path(restore_path).exists():
            return ""
        newest = tf.train.latest_checkpoint(restore_path) or ""
        if newest:
            self.checkpoint.restore(newest).assert_existing_objects_matched()
        return str(newest)

    @tf.function  # type: ignore[untyped-decorator]
    def gradients(self, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=self.model(images))
            loss = tf.reduce_mean(losses)
        return loss, tape.gradient(loss, self.model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]
    def update(self, gradients: list[tf.Tensor]) -> None:
        weights = self.model.trainable_variables
        for weight, moment, gradient in zip(weights, self.moments, gradients, strict=True):
            moment.assign(self.config["momentum"] * moment + gradient)
            weight.assign_sub(self.config["learning_rate"] * moment)
        self.global_step.assign_add(1)


def main() -> None:
    flags = read_flags()
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    config = importlib.import_module(f"configs.{flags.config_file}").res50_config()
    rank, workers = int(os.environ.get("RANK_ID", "0")), int(os.environ.get("RANK_SIZE", "1"))
    device = os.environ.get("DEVICE_INDEX", "0")
    images, labels, test_images, test_labels = load_data()
    trainer = Trainer(config, Path(flags.model_dir) / f"device_{device}")
    restored = trainer.restore()
    if restored:
        say(f"rank {rank} resumed from {restored} at step {int(trainer.global_step)}")

    average = Average(rank, workers)
    per_epoch = TRAIN_IMAGES // (config["batch_size"] * workers)
    last_step = config["max_epochs"] * per_epoch
    for step in range(int(trainer.global_step) + 1, last_step + 1):
        time.sleep(flags.step_delay)
        epoch, at = (step - 1) // per_epoch, (step - 1) % per_epoch
        order = np.random.default_rng((config["seed"], epoch)).permutation(TRAIN_IMAGES)[rank::workers]
        batch = order[at * config["batch_size"] : (at + 1) * config["batch_size"]]
        loss, mine = trainer.gradients(tf.constant(images[batch]), tf.constant(labels[batch]))
        trainer.update([tf.constant(mean) for mean in average([one.numpy() for one in mine])])
        say(f"rank {rank} epoch {epoch + 1} step {step} loss {float(loss):.6f}")
        if config["do_checkpoint"] and (step % config["save_checkpoints_steps"] == 0 or step == last_step):
            trainer.manager.save(checkpoint_number=step)
    guesses = trainer.model(tf.constant(test_images)).numpy().argmax(axis=1)
    weights = b"".join(one.numpy().tobytes() for one in trainer.model.trainable_variables)
    say(
        f"final step {int(trainer.global_step)} accuracy {float((guesses == test_labels).mean()):.4f}"
        f" on {len(test_labels)} digits, weights {zlib.crc32(weights):08x}"
    )


def read_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config_file", default="res50_digits_1p", help="a module of ../configs")
    parser.add_argument("--model_dir", default="./model_dir")
    parser.add_argument("--step_delay", type=float, default=0.0, help="seconds by which to slow a step down")
    return parser.parse_args()


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """1797 digits of 8x8 pixels, drawn by 43 people; they come with scikit-learn."""
    digits = load_digits()
    images, labels = (digits.data / 16.0).astype(np.float32), digits.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(images))  # never changes: nothing held out leaks in
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return images[train], labels[train], images[test], labels[test]


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # one write: the lines of two workers never mix


if __name__ == "__main__":
    main()
    sdk.done()  # a framework that crashes while it is taken down must not cost what is complete
