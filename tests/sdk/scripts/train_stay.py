# ruff: noqa: T201 - what a worker prints goes to its log
"""Training on the CPU whose survivors stay when a rank dies, and that can be compared bit for bit.

The words on the command line are the number of steps, ``ddp``, ``fsdp``, ``hsdp`` or ``hand``, and what else:
``bn``, ``loader``, ``workers``, ``epochs`` (each has inputs of its own, and a step of the scheduler),
``compile``, ``critic`` (from step 4 on a second model is trained before the first, and judges that),
``function``, ``evaluates`` (as each step begins), ``own``, ``gate``, ``waits-STEP`` (for ``go_on``),
``every-STEPS`` (snapshots), ``unlike``, ``grows-RANK`` (its state, beyond its memory), ``subgroup`` (of rank
0 alone), ``leaves`` (the group, within the function), ``besides-STEP`` (a process group more), ``again``
(another training after it), ``copies`` (no third step before the next node takes them in) and, done only
once, ``kill-RANK-STEP-PHASE``, ``hang-RANK-STEP-PHASE`` and ``bad-RANK-STEP-PHASE``: numbers that nobody
wrote, and a MemoryFault that tells where; ``lost-RANK-STEP-PHASE`` and ``poison-RANK-STEP-PHASE``: a page
that is not there, or given up by the kernel.
"""

import ctypes
import mmap
import os
import signal
import sys
import time
import zlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from faultrun import sdk
from faultrun.sdk.torch.state.shards import local_of, packed
from faultrun.sdk.torch.state.trees import map_tensors
from faultrun.sdk.worker.worker import worker

STEPS, MODE, *WORDS = sys.argv[1:]
LAST = int(STEPS)
OUT = Path(os.environ["OUT"])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WIDTH = 64
PER_EPOCH = 10
EVERY: Any = next((int(word.split("-")[1]) for word in WORDS if word.startswith("every-")), "auto")
if "unlike" in WORDS:
    EVERY = RANK
_MADV_HWPOISON = 100
CRITIC_FROM = 4
GATE = 3
"""After it every rank has said that it can rejoin."""


class Numbers(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return PER_EPOCH

    def __getitem__(self, at: int) -> Any:
        return data(at)


class Notes:
    """They become more from one step to the next."""

    def __init__(self) -> None:
        self.text = ""

    def state_dict(self) -> dict[str, str]:
        self.text += "x" * 20000
        return {"text": self.text}

    def load_state_dict(self, state: dict[str, str]) -> None:
        self.text = state["text"]


def data(at: int) -> Any:
    generator = torch.Generator().manual_seed(at * 1000 + RANK)
    return torch.randn(8, WIDTH, generator=generator), torch.randint(0, 10, (8,), generator=generator)


def build() -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(4):
        norm = [nn.BatchNorm1d(WIDTH)] if "bn" in WORDS else []
        layers += [nn.Linear(WIDTH, WIDTH), *norm, nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def judge() -> Any:
    """The second model, alike on all ranks and in several buckets, and its optimizer."""
    layers = (nn.Linear(10, 10), nn.Linear(10, 10), nn.Linear(10, 10), nn.Dropout(0.1), nn.Linear(10, 1))
    critic = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.0005)
    return critic, torch.optim.Adam(critic.parameters(), lr=0.01)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    sdk.torch.init_process_group("gloo", timeout=timedelta(seconds=60))
    if "subgroup" in WORDS:
        dist.new_group([0])
    net = build()
    model: Any = net
    if "compile" in WORDS:
        model = torch.compile(net)
    if MODE == "ddp":
        # several buckets; the compiler, which cuts at their limits, takes none below a MiB
        model = DistributedDataParallel(model, bucket_cap_mb=None if "compile" in WORDS else 0.02)
    if MODE in ("fsdp", "hsdp"):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        sizes = (WORLD,) if MODE == "fsdp" else (2, WORLD // 2)
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("replicas", "shards")[-len(sizes) :])
        for layer in net:
            if isinstance(layer, nn.Linear) and "nested" in WORDS:
                fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    torch.manual_seed(100 + RANK)
    folder = sdk.Folder(directory=Path(os.environ["CKPT"]), replica_group=(RANK,) if "own" in WORDS else ())
    objects = {"scheduler": scheduler, **({"notes": Notes()} if f"grows-{RANK}" in WORDS else {})}
    critic = judge() if "critic" in WORDS else ()
    protected = nn.ModuleList([net, critic[0]]) if critic else model
    both = optimizer, *critic[1:]
    guard = sdk.torch.protect(protected, *both, directory=folder, objects=objects, snapshot_every=EVERY)
    guard.resume()
    job = Job(guard, model, net, optimizer, scheduler)
    job.critic = critic
    if "function" in WORDS:
        guard.run(job.by_itself)
    elif "loader" in WORDS:
        job.with_loader()
    else:
        job.with_steps()
    if "again" in WORDS:
        train_another()
    job.ends()
    print("done", flush=True)
    sdk.done()
    os._exit(0)


def train_another() -> None:
    torch.manual_seed(9)
    net = nn.Linear(WIDTH, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    guard = sdk.torch.protect(net, optimizer, directory=Path(os.environ["CKPT"]))
    for step in guard.steps(4):
        with guard.attempt():
            inputs, labels = data(step)
            cross_entropy(net(inputs), labels).backward()
            for one in net.parameters():
                dist.all_reduce(one.grad)
            optimizer.step()
            optimizer.zero_grad()


class Job:
    def __init__(self, guard: Any, model: Any, net: Any, optimizer: Any, scheduler: Any) -> None:
        self.guard, self.model, self.net = guard, model, net
        self.optimizer, self.scheduler = optimizer, scheduler
        self.step = 0
        self.critic: Any = ()
        if "compile" not in WORDS:  # it would compile a step number in, and give up after eight of them
            net[len(net) // 2].register_forward_pre_hook(lambda *_: self.at("forward"))
            net[len(net) // 2].register_forward_hook(self.watch)
        optimizer.register_step_pre_hook(lambda *_: self.at("update"))
        optimizer.register_step_post_hook(lambda *_: self.at("updated"))

    def watch(self, _module: Any, _inputs: Any, output: Any) -> None:
        if output.requires_grad:
            output.register_hook(lambda _: self.at("backward"))

    def at(self, phase: str) -> None:
        if f"raise-{RANK}-{self.step}-{phase}" in WORDS:
            raise RuntimeError("my own mistake")
        struck = OUT / f"struck_{RANK}_{self.step}_{phase}"
        if f"bad-{RANK}-{self.step}-{phase}" in WORDS and not struck.exists():
            struck.touch()
            weight = local_of(self.net[-1].weight.detach())
            weight.fill_(float("nan"))
            raise sdk.MemoryFault([self.net[-1].weight])
        if f"lost-{RANK}-{self.step}-{phase}" in WORDS and not struck.exists():
            struck.touch()
            touch_memory_without_a_page()
        if f"poison-{RANK}-{self.step}-{phase}" in WORDS and not struck.exists():
            struck.touch()
            poison(self.net[0].weight.detach())
            self.net[0].weight.detach().sum()  # SIGBUS
        if f"hang-{RANK}-{self.step}-{phase}" in WORDS and not struck.exists():
            struck.touch()
            time.sleep(3600)
        if f"kill-{RANK}-{self.step}-{phase}" in WORDS and not struck.exists():
            struck.touch()
            (OUT / f"killed_{RANK}").write_text(repr(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)

    def one(self, inputs: Any, labels: Any) -> None:
        self.at("begin")
        if "evaluates" in WORDS:
            with torch.no_grad():
                seen = self.model.eval()(inputs)
            self.at("evaluated")
            dist.all_reduce(seen)
            self.model.train()
        output = self.model(inputs)
        loss = cross_entropy(output, labels)
        if self.critic and self.step >= CRITIC_FROM:
            critic, optimizer = self.critic
            optimizer.zero_grad()
            (critic(output.detach()) - 1).square().mean().backward()
            self.at("judged")
            optimizer.step()
            self.at("between")
            loss = loss + critic(output).mean()
        loss.backward()
        self.at("reduced")
        if MODE == "hand":
            for parameter in self.net.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= WORLD
        self.optimizer.step()
        if "epochs" not in WORDS:
            self.scheduler.step()
        self.optimizer.zero_grad()
        self.at("end")

    def with_steps(self) -> None:
        for step in self.guard.steps(LAST):
            self.step = step
            if f"besides-{step}" in WORDS:
                dist.new_group()
            with self.guard.attempt() as attempt:
                self.one(*data(step))
            self.at("after")
            self.note()
            self.stands(self.step if attempt.done else self.step - 1)

    def with_loader(self) -> None:
        workers = 2 if "workers" in WORDS else 0
        loader = DataLoader(Numbers(), batch_size=None, shuffle=True, num_workers=workers)
        for epoch in range(self.guard.epoch, LAST // PER_EPOCH):
            for inputs, labels in self.guard.batches(loader, epoch):
                self.step = self.guard.global_step + 1
                fed = inputs * (1 + epoch / 8) if "epochs" in WORDS else inputs
                if "function" in WORDS:
                    self.one(fed, labels)
                    self.guard.step()
                else:
                    with self.guard.attempt():
                        self.one(fed, labels)
                self.at("after")
                self.note()
            if "epochs" in WORDS:
                self.scheduler.step()

    def by_itself(self, guard: Any) -> None:
        if "loader" in WORDS:
            self.with_loader()
            return
        for step in range(guard.global_step + 1, LAST + 1):
            self.step = step
            self.one(*data(step))
            guard.step()
            self.note()
        if "leaves" in WORDS:
            dist.destroy_process_group()

    def note(self) -> None:
        if "gate" in WORDS and self.step == GATE:
            os.close(os.open(OUT / "gate", os.O_RDONLY))  # a FIFO: until somebody opens its other end
        while f"waits-{self.step}" in WORDS and not (OUT / "go_on").exists():
            time.sleep(0.002)
        if "copies" in WORDS and self.step == GATE:
            this = worker()
            while this is not None and this.regroup.copies_at is None:
                time.sleep(0.002)
        if self.guard.global_step >= self.step:  # else it was taken back
            with (OUT / f"steps_{RANK}").open("a") as file:
                file.write(f"{self.step} {os.getpid()} {digest(self.net, self.optimizer)}\n")

    def stands(self, step: int) -> None:
        """Write down what there is behind a step, one that was taken back too."""
        with (OUT / f"stands_{RANK}").open("a") as file:
            file.write(f"{step} {self.guard.global_step} {self.state()}\n")

    def ends(self) -> None:
        (OUT / f"final_{RANK}").write_text(f"{self.state()}\n")

    def state(self) -> str:
        """Checksums of parameters and optimizer, and of the random numbers."""
        random = zlib.crc32(torch.get_rng_state().numpy().tobytes())
        critic = f"{digest(*self.critic)} " if self.critic else ""
        return f"{digest(self.net, self.optimizer)} {critic}{random}"


def touch_memory_without_a_page() -> None:
    """SIGBUS, as where the kernel has given a page up."""
    with (OUT / f"cut_{RANK}").open("w+b") as file:
        file.truncate(mmap.PAGESIZE)
        memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        file.truncate(0)
    memory[0]


def poison(tensor: Any) -> None:
    """Have the kernel take the first whole page of ``tensor`` for broken. OSError: it does not do that."""
    page = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.madvise(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), _MADV_HWPOISON):
        raise OSError(ctypes.get_errno(), "madvise(MADV_HWPOISON)")


def digest(net: Any, optimizer: Any) -> str:
    crc = 0
    for tensor in tensors([net.state_dict(), packed(optimizer.state_dict())]):
        crc = zlib.crc32(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes(), crc)
    return f"{crc:08x}"


def tensors(state: Any) -> Iterator[Any]:
    found: list[Any] = []
    map_tensors(packed(state), lambda one: found.append(local_of(one.detach())))
    yield from found


if __name__ == "__main__":
    main()
