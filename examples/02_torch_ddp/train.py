"""DistributedDataParallel on handwritten digits, resumed bit for bit where a checkpoint was taken.

But for its last line nothing here knows which launcher started it:
torchrun and faultrun set the same environment.
"""

import argparse
import os
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import yaml
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import TensorDataset
from torch.utils.data.distributed import DistributedSampler

from faultrun import sdk

TRAIN_IMAGES = 1440  # of 1797; the rest is held out


@dataclass(kw_only=True)
class Training:
    """Everything a checkpoint has to bring back, besides the random numbers of each rank."""

    net: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: CosineAnnealingLR
    step: int = 0  # optimizer updates since the very first start


def main() -> None:
    config = read_config()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(config.seed)  # the same first weights everywhere ...
    train, test = load_data()
    steps_per_epoch = len(DistributedSampler(train, drop_last=True)) // config.batch_size
    training = create_training(config, steps_per_epoch)
    torch.manual_seed(config.seed + rank)  # ... but dropout of its own on every rank
    resume(config.pre_trained, training)
    fit(config, training, train, steps_per_epoch)
    if rank == 0:
        report(training, test)
    dist.destroy_process_group()
    # A thread of gloo may still drop its last message, which aborts an interpreter that is being torn down
    # (pytorch pull request 179291). Everything is written; leave without the tear-down.
    sys.stdout.flush()
    os._exit(0)


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


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1797 digits of 8x8 pixels, drawn by 43 people; they come with scikit-learn."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))  # never changes
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def create_training(config: argparse.Namespace, steps_per_epoch: int) -> Training:
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 4 * 4, 10),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=config.learning_rate, momentum=config.momentum)
    scheduler = CosineAnnealingLR(optimizer, T_max=config.epochs * steps_per_epoch)
    return Training(net=net, optimizer=optimizer, scheduler=scheduler)


def resume(path: str, training: Training) -> None:
    """Load the whole state from the file, on every rank."""
    if not path:
        return
    saved = torch.load(path, weights_only=True)
    training.net.load_state_dict(saved["model"])
    training.optimizer.load_state_dict(saved["optimizer"])
    training.scheduler.load_state_dict(saved["scheduler"])
    training.step = saved["global_step"]
    torch.set_rng_state(saved["rng"][dist.get_rank()])
    say(f"rank {dist.get_rank()} resumed from {path} at step {training.step}")


def fit(config: argparse.Namespace, training: Training, train: TensorDataset, steps_per_epoch: int) -> None:
    rank = dist.get_rank()
    last_step = config.epochs * steps_per_epoch
    parallel = DistributedDataParallel(training.net)
    for images, labels in batches(config, train, steps_per_epoch, training.step):
        time.sleep(config.step_delay_s)
        loss = nn.functional.cross_entropy(parallel(images), labels)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()
        training.scheduler.step()
        training.step += 1
        if training.step % config.log_steps == 0:
            epoch = (training.step - 1) // steps_per_epoch + 1
            say(f"rank {rank} epoch {epoch} step {training.step} loss {loss.item():.6f}")
        if training.step % config.save_checkpoint_steps == 0 or training.step == last_step:
            save(config, training, steps_per_epoch)


def batches(
    config: argparse.Namespace, train: TensorDataset, steps_per_epoch: int, done: int
) -> Iterator[tuple[torch.Tensor, ...]]:
    """This rank's batches from step ``done`` on: the order follows from seed and epoch alone."""
    sampler = DistributedSampler(train, seed=config.seed, drop_last=True)
    for epoch in range(done // steps_per_epoch, config.epochs):
        sampler.set_epoch(epoch)
        indices = list(sampler)
        for batch in range(max(0, done - epoch * steps_per_epoch), steps_per_epoch):
            yield train[indices[batch * config.batch_size : (batch + 1) * config.batch_size]]


def save(config: argparse.Namespace, training: Training, steps_per_epoch: int) -> None:
    """Rank 0 writes one file for all. It has its final name only when it is whole on the disk."""
    rank = dist.get_rank()
    rng: list[torch.Tensor] | None = [torch.empty(0)] * dist.get_world_size() if rank == 0 else None
    dist.gather_object(torch.get_rng_state(), rng)
    if rank != 0:
        return
    epoch = (training.step - 1) // steps_per_epoch + 1
    state = {
        "model": training.net.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "scheduler": training.scheduler.state_dict(),
        "epoch": epoch,
        "step_in_epoch": training.step - (epoch - 1) * steps_per_epoch,  # where the sampler stands
        "global_step": training.step,
        "rng": rng,
    }
    folder = Path(config.checkpoint_dir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"digits-{training.step:06d}.pt"
    partial = path.with_suffix(".pt.tmp")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    by_age = sorted(folder.glob("digits-*.pt"), key=lambda file: file.stat().st_mtime_ns)
    for old in by_age[: -config.keep_checkpoint_max]:
        old.unlink()


def report(training: Training, test: TensorDataset) -> None:
    """One line with everything that two runs can be compared by."""
    training.net.eval()
    images, labels = test.tensors
    with torch.no_grad():
        accuracy = (training.net(images).argmax(dim=1) == labels).float().mean().item()
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in training.net.parameters())
    say(
        f"final step {training.step} accuracy {accuracy:.4f} on {len(labels)} digits,"
        f" weights {zlib.crc32(weights):08x}"
    )


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # one write: the lines of two workers never mix


if __name__ == "__main__":
    main()
    sdk.done()  # a framework that crashes while it is taken down must not cost what is complete
