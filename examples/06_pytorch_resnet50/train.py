"""A small residual network on handwritten digits, saved and resumed as ResNet-50 of the ModelZoo does it.

The first device of each node saves ``rank_<rank>/model_best.pth.tar`` whenever the accuracy has risen;
with ``--resume=true`` every rank looks for that file and goes on with the epoch after it.
"""

import argparse
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset
from torch.utils.data.distributed import DistributedSampler

from faultrun import sdk

TRAIN_IMAGES = 1440  # of 1797; the rest is held out


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner: torch.Tensor = self.conv2(torch.relu(self.conv1(x)))
        return torch.relu(x + inner)


def main() -> None:
    args = read_arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    train, test = load_data()
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        Block(16),
        nn.MaxPool2d(2),
        Block(16),
        nn.Flatten(),
        nn.Linear(256, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=args.mom)
    steps_per_epoch = len(DistributedSampler(train, drop_last=True)) // args.batch_size
    start_epoch, best_acc1 = 0, 0.0
    if args.resume == "true":
        start_epoch, best_acc1 = resume(model, optimizer, rank, steps_per_epoch)

    parallel = DistributedDataParallel(model)
    for epoch in range(start_epoch, args.epochs):
        fit(args, parallel, optimizer, batches(args, train, epoch, steps_per_epoch), epoch, steps_per_epoch)
        acc1 = validate(model, test)
        if acc1 > best_acc1:
            best_acc1 = acc1
            save(args, model, optimizer, rank, epoch, best_acc1)
    if rank == 0:
        report(model, test, args.epochs * steps_per_epoch)
    dist.barrier()
    dist.destroy_process_group()


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="resnet_digits")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--mom", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=49)
    parser.add_argument("--resume", choices=["true", "false"], default="false")
    parser.add_argument("--step-delay", type=float, default=0.0, help="seconds by which to slow a step down")
    return parser.parse_args()


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1797 digits of 8x8 pixels, drawn by 43 people; they come with scikit-learn."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))  # never changes
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def batches(
    args: argparse.Namespace, train: TensorDataset, epoch: int, count: int
) -> Iterator[tuple[torch.Tensor, ...]]:
    """This rank's batches of one epoch."""
    sampler = DistributedSampler(train, seed=args.seed, drop_last=True)
    sampler.set_epoch(epoch)
    indices = list(sampler)
    for batch in range(count):
        yield train[indices[batch * args.batch_size : (batch + 1) * args.batch_size]]


def fit(
    args: argparse.Namespace,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    epoch_batches: Iterator[tuple[torch.Tensor, ...]],
    epoch: int,
    steps_per_epoch: int,
) -> None:
    """One epoch; the steps that are shown count from the very first start."""
    model.train()
    for step, (images, labels) in enumerate(epoch_batches, start=epoch * steps_per_epoch + 1):
        time.sleep(args.step_delay)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(f"rank {dist.get_rank()} epoch {epoch + 1} step {step} loss {loss.item():.6f}")


def validate(model: nn.Module, test: TensorDataset) -> float:
    """Accuracy in percent."""
    model.eval()
    images, labels = test.tensors
    with torch.no_grad():
        return float(100.0 * (model(images).argmax(dim=1) == labels).float().mean())


def resume(
    model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, steps_per_epoch: int
) -> tuple[int, float]:
    """Load the best model that any rank of this job saved; return the next epoch and the best accuracy."""
    for folder in sorted(Path().glob("rank*")):
        path = folder / "model_best.pth.tar"
        if path.exists():
            break
    else:
        say(f"rank {rank} found no checkpoint to resume from")
        return 0, 0.0
    checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(checkpoint["state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    epoch = int(checkpoint["epoch"])
    say(f"rank {rank} resumed from {path} at step {epoch * steps_per_epoch}")
    return epoch, float(checkpoint["best_acc1"])


def save(
    args: argparse.Namespace,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rank: int,
    epoch: int,
    best_acc1: float,
) -> None:
    """The first rank of each node writes the file; a reader sees the old one or the new one."""
    if rank % int(os.environ["LOCAL_WORLD_SIZE"]) != 0:
        return
    folder = Path(f"rank_{rank}")
    folder.mkdir(exist_ok=True)
    state = {
        "epoch": epoch + 1,
        "arch": args.arch,
        "state_dict": model.state_dict(),
        "best_acc1": torch.tensor(best_acc1),
        "optimizer": optimizer.state_dict(),
    }
    target = folder / "model_best.pth.tar"
    partial = folder / "model_best.pth.tar.tmp"
    torch.save(state, partial)
    partial.replace(target)
    say(f"saved {target}, best epoch so far: {epoch + 1}, accuracy {best_acc1:.2f}")


def report(model: nn.Module, test: TensorDataset, steps: int) -> None:
    """One line with everything that two runs can be compared by."""
    accuracy = validate(model, test) / 100.0
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    say(
        f"final step {steps} accuracy {accuracy:.4f} on {len(test)} digits, weights {zlib.crc32(weights):08x}"
    )


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # one write: the lines of two ranks never mix


if __name__ == "__main__":
    main()
    sdk.done()  # a framework that crashes while it is taken down must not cost what is complete
