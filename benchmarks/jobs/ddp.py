"""A small DistributedDataParallel training that tells everything it does, and dies where it is told to.

Every batch follows from seed, step and rank alone, so that a training that
was interrupted must end with the same bits as one that was not. Nothing here
knows which launcher started it.
"""

import argparse
import hashlib
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jobs import options as jobs_options
from benchmarks.jobs.tell import BORN_S, Teller, forked_s, hear_sigterm, life

tell = Teller()
tell("forked", at_s=forked_s())
tell("running", at_s=BORN_S)
hear_sigterm(tell)

import torch  # noqa: E402  the signal must be heard while this takes its second
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

tell("imported")

FEATURES, CLASSES, BATCH = 64, 10, 32
_HOLD_ON_S = 60.0


@dataclass(kw_only=True)
class Training:
    """What a checkpoint brings back, and the wrapper that averages gradients."""

    net: nn.Module
    parallel: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    step: int = 0  # optimizer updates since the very first start


@dataclass(frozen=True, kw_only=True)
class Fault:
    """``when``: before the step, inside it (gradients are there, weights are not updated) or after it."""

    rank: int
    step: int
    when: str
    once: Path | None = None

    def strike(self, rank: int, step: int, when: str) -> None:
        """End this process without a word of goodbye, if it is its turn, in the first life only."""
        if life() > 0 or (rank, when) != (self.rank, self.when) or step < self.step:
            return
        if step == self.step if self.once is None else self.once.exists():
            tell("dying", step)
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    options = read_options()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tell("met")
    training = create(options.seed)
    tell("ready")
    resume(training, find_checkpoint(options))
    try:
        fit(training, options)
    except RuntimeError:
        if options.hold_on:
            threading.Event().wait(_HOLD_ON_S)
        raise
    tell("final", digest(training))
    dist.destroy_process_group()
    # A thread of gloo may still drop its last message, which aborts an interpreter that is being torn down.
    sys.stdout.flush()
    os._exit(0)


def read_options() -> argparse.Namespace:
    """``step_s`` is how long a step takes, about, ``pre_trained`` the checkpoint to go on from."""
    usual = {"steps": 45, "save_every": 10, "step_s": 0.02, "seed": 1, "pre_trained": ""}
    parser = jobs_options.options(**usual, checkpoint_dir=Path("checkpoints"))
    parser.add_argument("--config", type=Path, help="a YAML file whose pre_trained says the same")
    parser.add_argument("--find_newest", action="store_true", help="look for it in checkpoint_dir")
    parser.add_argument("--hold_on", action="store_true", help="when a collective breaks, wait to be told")
    parser.add_argument("--kill_once", type=Path, help="nobody dies before this file is there")
    parser.add_argument("--steps_after", type=int, help="in later lives, so many steps and no more")
    parser.add_argument("--kill", default="-1:0:never", help="RANK:STEP:before|inside|after")
    return parser.parse_args()


def find_checkpoint(options: argparse.Namespace) -> str:
    """The file named by argument or configuration; the newest, where the launcher knows nothing of it."""
    if options.config is not None:
        import yaml

        return str(yaml.safe_load(options.config.read_text(encoding="utf-8"))["pre_trained"] or "")
    if options.find_newest:
        return max(map(str, options.checkpoint_dir.glob("step-*.pt")), default="")
    return str(options.pre_trained)


def create(seed: int) -> Training:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    parallel = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05, momentum=0.9)
    return Training(net=net, parallel=parallel, optimizer=optimizer)


def resume(training: Training, path: str) -> None:
    if path:
        saved = torch.load(path, weights_only=True)
        training.net.load_state_dict(saved["model"])
        training.optimizer.load_state_dict(saved["optimizer"])
        training.step = saved["global_step"]
    tell("resumed", training.step)


def fit(training: Training, options: argparse.Namespace) -> None:
    rank = dist.get_rank()
    where, at_step, when = options.kill.split(":")
    fault = Fault(rank=int(where), step=int(at_step), when=when, once=options.kill_once)
    if options.steps_after is not None:
        options.steps = training.step + options.steps_after if life() > 0 else sys.maxsize
    pause = threading.Event()
    while training.step < options.steps:
        step = training.step + 1
        fault.strike(rank, step, "before")
        images, labels = batch(options.seed, step, rank)
        loss = nn.functional.cross_entropy(training.parallel(images), labels)
        training.optimizer.zero_grad()
        loss.backward()
        fault.strike(rank, step, "inside")
        training.optimizer.step()
        training.step = step
        tell("step", step)
        print(f"step {step} loss {loss.item():.6f}", flush=True)
        fault.strike(rank, step, "after")
        if rank == 0 and step % options.save_every == 0:
            save(training, options.checkpoint_dir)
        pause.wait(options.step_s)  # stands for the arithmetic of a model that is worth restarting


def batch(seed: int, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images and labels: the same whenever this step is done, by whichever life."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step * 1009 + rank)
    images = torch.randn(BATCH, FEATURES, generator=generator)
    return images, torch.randint(0, CLASSES, (BATCH,), generator=generator)


def save(training: Training, folder: Path) -> None:
    """One file for all ranks; it has its name only when it is whole on the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{training.step:06d}.pt"
    partial = path.with_suffix(".pt.tmp")
    state = {
        "model": training.net.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "global_step": training.step,
    }
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    tell("saved", training.step)


def digest(training: Training) -> str:
    """Every bit of the weights and of the optimizer's momentum."""
    hashed = hashlib.sha256()
    for parameter in training.net.parameters():
        hashed.update(parameter.detach().numpy().tobytes())
        hashed.update(training.optimizer.state[parameter]["momentum_buffer"].numpy().tobytes())
    return hashed.hexdigest()


if __name__ == "__main__":
    main()
