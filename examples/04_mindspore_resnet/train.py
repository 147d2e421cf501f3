"""A small residual network on handwritten digits, configured, saved and resumed as ResNet of the ModelZoo.

The configuration is a YAML stream: values, help texts, choices. Checkpoints go to
``<output_path>/<checkpoint_path>ckpt_<rank>/``, and ``pre_trained`` names what to go on from.
"""

import argparse
import ast
import os
import time
import zlib
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import yaml
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint, RunContext
from sklearn.datasets import load_digits

from faultrun import sdk

TRAIN_IMAGES = 1440  # of 1797; the rest is held out


class ResidualBlock(nn.Cell):  # type: ignore[misc]
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3)
        self.conv2 = nn.Conv2d(channels, channels, 3)
        self.relu = nn.ReLU()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.relu(x + self.conv2(self.relu(self.conv1(x))))


class ResNet(nn.Cell):  # type: ignore[misc]
    def __init__(self, class_num: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.layer1 = ResidualBlock(8)
        self.pool = nn.MaxPool2d(2, 2)
        self.layer2 = ResidualBlock(8)
        self.flatten = nn.Flatten()
        self.end_point = nn.Dense(8 * 4 * 4, class_num)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = self.pool(self.layer1(self.conv1(x)))
        return self.end_point(self.flatten(self.layer2(x)))


class Digits:
    """Random access to (image, label), as GeneratorDataset wants it."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        # A label must be a 0-d array: MindSpore's reader cannot take a NumPy 2 scalar.
        return self.images[index], np.array(self.labels[index])


class LossCallBack(Callback):  # type: ignore[misc]
    """Prints every step, counted from the very first start."""

    def __init__(self, config: argparse.Namespace, rank: int) -> None:
        super().__init__()
        self.config = config
        self.rank = rank

    def on_train_step_end(self, run_context: RunContext) -> None:
        now = run_context.original_args()
        epoch = self.config.has_trained_epoch + now.cur_epoch_num
        step = self.config.has_trained_step + now.cur_step_num
        say(f"rank {self.rank} epoch {epoch} step {step} loss {float(now.net_outputs.asnumpy()):.6f}")
        time.sleep(self.config.step_delay)


def main() -> None:
    config = read_config()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device(config.device_target)
    ms.set_seed(1)
    rank, workers = 0, 1
    if config.run_distribute:
        init()
        rank, workers = get_rank(), get_group_size()
        ms.set_auto_parallel_context(
            parallel_mode=ms.ParallelMode.DATA_PARALLEL,
            gradients_mean=True,
            device_num=config.device_num,
            global_rank=rank,
        )
    param_dict = load_pre_trained_checkpoint(config)
    train, test_images, test_labels = load_data()
    dataset = create_dataset(config, train, rank, workers)
    step_size = dataset.get_dataset_size()
    net = ResNet(config.class_num)
    opt = nn.Momentum(net.trainable_params(), config.learning_rate, config.momentum)
    if param_dict:
        config.has_trained_epoch = int(param_dict["epoch_num"].asnumpy())
        config.has_trained_step = int(param_dict["step_num"].asnumpy())
        ms.load_param_into_net(net, param_dict, strict_load=True)
        ms.load_param_into_net(opt, param_dict, strict_load=True)
        say(f"rank {rank} resumed from {config.pre_trained} at step {config.has_trained_step}")

    callbacks = [LossCallBack(config, rank)]
    if config.save_checkpoint:
        callbacks.append(create_checkpoint(config, rank, step_size))
    if config.has_trained_epoch < config.epoch_size:
        loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        Model(net, loss_fn=loss, optimizer=opt).train(
            config.epoch_size - config.has_trained_epoch,
            dataset,
            callbacks=callbacks,
            dataset_sink_mode=False,
        )
    if rank == 0:
        report(net, test_images, test_labels, config.epoch_size * step_size)


def read_config() -> argparse.Namespace:
    """The first document of the YAML stream; the command line wins. The others explain and restrict it."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--config_path", default="resnet_digits_config.yaml")
    known, _ = first.parse_known_args()
    text = Path(known.config_path).read_text(encoding="utf-8")
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    values, helps, choices = [*documents, {}, {}][:3]
    parser = argparse.ArgumentParser(parents=[first])
    for key, value in values.items():
        read = ast.literal_eval if isinstance(value, bool) else type(value)
        parser.add_argument(
            f"--{key}", type=read, default=value, choices=choices.get(key), help=helps.get(key)
        )
    return parser.parse_args()


def load_pre_trained_checkpoint(config: argparse.Namespace) -> dict[str, Any]:
    """The parameters of ``pre_trained``: of the file, or of the newest file that worker 0 has saved."""
    path = Path(config.pre_trained)
    if config.pre_trained and path.is_dir():
        folder = Path(config.output_path, config.checkpoint_path, "ckpt_0")
        by_age = sorted(folder.glob("*.ckpt"), key=lambda file: file.stat().st_mtime_ns)
        path = by_age[-1] if by_age else folder
    if config.pre_trained and not path.is_file():
        say(f"Invalid pre_trained {config.pre_trained} parameter.")
    return dict(ms.load_checkpoint(str(path))) if path.is_file() else {}


def create_checkpoint(config: argparse.Namespace, rank: int, step_size: int) -> ModelCheckpoint:
    """Every worker saves at the end of an epoch, with the epochs and steps of earlier runs counted in."""
    folder = os.path.join(config.output_path, config.checkpoint_path)  # noqa: PTH118 - its last slash counts
    if config.run_distribute:
        folder = folder + "ckpt_" + str(rank) + "/"
    rules = CheckpointConfig(
        save_checkpoint_steps=config.save_checkpoint_epochs * step_size,
        keep_checkpoint_max=config.keep_checkpoint_max,
        append_info=[{"epoch_num": config.has_trained_epoch, "step_num": config.has_trained_step}],
    )
    return ModelCheckpoint(prefix="resnet", directory=folder, config=rules)


def load_data() -> tuple[Digits, np.ndarray, np.ndarray]:
    """1797 digits of 8x8 pixels, drawn by 43 people; they come with scikit-learn."""
    digits = load_digits()
    images = (digits.images.astype(np.float32) / 16.0)[:, np.newaxis]
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))  # never changes: nothing held out leaks in
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return Digits(images[train], labels[train]), images[test], labels[test]


def create_dataset(config: argparse.Namespace, source: Digits, rank: int, workers: int) -> ds.Dataset:
    """This worker's share, shuffled anew in every epoch."""
    ds.config.set_seed(1 + config.has_trained_epoch)
    sampler = ds.DistributedSampler(workers, rank, shuffle=True)
    dataset = ds.GeneratorDataset(source, ["image", "label"], sampler=sampler, num_parallel_workers=1)
    return dataset.batch(config.batch_size, drop_remainder=True)


def report(net: nn.Cell, images: np.ndarray, labels: np.ndarray, steps: int) -> None:
    """One line with everything that two runs can be compared by."""
    net.set_train(False)
    guesses = net(ms.Tensor(images)).asnumpy().argmax(axis=1)
    weights = b"".join(parameter.asnumpy().tobytes() for parameter in net.trainable_params())
    accuracy = float((guesses == labels).mean())
    say(
        f"final step {steps} accuracy {accuracy:.4f} on {len(labels)} digits,"
        f" weights {zlib.crc32(weights):08x}"
    )


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # one write: the lines of two workers never mix


if __name__ == "__main__":
    main()
    sdk.done()  # a framework that crashes while it is taken down must not cost what is complete
