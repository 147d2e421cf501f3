"""DistributedDataParallel on handwritten digits: a rank dies, the others keep their processes."""

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
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from faultrun import sdk

TRAIN_IMAGES = 1440  # of 1797; the rest is held out
SEED = 7


def main() -> None:
    options = read_options()
    torch.set_num_threads(1)
    sdk.torch.init_process_group("gloo")  # instead of torch.distributed's
    rank = dist.get_rank()
    torch.manual_seed(SEED)  # the same first weights everywhere ...
    train, test = load_data()
    net = create_net()
    sampler = DistributedSampler(train, seed=SEED, drop_last=True)
    loader = DataLoader(train, batch_size=options.batch_size, sampler=sampler, drop_last=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scheduler = CosineAnnealingLR(optimizer, T_max=options.epochs * len(loader))
    torch.manual_seed(SEED + rank)  # ... but dropout of its own on every rank
    parallel = DistributedDataParallel(net)
    guard = sdk.torch.protect(
        parallel, optimizer, directory=options.checkpoint_dir, objects={"scheduler": scheduler}
    )
    guard.resume()
    for epoch in range(guard.epoch, options.epochs):
        for images, labels in guard.batches(loader, epoch):
            with guard.attempt():  # one step; it comes again if a peer dies in it
                time.sleep(options.step_delay_s * len(labels) / options.batch_size)
                loss = nn.functional.cross_entropy(parallel(images), labels) * guard.weight
                loss.backward()
                if guard.accumulating:  # the share of a missing rank comes next, in the same step
                    continue
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                say(f"rank {rank} pid {os.getpid()} step {guard.global_step + 1} loss {loss.item():.6f}")
    report(net, rank, guard.global_step, test)
    sdk.done()
    # gloo's threads may still abort an interpreter that is being torn down; everything is written.
    sys.stdout.flush()
    os._exit(0)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch_size", type=int, default=24)
    parser.add_argument("--step_delay_s", type=float, default=0.0)
    parser.add_argument("--checkpoint_dir", default="digits")
    return parser.parse_args()


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1797 digits of 8x8 pixels, drawn by 43 people; they come with scikit-learn."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))  # never changes
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def create_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),  # of each sample alone: a step may be done in parts
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(16 * 4 * 4, 10),
    )


def report(net: nn.Module, rank: int, step: int, test: TensorDataset) -> None:
    """One line with everything that two runs can be compared by."""
    net.eval()
    images, labels = test.tensors
    with torch.no_grad():
        accuracy = (net(images).argmax(dim=1) == labels).float().mean().item()
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters())
    say(f"rank {rank} final step {step} accuracy {accuracy:.4f}, weights {zlib.crc32(weights):08x}")


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # one write: the lines of two workers never mix


if __name__ == "__main__":
    main()
