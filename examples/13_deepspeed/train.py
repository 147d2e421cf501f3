"""A small network on handwritten digits, trained by DeepSpeed with ZeRO-1.

Each rank keeps a part of the optimizer. Every ``--save_every`` steps ``save_checkpoint`` writes
``<output_dir>/global_step<n>/``, a file for each rank, and ``<output_dir>/latest``, by which
``load_checkpoint`` finds it again. The same under ``python``, ``torchrun`` and ``faultrun``.
"""

import argparse
import os
import time
import zlib
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

from faultrun import sdk

BATCH = 16  # images of each rank in a step


def main() -> None:
    options = read_options()
    torch.set_num_threads(1)
    alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost", "MASTER_PORT": 29513}
    for name, value in alone.items():
        os.environ.setdefault(name, str(value))  # for python alone: DeepSpeed would look for MPI
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    rank = dist.get_rank()
    torch.manual_seed(0)  # the same first weights everywhere
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 10))
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=configuration()
    )
    load(engine, options)
    if rank == 0 and engine.global_steps:
        say(f"resumed at step {engine.global_steps}")

    images, labels = digits()
    mean = torch.tensor(float("nan"))
    for step in range(engine.global_steps + 1, options.steps + 1):
        time.sleep(options.step_s)
        torch.manual_seed(step * dist.get_world_size() + rank)  # data and dropout follow from the step alone
        chosen = torch.randint(len(labels), (BATCH,))
        loss = nn.functional.cross_entropy(engine(images[chosen]), labels[chosen])
        engine.backward(loss)
        engine.step()
        dist.all_reduce(mean := loss.detach() / dist.get_world_size())
        sdk.step(step)
        if rank == 0:
            say(f"step {step} loss {mean.item():.6f}")
        if step % options.save_every == 0:
            engine.save_checkpoint(str(options.output_dir))
    if rank == 0:
        weights = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
        say(f"final step {engine.global_steps} loss {mean.item()!r} digest {zlib.crc32(weights):08x}")
    sdk.done()
    dist.destroy_process_group()


def load(engine: Any, options: argparse.Namespace) -> None:
    """Go on from what faultrun says, from a certain checkpoint, or from what ``latest`` names."""
    point = sdk.resume()
    path = point.path if point else options.resume
    if path not in ("auto", "none"):
        engine.load_checkpoint(str(Path(path).parent), tag=Path(path).name)
    elif path == "auto":
        engine.load_checkpoint(str(options.output_dir))  # without `latest` it begins anew, and only logs it


def configuration() -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "torch_adam": True}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 20, "warmup_max_lr": 3e-3}},
        "zero_optimization": {"stage": 1},
        "steps_per_print": 1_000_000,
    }


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    found = load_digits()
    return torch.tensor(found.images, dtype=torch.float32).flatten(1) / 16, torch.tensor(found.target)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output_dir", type=Path, default=Path("zero"))
    parser.add_argument("--steps", type=int, default=60, help="updates in all")
    parser.add_argument("--save_every", type=int, default=10, help="updates between checkpoints")
    parser.add_argument("--resume", default="auto", help="a folder, auto (what latest names) or none")
    parser.add_argument("--step_s", type=float, default=0.0, help="seconds to sleep before every update")
    return parser.parse_args()


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
