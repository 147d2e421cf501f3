"""A small data-parallel training under the SDK that notes every bit of its state, and dies where it is told.

With more than two ranks a sum depends on where a gradient lies in its bucket,
and DistributedDataParallel rearranges its buckets after the first step: the
gradients are averaged one by one here, so that bits can be compared. Notes:
``step``, ``resumed`` and ``final`` with "<step> <shared digest> <whole digest>".
"""

import argparse
import os
import sys
import threading
from datetime import timedelta
from typing import Any

from benchmarks.jobs.gasp_death import STEPS_AN_EPOCH, Death
from benchmarks.jobs.gasp_death import options as common_options
from benchmarks.jobs.tell import Teller

tell = Teller()
tell("running")

import torch  # noqa: E402  the note above must not wait for it
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

from benchmarks.jobs.gasp_sums import digests  # noqa: E402
from faultrun import sdk  # noqa: E402

FEATURES, CLASSES, BATCH = 16, 4, 8
_MILESTONES = ("imported", "met", "created", "protected", "resumed")


class BrittleSGD(torch.optim.SGD):  # type: ignore[misc]  # torch is untyped here
    """SGD that may die between two parameters: one group each, updated one after another."""

    def __init__(self, net: nn.Module, death: Death) -> None:
        groups = [{"params": [parameter]} for parameter in net.parameters()]
        super().__init__(groups, lr=0.05, momentum=0.9, foreach=False)
        self.death, self.doing, self.updated = death, 0, 0

    def update(self, step: int) -> None:
        """``step()``, told which one it is."""
        self.doing, self.updated = step, 0
        self.step()

    def _init_group(self, group: Any, *lists: Any) -> Any:
        self.death.strike("update", self.doing, self.updated, len(self.param_groups))
        self.updated += 1
        return super()._init_group(group, *lists)


def main() -> None:
    options = common_options().parse_args()
    death = Death.parse(options.die, tell, *_MILESTONES)
    torch.set_num_threads(1)
    death.reached("imported")
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    death.reached("met")
    rank, workers = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(options.seed)
    net = nn.Sequential(
        nn.Linear(FEATURES, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.25), nn.Linear(32, CLASSES)
    )
    optimizer = BrittleSGD(net, death)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    torch.manual_seed(options.seed * 1000 + rank)
    death.reached("created")
    folder, objects = options.checkpoint_dir, {"scheduler": scheduler}
    guard = sdk.torch.protect(net, optimizer, directory=folder, objects=objects)
    death.reached("protected")
    guard.resume()
    tell("resumed", bits(guard.global_step, net, optimizer))
    death.reached("resumed")
    die_in_forward(net, death, guard)
    loader = create_loader(options.seed, workers)
    pause = threading.Event()
    for epoch in range(guard.epoch, options.steps // STEPS_AN_EPOCH):
        for images, labels in guard.batches(loader, epoch):
            step = guard.global_step + 1
            death.freeze(step)
            death.later("anytime", step)
            pause.wait(options.step_s)  # stands for the arithmetic of a larger model
            loss = nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            average(net, death, step, workers)
            optimizer.update(step)
            scheduler.step()
            guard.step()
            tell("step", bits(step, net, optimizer))
            save(guard, step, options, rank, death)
    tell("final", bits(guard.global_step, net, optimizer))
    # A thread of gloo may still drop its last message, which aborts an interpreter that is being torn down.
    sys.stdout.flush()
    os._exit(0)


def create_loader(seed: int, workers: int) -> "DataLoader[Any]":
    generator = torch.Generator().manual_seed(seed)
    count = STEPS_AN_EPOCH * BATCH * workers
    images = torch.randn(count, FEATURES, generator=generator)
    data = TensorDataset(images, torch.randint(0, CLASSES, (count,), generator=generator))
    return DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, seed=seed), drop_last=True)


def die_in_forward(net: nn.Sequential, death: Death, guard: Any) -> None:
    """Before or after the forward pass of any of the modules."""
    parts = 2 * len(net)
    for number, module in enumerate(net):
        module.register_forward_pre_hook(
            lambda *_, part=2 * number: death.strike("forward", guard.global_step + 1, part, parts)
        )
        module.register_forward_hook(
            lambda *_, part=2 * number + 1: death.strike("forward", guard.global_step + 1, part, parts)
        )


def average(net: nn.Module, death: Death, step: int, workers: int) -> None:
    """All-reduce each gradient; the victim dies while one of them is under way."""
    parameters = list(net.parameters())
    for number, parameter in enumerate(parameters):
        work = dist.all_reduce(parameter.grad, async_op=True)
        if death.due("all-reduce", step) and number == int(death.fraction * len(parameters)):
            threading.Event().wait(death.rest(len(parameters)) * 3e-4)
            death.now(f"all-reduce:{number}/{len(parameters)}")
        work.wait()
        parameter.grad /= workers


def save(guard: Any, step: int, options: argparse.Namespace, rank: int, death: Death) -> None:
    """The training's own checkpoint: every rank writes one."""
    if options.save_every and step % options.save_every == 0:
        death.in_save(step)
        guard.save(options.checkpoint_dir / f"rank_{rank}" / f"net-step_{step}.pt")
        if death.due("save", step):
            death.now("save:done")
        tell("saved", step)


def bits(step: int, net: nn.Module, optimizer: Any) -> str:
    """The step and both digests, as every note has them."""
    return " ".join((str(step), *digests(net.state_dict(), optimizer.state_dict())))


if __name__ == "__main__":
    main()
