"""The training of ``ddp.py`` under the SDK, whose survivors stay where the launcher can keep them.

Everybody runs this very script. Beside its steps it tells what a rejoin has come to, by the SDK's own times.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.jobs.ddp import batch, create, find_checkpoint, read_options, tell
from benchmarks.jobs.tell import life, rank
from benchmarks.jobs.times import Times
from faultrun import sdk
from faultrun.sdk.worker.worker import worker


def begin() -> tuple[Any, Any, Any]:
    """Meet, protect and resume: the options, the training and its guard."""
    options = read_options()
    torch.set_num_threads(1)
    sdk.torch.init_process_group("gloo")
    tell("met")
    training = create(options.seed)
    guard = sdk.torch.protect(training.parallel, training.optimizer, directory=options.checkpoint_dir)
    tell("ready")
    this = worker()
    if this is not None:
        this.regroup.times = Times(lambda name, at_s: tell(name, at_s=at_s))
    newest = find_checkpoint(options)
    if guard.resume() is None and newest:
        guard.load(torch.load(newest, weights_only=True))
    return options, training, guard


def main() -> None:
    options, training, guard = begin()
    pause = threading.Event()
    for step in guard.steps(options.steps):
        strike(options.kill, options.kill_once, step)
        with guard.attempt():
            images, labels = batch(options.seed, step, rank())
            loss = nn.functional.cross_entropy(training.parallel(images), labels)
            training.optimizer.zero_grad()
            loss.backward()
            training.optimizer.step()
        if guard.global_step >= step:  # else it comes again
            tell("step", step)
            if rank() == 0 and step % options.save_every == 0:
                guard.save(options.checkpoint_dir / f"step-{step:06d}.pt")
        pause.wait(options.step_s)
    sys.stdout.flush()
    os._exit(0)


def strike(kill: str, once: Path, step: int) -> None:
    """End this process if it is its turn, and it is the first that has this rank."""
    victim, from_step, _ = kill.split(":")
    first = life() == 0 and os.environ.get("FAULTRUN_REJOIN") != "1"
    if first and rank() == int(victim) and step >= int(from_step) and once.exists():
        tell("dying", step)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
