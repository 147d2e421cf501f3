"""Handwritten digits with accelerate: three lines are for faultrun.

The same under ``python``, ``torchrun``, ``accelerate launch`` and ``faultrun``.
"""

import argparse
import itertools
import shutil
import time
import zlib
from pathlib import Path

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

from faultrun import sdk

KEPT = 3  # checkpoints of accelerate's


def main() -> None:
    options = read_options()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=not torch.cuda.is_available())
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.25), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    scheduler = CosineAnnealingLR(optimizer, T_max=options.steps * accelerator.num_processes)
    loader = DataLoader(digits(), batch_size=16, shuffle=True)
    net, optimizer, loader, scheduler = accelerator.prepare(net, optimizer, loader, scheduler)
    torch.manual_seed(7 + accelerator.process_index)  # dropout of its own on every rank

    guard = sdk.accelerate.protect(accelerator, directory=Path(options.output_dir, "gasp"))  # line 1
    if guard.resume() is None and (folder := found(options)):  # line 2
        accelerator.load_state(str(folder))
    loss = torch.zeros(())
    for epoch in itertools.count(guard.epoch):
        for images, labels in guard.batches(loader, epoch):  # line 3
            with accelerator.accumulate(net):
                loss = nn.functional.cross_entropy(net(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            guard.step()  # counts updates: while gradients add up it does nothing
            if accelerator.sync_gradients:
                time.sleep(options.step_s)
                if accelerator.is_main_process:
                    say(f"step {guard.global_step} loss {loss.item():.6f}")
                if guard.global_step % options.save_every == 0:
                    save(accelerator, options, guard.global_step)
            if guard.global_step >= options.steps:
                break
        if guard.global_step >= options.steps:
            break
    if accelerator.is_main_process:
        weights = b"".join(one.detach().numpy().tobytes() for one in net.parameters())
        say(f"final step {guard.global_step} loss {loss.item()!r} digest {zlib.crc32(weights):08x}")
    accelerator.end_training()


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", default="digits")
    parser.add_argument("--steps", type=int, default=60, help="updates in all")
    parser.add_argument("--save_every", type=int, default=10, help="updates between accelerate's folders")
    parser.add_argument("--resume", default="auto", help="a folder, auto (the newest) or none")
    parser.add_argument("--step_s", type=float, default=0.0, help="seconds to sleep after every update")
    return parser.parse_args()


def found(options: argparse.Namespace) -> Path | None:
    """What a user of accelerate says: the newest checkpoint, a certain one, or none."""
    match options.resume:
        case "auto":
            return next(reversed(checkpoints(options)), None)
        case "none":
            return None
        case path:
            return Path(path)


def checkpoints(options: argparse.Namespace) -> list[Path]:
    """Accelerate's folders, the oldest first."""
    folders = Path(options.output_dir).glob("checkpoint-*")
    return sorted(folders, key=lambda folder: int(folder.name.rpartition("-")[2]))


def save(accelerator: Accelerator, options: argparse.Namespace, step: int) -> None:
    """All ranks: each writes its random numbers, rank 0 everything else."""
    with sdk.phase("saving"):
        accelerator.save_state(str(Path(options.output_dir, f"checkpoint-{step}")))
        if accelerator.is_main_process:
            for old in checkpoints(options)[:-KEPT]:
                shutil.rmtree(old)


def digits() -> TensorDataset:
    """1440 of scikit-learn's digits of 8x8 pixels."""
    found = load_digits()
    images = torch.tensor(found.images[:1440], dtype=torch.float32).reshape(1440, 64) / 16
    return TensorDataset(images, torch.tensor(found.target[:1440]))


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # one write: the lines of two workers never mix


if __name__ == "__main__":
    main()
    sdk.done()  # whatever happens while the process is taken down, training is complete
