"""``everything_exact.py CODE GUARD FOLDER STEP_S``: survivors stay in it, and every bit can be compared.

CODE is ``exact-ddp`` (with batch norm) or ``exact-fsdp``. A rank tells each step with a digest of all that it
has then and its loss; it can be ended at many places of a step, and of the repair that follows a death.
GUARD ``alone``: nobody launched it, and it is the truth for the others.
"""

import hashlib
import os
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.jobs.everything_notes import Notes, drop_old, newest_whole
from benchmarks.jobs.times import Times

CODE, GUARD, FOLDER, STEP_S = sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])
NOTES = Notes(FOLDER)
PARKS = os.environ.get("FAULTRUN_REJOIN") == "1"
"""Whether this process waits for a place among survivors before it is anybody."""

if not PARKS:
    NOTES.born(child=GUARD != "alone")

import torch  # noqa: E402  who starts is seen before this takes its second
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from faultrun import sdk  # noqa: E402
from faultrun.sdk.torch.state.shards import local_of, packed  # noqa: E402
from faultrun.sdk.torch.state.trees import map_tensors  # noqa: E402
from faultrun.sdk.worker.worker import worker  # noqa: E402

SHARDED = CODE == "exact-fsdp"
CKPT, OWN = FOLDER / "ckpt", FOLDER / "ckpt" / f"periodic_{NOTES.rank}"
WIDTH, BATCH, SAVE_EVERY, KEEP = 64, 8, 20, 4
_FOR_EVER = 1 << 40
_STANDS_S = 0.03
"""At the end: so that others find it there."""


class Job:
    """One rank."""

    def __init__(self, net: nn.Sequential, model: Any) -> None:
        self.model, self.net = model, net
        self.optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=200)
        middle = net[len(net) // 2]
        middle.register_forward_pre_hook(lambda *_: at("forward"))
        middle.register_forward_hook(self._watch)
        self.guard = sdk.torch.protect(
            model,
            self.optimizer,
            directory=CKPT,
            objects={"scheduler": self.scheduler},
            snapshot_every=1,  # no finished step may be lost
        )
        # behind those of the guard: what they do has been done
        self.optimizer.register_step_pre_hook(lambda *_: at("update"))
        self.optimizer.register_step_post_hook(lambda *_: at("updated"))
        self._worker = worker()
        self._told_of = -1
        if self._worker is not None:
            self._worker.regroup.times = Times(self.repairs)

    def train(self) -> None:
        """All steps."""
        there = newest_whole(CKPT, NOTES.world if SHARDED else 1) if not PARKS else -1
        self.guard.resume()
        if not PARKS:
            NOTES.begins(self.guard.global_step, there)
            self._told_of = NOTES.life
        for step in self.guard.steps(_FOR_EVER):
            self._arrives(step - 1)
            at("loader")
            with self.guard.attempt() as attempt:
                loss = self.one(step)
            at("after")
            if not attempt.done:
                continue
            NOTES.note("step", step, f"{self.digest(loss)} {loss.item()!r}")
            if step % SAVE_EVERY == 0 and (SHARDED or step // SAVE_EVERY % NOTES.world == NOTES.rank):
                at("saving")
                saved = self.guard.save(OWN / f"step-{step}.pt")
                NOTES.note("saved", step, str(saved.path))
                drop_old(OWN, KEEP)
            if NOTES.ends_at(step):
                at("ends")
                time.sleep(_STANDS_S)
                return

    def one(self, step: int) -> torch.Tensor:
        """What an attempt is around; the mean of the losses."""
        at("begin")
        loss = cross_entropy(self.model(inputs(step)), labels(step))
        loss.backward()
        at("collective")
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        time.sleep(STEP_S)
        at("end")
        return mean

    def repairs(self, place: str, _at_s: float) -> None:
        """In the main thread, or in the SDK's own."""
        if place == "join" and PARKS and not NOTES.is_born:
            NOTES.life = self._incarnation
            NOTES.born()
        at(place)

    def digest(self, loss: torch.Tensor) -> str:
        """Of parameters, buffers, optimizer, schedule, random numbers and the loss."""
        found = hashlib.blake2b(digest_size=8)
        for tensor in tensors([self.net.state_dict(), packed(self.optimizer.state_dict()), loss]):
            found.update(tensor.contiguous().view(-1).view(torch.uint8).numpy())
        found.update(repr(self.scheduler.state_dict()).encode())
        found.update(torch.get_rng_state().numpy())
        return found.hexdigest()

    @property
    def _incarnation(self) -> int:
        return NOTES.life if self._worker is None else self._worker.session.incarnation

    def _arrives(self, step: int) -> None:
        """In an incarnation that others have begun, or were kept for."""
        if self._incarnation != self._told_of:
            self._told_of = self._incarnation
            NOTES.moves(self._told_of)
            NOTES.note("begin", step, NOTES.everyone)

    def _watch(self, _module: Any, _inputs: Any, output: Any) -> None:
        if output.requires_grad:
            output.register_hook(lambda _: at("backward"))


def at(place: str) -> None:
    """This rank is there, and ends there if that is asked for."""
    if NOTES.is_born:
        NOTES.at(place)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    if Path("/sys/class/net/eth0").exists():
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    sdk.torch.init_process_group("gloo", timeout=timedelta(seconds=120))
    net = build()
    job = Job(net, wrapped(net))
    torch.manual_seed(100 + NOTES.rank)
    job.train()
    sdk.done()
    os._exit(0)  # a thread of gloo may abort an interpreter that is being torn down


def build() -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(4):
        norm = [] if SHARDED else [nn.BatchNorm1d(WIDTH)]
        layers += [nn.Linear(WIDTH, WIDTH), *norm, nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def wrapped(net: nn.Sequential) -> Any:
    if not SHARDED:
        return DistributedDataParallel(net, bucket_cap_mb=0.02)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # As one group: where modules within the model are sharded, survivors do not stay.
    fully_shard(net, mesh=init_device_mesh("cpu", (NOTES.world,)))
    return net


def inputs(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step * 1009 + NOTES.rank)
    return torch.randn(BATCH, WIDTH, generator=generator)


def labels(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step * 1013 + NOTES.rank)
    return torch.randint(0, 10, (BATCH,), generator=generator)


def tensors(state: Any) -> Iterator[torch.Tensor]:
    found: list[Any] = []
    map_tensors(packed(state), lambda one: found.append(local_of(one.detach())))
    yield from found


if __name__ == "__main__":
    main()
