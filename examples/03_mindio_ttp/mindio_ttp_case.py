"""The case of MindSpore's document on power-off checkpoints (MindIO TTP), on handwritten digits.

Two lines differ from the document: where ``OptTFTWrapper`` and ``TFTRegister`` are imported from, and that
the checkpoint to go on from is asked for instead of typed in. Runs on a CPU; on an NPU with MindIO the
imported classes are MindIO's own.
"""

import argparse
import math
import time
import zlib
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Parameter, nn, ops, train
from mindspore.common.initializer import HeUniform, initializer
from mindspore.communication import get_group_size, get_rank, init
from sklearn.datasets import load_digits

from faultrun import sdk
from faultrun.sdk.mindspore import OptTFTWrapper, TFTRegister

TRAIN_IMAGES = 1440  # of 1797; the rest is held out


class MatMulCell(nn.Cell):  # type: ignore[misc]
    def __init__(self, shape: list[int]) -> None:
        super().__init__()
        self.param = Parameter(initializer(HeUniform(math.sqrt(5)), shape), name="param")
        self.matmul = ops.MatMul()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.matmul(x, self.param)


class Network(nn.Cell):  # type: ignore[misc]
    """The document's five layers, narrower: these pictures have 64 pixels, not 784."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.layer1 = MatMulCell([64, 128])
        self.relu1 = nn.ReLU()
        self.layer2 = nn.Dense(128, 256)
        self.relu2 = nn.ReLU()
        self.layer3 = nn.Dense(256, 256)
        self.relu3 = nn.ReLU()
        self.layer4 = nn.Dense(256, 128)
        self.relu4 = nn.ReLU()
        self.layer5 = nn.Dense(128, 10)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = self.flatten(x)
        x = self.relu1(self.layer1(x))
        x = self.relu2(self.layer2(x))
        x = self.relu3(self.layer3(x))
        x = self.relu4(self.layer4(x))
        return self.layer5(x)


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


class Progress(train.Callback):  # type: ignore[misc]
    """Prints every step, and starts the count of steps where the checkpoint ended."""

    def __init__(self, rank: int, start_step: int, delay_s: float) -> None:
        super().__init__()
        self.rank = rank
        self.start_step = start_step
        self.delay_s = delay_s

    def on_train_begin(self, run_context: train.RunContext) -> None:
        run_context.original_args().cur_step_num = self.start_step

    def on_train_step_end(self, run_context: train.RunContext) -> None:
        now = run_context.original_args()
        loss = float(now.net_outputs.asnumpy())
        time.sleep(self.delay_s)
        say(f"rank {self.rank} epoch {now.cur_epoch_num} step {now.cur_step_num} loss {loss:.6f}")


def main() -> None:
    args = read_arguments()
    ms.set_context(mode=ms.GRAPH_MODE, jit_level="O1")
    ms.set_device(args.device_target)
    ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    init()
    rank, workers = get_rank(), get_group_size()
    ms.set_auto_parallel_context(device_num=workers, global_rank=rank)
    ms.set_seed(1)

    source, test_images, test_labels = load_data()
    net = Network()
    optimizer = nn.SGD(net.trainable_params(), 1e-2, momentum=0.9)
    optimizer_wrapper = OptTFTWrapper(optimizer)
    loss_fn = nn.CrossEntropyLoss()
    net.set_train()
    model = ms.Model(net, loss_fn=loss_fn, optimizer=optimizer_wrapper)
    dataset = create_dataset(source, rank, workers)
    tft_cb = TFTRegister(0, "127.0.0.1", 30051, args.ckpt_save_path)

    start_step = recover(net, optimizer, rank) if args.is_recover else 0
    steps = args.epochs * dataset.get_dataset_size()
    if start_step < steps:
        dataset.set_init_step(start_step)
        model.train(
            args.epochs,
            dataset,
            callbacks=[Progress(rank, start_step, args.step_delay), tft_cb],
            initial_epoch=start_step // dataset.get_dataset_size(),
            dataset_sink_mode=False,
        )
    if rank == 0:
        report(net, test_images, test_labels, steps)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="MindIO TTP test arguments")
    parser.add_argument("--is_recover", type=int, default=0, choices=[1, 0], help="resume; faultrun sets it")
    parser.add_argument("--device_target", choices=["CPU", "Ascend"], default="CPU")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--ckpt_save_path", default="./ttp_checkpoints/")
    parser.add_argument("--step_delay", type=float, default=0.0, help="seconds by which to slow a step down")
    return parser.parse_args()


def recover(net: nn.Cell, optimizer: nn.Cell, rank: int) -> int:
    """Load the power-off checkpoint; return the number of steps already done.

    In data parallel training any rank's file serves all, and rank 0 may be the one that died: faultrun says
    whose file it is, where the document has epoch, step and rank typed in.
    """
    point = sdk.resume()
    if point is None:
        return 0
    param_dict = ms.load_checkpoint(point.path, crc_check=True)
    ms.load_param_into_net(net, param_dict, strict_load=True)
    ms.load_param_into_net(optimizer, param_dict, strict_load=True)
    step = int(param_dict["step_num"].asnumpy())
    say(f"rank {rank} resumed from {Path(point.path).resolve()} at step {step}")
    return step


def load_data() -> tuple[Digits, np.ndarray, np.ndarray]:
    """1797 digits of 8x8 pixels, drawn by 43 people; they come with scikit-learn."""
    digits = load_digits()
    images, labels = (digits.images / 16.0).astype(np.float32), digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))  # never changes: nothing held out leaks in
    train_part, test_part = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return Digits(images[train_part], labels[train_part]), images[test_part], labels[test_part]


def create_dataset(source: Digits, rank: int, workers: int) -> ds.Dataset:
    ds.config.set_seed(1)
    sampler = ds.DistributedSampler(workers, rank, shuffle=True)
    dataset = ds.GeneratorDataset(source, ["image", "label"], sampler=sampler, num_parallel_workers=1)
    return dataset.batch(16, drop_remainder=True)


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
