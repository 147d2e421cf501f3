"""``everything_torch.py CODE GUARD FOLDER STEP_S [--pre_trained=FILE]``: every bit of it is known.

CODE is ``ddp`` or ``fsdp``; GUARD ``sdk``, or ``bare`` (it is given its checkpoint). Each rank tells its
steps.
"""

import os
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.jobs.everything_notes import INSIDE, Notes, drop_old, handed, newest_whole

CODE, GUARD, FOLDER, STEP_S = sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])
NOTES = Notes(FOLDER)
PARKS = os.environ.get("FAULTRUN_REJOIN") == "1"
"""Whether this process waits for a place among survivors before it is anybody."""

if not PARKS:
    NOTES.born()
    NOTES.at("startup")

import torch  # noqa: E402  who starts is seen before this takes its second
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

from benchmarks.jobs import everything_numbers as numbers  # noqa: E402
from benchmarks.jobs.times import Times  # noqa: E402
from faultrun import sdk  # noqa: E402
from faultrun.sdk.torch.group.process_group import training_group  # noqa: E402
from faultrun.sdk.torch.state.shards import local_of  # noqa: E402
from faultrun.sdk.worker.worker import worker  # noqa: E402

CKPT = FOLDER / "ckpt"
SAVE_EVERY, KEEP, EPOCHS = 20, 4, 1 << 30
PATIENCE = timedelta(seconds=300)
FULL = int(os.environ.get("FAULTRUN_WORLD_SIZE_FULL") or NOTES.world)


class Net(nn.Module):  # type: ignore[misc]
    """Layers beside each other."""

    def __init__(self) -> None:
        super().__init__()
        one = (nn.Linear(numbers.COLUMNS, numbers.ROWS, bias=False) for _ in range(numbers.LAYERS))
        self.layers = nn.ModuleList(layer.double() for layer in one)
        for layer in self.layers:
            nn.init.zeros_(layer.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """All outputs."""
        return torch.cat([layer(inputs) for layer in self.layers], dim=1)


class Samples(Dataset):  # type: ignore[misc]
    """Each is its own number."""

    def __len__(self) -> int:
        return numbers.STEPS_AN_EPOCH * numbers.BATCH * FULL

    def __getitem__(self, at: int) -> int:
        return at


class Job:
    """One rank."""

    def __init__(self) -> None:
        self.net = Net()
        self.model = wrapped(self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1.0, momentum=numbers.MOMENTUM)
        self.loss = 0.0
        self.seen: list[int] = []
        self.ended = False
        """Of this step, as far as it has come; whether that is to its end."""

    def backward(self, samples: list[int], epoch: int, weight: float = 1.0) -> None:
        """What this rank contributes."""
        outputs = self.model(torch.from_numpy(numbers.inputs(samples)))
        wanted = torch.from_numpy(numbers.factors(samples, epoch))
        loss = (outputs * wanted).sum() / len(samples) * weight
        loss.backward()
        self.loss += loss.item()
        self.seen += samples if weight else []

    def starts(self) -> None:
        """A step begins, or begins again."""
        self.optimizer.zero_grad()
        self.loss, self.seen, self.ended = 0.0, [], False

    def told(self, step: int, *, ended: bool = True) -> None:
        """It is done, by this rank or (not ``ended``) by others alone."""
        if not ended:
            NOTES.note("taken", step)
            return
        weights = [local_of(layer.weight.detach()).numpy() for layer in self.net.layers]
        states = [self.optimizer.state[layer.weight] for layer in self.net.layers]
        momentum = [local_of(one["momentum_buffer"]).numpy() for one in states]
        total = sum(float(abs(one).sum()) for one in weights)
        seen = " ".join(map(str, sorted(self.seen)))
        loss = self.loss * FULL / NOTES.world  # whose sum over ranks is one for any number of them
        NOTES.note("step", step, f"{numbers.digest(weights, momentum)} {loss!r} {total!r} {seen}")
        print(f"step {step} loss {self.loss}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    if Path("/sys/class/net/eth0").exists():
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    init = sdk.torch.init_process_group if GUARD == "sdk" else dist.init_process_group
    init("gloo", timeout=PATIENCE)
    job = Job()
    (guarded if GUARD == "sdk" else by_hand)(job)
    if GUARD == "sdk":
        sdk.done()
    os._exit(0)  # a thread of gloo may abort an interpreter that is being torn down


def wrapped(net: Net) -> Any:
    if CODE == "ddp":
        return DistributedDataParallel(net)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # As one group: where modules within the model are sharded, survivors do not stay.
    fully_shard(net, mesh=init_device_mesh("cpu", (NOTES.world,)))
    return net


def guarded(job: Job) -> None:
    """With the SDK: it is asked to save, and stays where it can."""
    parts = NOTES.world if CODE == "fsdp" else 1
    guard = sdk.torch.protect(job.model, job.optimizer, directory=CKPT)
    there = newest_whole(CKPT, parts) if not PARKS else -1
    guard.resume()
    if (this := worker()) is not None:
        this.regroup.times = Times(repairs)
    sampler = DistributedSampler(Samples(), NOTES.world, NOTES.rank, shuffle=False)
    loader: Any = DataLoader(Samples(), numbers.BATCH, sampler=sampler)
    if not PARKS:
        NOTES.begins(guard.global_step, there)
    for step in steps(job, guard, loader):
        job.told(step, ended=job.ended)
        NOTES.at("step")
        if step % SAVE_EVERY == 0 and (CODE == "fsdp" or guard.leads):
            NOTES.at("save")
            own = CKPT / f"periodic_{NOTES.rank}"
            saved = guard.save(own / f"step-{step}.pt")
            NOTES.note("saved", step, str(saved.path))
            NOTES.at("saved", str(saved.path))
            drop_old(own, KEEP)
        if NOTES.ends_at(step):
            return


def steps(job: Job, guard: Any, loader: Any) -> Iterator[int]:
    """Each step that was done, and not taken back."""
    this, first = worker(), True
    for epoch in range(guard.epoch, EPOCHS):
        for samples in guard.batches(loader, epoch):
            if this is not None and (this.session.incarnation != NOTES.life or not NOTES.is_born):
                arrives(this.session.incarnation, guard.global_step)
                job.starts()
            step, more = guard.global_step + 1, guard.accumulating
            if first:
                NOTES.at("compile")
            with guard.attempt():
                time.sleep(STEP_S)
                job.backward(samples.tolist(), epoch, guard.weight)
                NOTES.at(INSIDE)
                if not more:
                    job.optimizer.step()
                    job.ended = True
            first = False
            if more and guard.accumulating:  # else all parts of the step come again
                continue
            if guard.global_step == step:
                yield step
            job.starts()


def arrives(life: int, step: int) -> None:
    """In an incarnation that others have begun, or were kept for."""
    comes(life)
    NOTES.moves(life)
    group = training_group()
    members = range(NOTES.world) if group is None else group.places.members
    NOTES.note("begin", step, " ".join(map(str, members)))


def comes(life: int) -> None:
    """A newcomer is somebody from now on."""
    if PARKS and not NOTES.is_born:
        NOTES.life = life
        NOTES.born()


def repairs(place: str, _at_s: float) -> None:
    """In the main thread, or in the SDK's own."""
    if place == "join" and (this := worker()) is not None:
        comes(this.session.incarnation)
    if NOTES.is_born:
        NOTES.at(place)


def by_hand(job: Job) -> None:
    """Without the SDK."""
    parts = 1
    there = newest_whole(CKPT, parts)
    path = handed()
    step = load(job, path) if path else 0
    NOTES.begins(step, there)
    NOTES.at("compile")
    while not NOTES.ends_at(step):
        step += 1
        time.sleep(STEP_S)
        job.starts()
        job.backward(numbers.samples_of(step, NOTES.rank, NOTES.world), numbers.epoch_of(step))
        NOTES.at(INSIDE)
        job.optimizer.step()
        job.told(step)
        NOTES.at("step")
        if step % SAVE_EVERY == 0 and (CODE == "fsdp" or NOTES.rank == 0):
            NOTES.at("save")
            saved = save(job, step)
            NOTES.note("saved", step, str(saved))
            NOTES.at("saved", str(saved))


def state_of(job: Job) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optimizer = get_state_dict(job.model, job.optimizer)
    return {"model": model, "optimizer": optimizer, "global_step": 0}


def save(job: Job, step: int) -> Path:
    """A file of rank 0, or a folder of all."""
    if CODE == "fsdp":
        import torch.distributed.checkpoint as dcp

        folder = CKPT / f"step-{step}"
        if NOTES.rank == 0:
            (folder / ".metadata").unlink(missing_ok=True)
        writer = dcp.FileSystemWriter(folder, overwrite=True)
        dcp.save({**state_of(job), "global_step": step}, storage_writer=writer)
        return folder
    CKPT.mkdir(exist_ok=True)
    path = CKPT / f"step-{step}.pt"
    partial = path.with_suffix(".tmp")
    state = {"model": job.net.state_dict(), "optimizer": job.optimizer.state_dict(), "global_step": step}
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    drop_old(CKPT, KEEP)
    return path


def load(job: Job, path: str) -> int:
    if CODE == "fsdp":
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import set_state_dict

        state = state_of(job)
        dcp.load(state, checkpoint_id=path)
        one, other = state["model"], state["optimizer"]
        set_state_dict(job.model, job.optimizer, model_state_dict=one, optim_state_dict=other)
        return int(state["global_step"])
    saved = torch.load(path, weights_only=True)
    job.net.load_state_dict(saved["model"])
    job.optimizer.load_state_dict(saved["optimizer"])
    return int(saved["global_step"])


if __name__ == "__main__":
    main()
