"""A small transformer on handwritten digits, sharded by FSDP2, saved by torch.distributed.checkpoint (DCP).

``fully_shard`` over all ranks, or ``--replicate R`` times over a mesh of R x (ranks / R) (HSDP). Every
``--save_every`` steps ``dcp.async_save`` writes ``<output_dir>/step-<n>``. One line protects it: ``protect``.
"""

import argparse
import os
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from faultrun import sdk

TRAIN_IMAGES = 1440  # of 1797; the rest is held out
BATCH = 24


class Digits(nn.Module):  # type: ignore[misc]
    """Eight rows of eight pixels are eight tokens."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.place = nn.Parameter(torch.randn(8, width) * 0.02)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(rows) + self.place
        for block in self.blocks:
            hidden = block(hidden)
        logits: torch.Tensor = self.head(hidden.mean(1))
        return logits


class Training:
    """Model and optimizer as ``dcp`` saves and loads them: shards, which fit any number of ranks."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )


def main() -> None:
    options = read_options()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)  # the same first weights everywhere ...
    model = Digits()
    mesh = create_mesh(options.replicate)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.steps)
    torch.manual_seed(1 + rank)  # ... but dropout of its own on every rank
    train, test = load_data()
    loader = DataLoader(train, BATCH, sampler=DistributedSampler(train, drop_last=True), drop_last=True)

    guard = sdk.torch.protect(
        model, optimizer, directory=options.output_dir / "gasps", objects={"scheduler": scheduler}
    )
    everything = {"training": Training(model, optimizer), "guard": guard}

    def load(path: str) -> None:
        dcp.load(everything, checkpoint_id=path)

    if guard.resume(load=load) is None and (path := own_checkpoint(options)):
        load(path)  # without faultrun: the newest that is complete
    if rank == 0 and guard.global_step:
        say(f"resumed at step {guard.global_step}")

    saves = Saves(options.output_dir, everything)
    for rows, labels in batches(guard, loader, options.steps):
        time.sleep(options.step_s)
        loss = nn.functional.cross_entropy(model(rows), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        guard.step()
        dist.all_reduce(mean := loss.detach() / dist.get_world_size())
        if rank == 0:
            say(f"step {guard.global_step} loss {mean.item():.6f}")
        if guard.global_step % options.save_every == 0:
            saves.begin(guard.global_step)
    saves.finish()
    report(model, guard.global_step, test)
    sdk.done()
    dist.destroy_process_group()


class Saves:
    """Asynchronous checkpoints, one at a time, on a process group of their own: training uses the other."""

    def __init__(self, output_dir: Path, everything: dict[str, Any]) -> None:
        self._output_dir = output_dir
        self._everything = everything
        self._group = dist.new_group(backend="gloo")
        self._running: Future[Any] | None = None

    def begin(self, step: int) -> None:
        self.finish()
        place = self._output_dir / f"step-{step}"
        if dist.get_rank() == 0:  # what is written anew is not complete until its .metadata comes again
            (place / ".metadata").unlink(missing_ok=True)
        writer = dcp.FileSystemWriter(place, overwrite=True)
        self._running = dcp.async_save(self._everything, storage_writer=writer, process_group=self._group)

    def finish(self) -> None:
        if self._running is not None:
            self._running.result()
            self._running = None


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output_dir", type=Path, default=Path("fsdp2"))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save_every", type=int, default=10)
    parser.add_argument("--resume", default="auto", help="a checkpoint's folder, auto (the newest) or none")
    parser.add_argument("--replicate", type=int, default=1, help="so many copies of the shards (HSDP)")
    parser.add_argument("--step_s", type=float, default=0.0, help="sleep so long in each step")
    return parser.parse_args()


def create_mesh(replicate: int) -> DeviceMesh:
    world = dist.get_world_size()
    if replicate == 1:
        return init_device_mesh("cpu", (world,), mesh_dim_names=("shard",))
    return init_device_mesh("cpu", (replicate, world // replicate), mesh_dim_names=("replicate", "shard"))


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1797 digits of 8x8 pixels, drawn by 43 people; they come with scikit-learn."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))  # never changes
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def batches(guard: sdk.torch.Guard, loader: Any, steps: int) -> Iterator[Any]:
    """What is left of the epoch that was interrupted, then whole epochs, until ``steps`` are done."""
    for epoch in count(guard.epoch):
        yield from islice(guard.batches(loader, epoch), max(0, steps - guard.global_step))
        if guard.global_step >= steps:
            return


def own_checkpoint(options: argparse.Namespace) -> str:
    """The folder to go on from; ``.metadata`` is what dcp writes last."""
    if options.resume != "auto":
        return "" if options.resume == "none" else str(options.resume)
    whole = [path.parent for path in options.output_dir.glob("step-*/.metadata")]
    return str(max(whole, key=lambda path: int(path.name.removeprefix("step-")))) if whole else ""


def report(model: nn.Module, step: int, test: TensorDataset) -> None:
    """All ranks: every forward pass and every whole parameter needs the shards of all."""
    rows, labels = test.tensors
    model.eval()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(rows), labels).item()
        model.reshard()
        digest = 0
        for parameter in model.parameters():
            whole = parameter.full_tensor()
            digest = zlib.crc32(whole.numpy().tobytes(), digest)
    if dist.get_rank() == 0:
        say(f"final step {step} loss {loss!r} digest {digest:08x}")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main()
