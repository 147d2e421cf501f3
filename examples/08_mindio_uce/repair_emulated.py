"""Memory errors of a device, repaired in place: EMULATED, on the CPU.

torch_npu is replaced by an emulation of its names (``faultrun.testing.emulated_npu``), and ``--uce`` says
which rank meets which error. On an NPU the lines with ``emulated_npu`` go, and the rest stays as it is.
"""

import argparse
import os
import sys
import time
import zlib

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from faultrun import sdk
from faultrun.testing import emulated_npu

TRAIN_IMAGES = 1440  # of 1797; the rest is held out
SEED = 7
TEMPORARY, PERSISTENT = 2, 3


def main() -> None:
    options = read_options()
    torch.set_num_threads(1)
    emulated_npu.install()  # on an NPU: import torch_npu
    sdk.torch.init_process_group("hccl")  # instead of torch.distributed's
    rank = dist.get_rank()
    show_switches(rank)
    torch.manual_seed(SEED)
    train, test = load_data()
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    sampler = DistributedSampler(train, seed=SEED, drop_last=True)
    loader = DataLoader(train, batch_size=24, sampler=sampler, drop_last=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    parallel = DistributedDataParallel(net)
    guard = sdk.torch.protect(parallel, optimizer, directory=options.checkpoint_dir)
    guard.resume()
    first_process = not sdk.is_newcomer() and guard.global_step == 0
    errors = errors_of(rank, options.uce) if first_process else {}
    for epoch in range(guard.epoch, options.epochs):
        for images, labels in guard.batches(loader, epoch):
            with guard.attempt():  # one step; it comes again after a repair
                time.sleep(options.step_delay_s)
                kind = errors.pop(guard.global_step + 1, None)
                if kind is not None and kind != TEMPORARY:
                    strike(net, rank, guard.global_step + 1, kind)
                scores = parallel(images)
                if kind == TEMPORARY:  # what a step makes and drops: noticed on the way back
                    step = guard.global_step + 1
                    scores.register_hook(lambda _, step=step: strike(net, rank, step, TEMPORARY))
                loss = nn.functional.cross_entropy(scores, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                say(f"rank {rank} pid {os.getpid()} step {guard.global_step + 1} loss {loss.item():.6f}")
    report(net, rank, guard.global_step, test)
    sdk.done()
    # gloo's threads may still abort an interpreter that is being torn down; everything is written.
    sys.stdout.flush()
    os._exit(0)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--step_delay_s", type=float, default=0.0)
    parser.add_argument("--checkpoint_dir", default="./ttp_checkpoints")
    parser.add_argument("--pre_trained", default="", help="faultrun's; guard.resume() knows it already")
    parser.add_argument(
        "--uce",
        action="append",
        default=[],
        metavar="RANK:STEP:CLASS",
        help="this rank meets a memory error in this step; the class is what check_uce_in_memory says of it",
    )
    return parser.parse_args()


def errors_of(rank: int, wanted: list[str]) -> dict[int, int]:
    """The class of the error by the step in which this rank meets it."""
    numbers = [[int(part) for part in text.split(":")] for text in wanted]
    return {step: kind for who, step, kind in numbers if who == rank}


def strike(net: nn.Sequential, rank: int, step: int, kind: int) -> None:
    """The memory is bad from here on; where it held parameters they are gone."""
    say(f"rank {rank} EMULATED memory error of class {kind} in step {step}")
    if kind == PERSISTENT:
        net[0].weight.detach().fill_(float("nan"))
    raise emulated_npu.uce(kind)


def show_switches(rank: int) -> None:
    """What MindIO would read on an NPU. Nothing reads it here."""
    names = ("MS_ENABLE_TFT", "MINDIO_FOR_MINDSPORE")
    say(f"rank {rank} " + " ".join(f"{name}={os.environ.get(name, '')}" for name in names))


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1797 digits of 8x8 pixels, drawn by 43 people; they come with scikit-learn."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))  # never changes
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def report(net: nn.Module, rank: int, step: int, test: TensorDataset) -> None:
    """One line with everything that two runs can be compared by, and one with what the device was told."""
    images, labels = test.tensors
    with torch.no_grad():
        accuracy = (net(images).argmax(dim=1) == labels).float().mean().item()
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters())
    say(f"rank {rank} EMULATED device: {' '.join(emulated_npu.calls)}")
    say(f"rank {rank} final step {step} accuracy {accuracy:.4f}, weights {zlib.crc32(weights):08x}")


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # one write: the lines of two workers never mix


if __name__ == "__main__":
    main()
