"""LeNet-5 on handwritten digits, data parallel, resumed exactly where a checkpoint was taken.

The model and the checkpoint callback are those of MindSpore's own tutorial on fault recovery.
But for its last line nothing here knows which launcher started it:
msrun and faultrun set the same environment.
"""

import argparse
import time
import zlib
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import yaml
from mindspore import nn
from mindspore.common.initializer import Normal
from mindspore.communication import get_group_size, get_rank, init
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint, RunContext
from sklearn.datasets import load_digits

from faultrun import sdk

TRAIN_IMAGES = 1440  # of 1797; the rest is held out


class LeNet5(nn.Cell):  # type: ignore[misc]
    def __init__(self, num_class: int, num_channel: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(num_channel, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.fc1 = nn.Dense(16 * 5 * 5, 120, weight_init=Normal(0.02))
        self.fc2 = nn.Dense(120, 84, weight_init=Normal(0.02))
        self.fc3 = nn.Dense(84, num_class, weight_init=Normal(0.02))
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.flatten(x)
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        return self.fc3(x)


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


class Progress(Callback):  # type: ignore[misc]
    """Prints the loss now and then, and starts the count of steps where the checkpoint ended."""

    def __init__(self, *, rank: int, start_step: int, every: int, delay_s: float) -> None:
        super().__init__()
        self.rank = rank
        self.start_step = start_step
        self.every = every
        self.delay_s = delay_s

    def on_train_begin(self, run_context: RunContext) -> None:
        # Model.train counts from 0 in every process. ModelCheckpoint takes its names and step_num
        # from this count, so without this line a resumed run would write step 10 twice.
        run_context.original_args().cur_step_num = self.start_step

    def on_train_step_begin(self, run_context: RunContext) -> None:  # noqa: ARG002 - MindSpore's signature
        time.sleep(self.delay_s)

    def on_train_step_end(self, run_context: RunContext) -> None:
        now = run_context.original_args()
        if now.cur_step_num % self.every == 0:
            loss = float(now.net_outputs.asnumpy())
            say(f"rank {self.rank} epoch {now.cur_epoch_num} step {now.cur_step_num} loss {loss:.6f}")


def main() -> None:
    config = read_config()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    init()
    rank, workers = get_rank(), get_group_size()
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=workers, global_rank=rank
    )
    ms.set_seed(config.seed)

    train_images, train_labels, test_images, test_labels = load_data(config)
    net = LeNet5(config.num_classes)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(net.trainable_params(), config.learning_rate, config.momentum)
    start_step = resume(config.pre_trained, net, optimizer, rank)

    dataset = create_dataset(Digits(train_images, train_labels), config, rank, workers)
    steps_per_epoch = dataset.get_dataset_size()
    initial_epoch = start_step // steps_per_epoch
    if initial_epoch < config.epochs:
        dataset.set_init_step(start_step)  # the batches of an epoch that was cut short come only once
        Model(net, loss_fn=loss, optimizer=optimizer).train(
            config.epochs,
            dataset,
            callbacks=[
                Progress(
                    rank=rank, start_step=start_step, every=config.log_steps, delay_s=config.step_delay_s
                ),
                create_checkpoint(config, rank),
            ],
            initial_epoch=initial_epoch,
            dataset_sink_mode=False,
        )
    if rank == 0:
        report(net, test_images, test_labels, max(start_step, config.epochs * steps_per_epoch))


def read_config() -> argparse.Namespace:
    """The YAML file, with the command line on top of it."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--config", type=Path, default=Path(__file__).with_name("config.yaml"))
    known, rest = first.parse_known_args()
    defaults: dict[str, Any] = yaml.safe_load(known.config.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(parents=[first])
    for key, value in defaults.items():
        parser.add_argument(f"--{key}", type=type(value), default=value)
    return parser.parse_args(rest)


def load_data(config: argparse.Namespace) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """1797 digits of 8x8 pixels, drawn by 43 people; they come with scikit-learn."""
    digits = load_digits()
    size = digits.images.shape[1]
    scale = np.ones((1, config.image_height // size, config.image_width // size), np.float32)
    images = np.kron(digits.images.astype(np.float32), scale)[:, np.newaxis]
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))  # never changes: nothing held out leaks in
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    images = (images - images[train].mean()) / images[train].std()
    return images[train], labels[train], images[test], labels[test]


def create_dataset(source: Digits, config: argparse.Namespace, rank: int, workers: int) -> ds.Dataset:
    """This worker's share, shuffled anew in every epoch: the order follows from seed and epoch alone."""
    ds.config.set_seed(config.seed)
    sampler = ds.DistributedSampler(workers, rank, shuffle=True)
    dataset = ds.GeneratorDataset(source, ["image", "label"], sampler=sampler, num_parallel_workers=1)
    return dataset.batch(config.batch_size, drop_remainder=True)


def create_checkpoint(config: argparse.Namespace, rank: int) -> ModelCheckpoint:
    """Every worker saves into a folder of its own; the weights and the optimizer are in one file."""
    rules = CheckpointConfig(
        save_checkpoint_steps=config.save_checkpoint_steps,
        keep_checkpoint_max=config.keep_checkpoint_max,
        append_info=["epoch_num", "step_num"],
        crc_check=True,
    )
    folder = Path(config.checkpoint_dir) / f"rank_{rank}"
    return ModelCheckpoint(prefix="lenet", directory=str(folder), config=rules)


def resume(path: str, net: nn.Cell, optimizer: nn.Cell, rank: int) -> int:
    """Load weights and optimizer from the file; return the number of steps already done."""
    if not path:
        return 0
    saved = ms.load_checkpoint(path, crc_check=True)
    ms.load_param_into_net(net, saved, strict_load=True)
    ms.load_param_into_net(optimizer, saved, strict_load=True)
    step = int(saved["step_num"].asnumpy())
    say(f"rank {rank} resumed from {path} at step {step}")
    return step


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
