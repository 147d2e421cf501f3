"""The case of MindSpore's document on UCE fast recovery, on handwritten digits.

On an NPU with MindIO the optimizer is wrapped and ``TrainFaultTolerance`` is registered: after a memory
error MindSpore repairs the device from a replica, without a restart. On a CPU neither exists; there the
script shows which switches reached it, and recovers as any other: from the newest checkpoint.
"""

import argparse
import os
import time
import zlib
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, train
from mindspore.communication import get_group_size, get_rank, init
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint, RunContext
from sklearn.datasets import load_digits

from faultrun import sdk

TRAIN_IMAGES = 1440  # of 1797; the rest is held out


class Network(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Dense(64, 128)
        self.layer2 = nn.Dense(128, 128)
        self.layer3 = nn.Dense(128, 10)
        self.relu = nn.ReLU()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = self.relu(self.layer1(x))
        x = self.relu(self.layer2(x))
        return self.layer3(x)


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
    """Prints every step, and starts the count of steps where the checkpoint ended."""

    def __init__(self, rank: int, start_step: int, delay_s: float) -> None:
        super().__init__()
        self.rank = rank
        self.start_step = start_step
        self.delay_s = delay_s

    def on_train_begin(self, run_context: RunContext) -> None:
        run_context.original_args().cur_step_num = self.start_step

    def on_train_step_end(self, run_context: RunContext) -> None:
        now = run_context.original_args()
        loss = float(now.net_outputs.asnumpy())
        time.sleep(self.delay_s)
        say(f"rank {self.rank} epoch {now.cur_epoch_num} step {now.cur_step_num} loss {loss:.6f}")


def main() -> None:
    args = read_arguments()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device(args.device_target)
    init()
    rank, workers = get_rank(), get_group_size()
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=workers, global_rank=rank
    )
    ms.set_seed(1)
    show_switches(rank)

    source, test_images, test_labels = load_data()
    net = Network()
    optimizer = nn.SGD(net.trainable_params(), 0.05, momentum=0.9)
    start_step = resume(args.pre_trained, net, optimizer, rank)
    dataset = create_dataset(source, rank, workers)
    steps_per_epoch = dataset.get_dataset_size()
    callbacks = [Progress(rank, start_step, args.step_delay), create_checkpoint(args, rank)]
    if args.device_target == "Ascend":
        optimizer = nn.OptTFTWrapper(optimizer)
        callbacks.append(train.TrainFaultTolerance(args.ckpt_save_path))
    if start_step < args.epochs * steps_per_epoch:
        dataset.set_init_step(start_step)
        loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        Model(net, loss_fn=loss, optimizer=optimizer).train(
            args.epochs,
            dataset,
            callbacks=callbacks,
            initial_epoch=start_step // steps_per_epoch,
            dataset_sink_mode=False,
        )
    if rank == 0:
        report(net, test_images, test_labels, args.epochs * steps_per_epoch)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device_target", choices=["CPU", "Ascend"], default="CPU")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--ckpt_save_path", default="./ttp_checkpoints")
    parser.add_argument("--pre_trained", default="", help="a checkpoint file to go on from")
    parser.add_argument("--step_delay", type=float, default=0.0, help="seconds by which to slow a step down")
    return parser.parse_args()


def show_switches(rank: int) -> None:
    """What MindSpore makes of MS_ENABLE_TFT: its features look for "UCE:1", its parser splits the text."""
    text = os.environ.get("MS_ENABLE_TFT", "")
    seen = [key for key in ("UCE", "TTP", "ARF") if f"{key}:1" in text]
    parsed = dict(item.split(":")[:2] for item in text.strip("{}").split(",") if item)
    say(f"rank {rank} MS_ENABLE_TFT={text} features {' '.join(seen)} parser {parsed}")


def create_checkpoint(args: argparse.Namespace, rank: int) -> ModelCheckpoint:
    rules = CheckpointConfig(
        save_checkpoint_steps=10, keep_checkpoint_max=3, append_info=["epoch_num", "step_num"], crc_check=True
    )
    return ModelCheckpoint(
        prefix="uce", directory=str(Path(args.ckpt_save_path) / f"rank_{rank}"), config=rules
    )


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


def load_data() -> tuple[Digits, np.ndarray, np.ndarray]:
    """1797 digits of 8x8 pixels, drawn by 43 people; they come with scikit-learn."""
    digits = load_digits()
    images, labels = (digits.data / 16.0).astype(np.float32), digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))  # never changes: nothing held out leaks in
    train_part, test_part = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return Digits(images[train_part], labels[train_part]), images[test_part], labels[test_part]


def create_dataset(source: Digits, rank: int, workers: int) -> ds.Dataset:
    ds.config.set_seed(1)
    sampler = ds.DistributedSampler(workers, rank, shuffle=True)
    dataset = ds.GeneratorDataset(source, ["image", "label"], sampler=sampler, num_parallel_workers=1)
    return dataset.batch(32, drop_remainder=True)


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
