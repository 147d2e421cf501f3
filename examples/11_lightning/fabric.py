"""The same digits in a Fabric loop. Three lines are faultrun's, for the loop is the script's own.

In the script's own checkpoints the guard is one entry more: it holds the place in the data, the scheduler
and the random numbers of every rank.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from digits import Digits, arguments, final_line, loaders, say

from faultrun import sdk


def main() -> None:
    parser = arguments()
    parser.add_argument("--resume", default="auto", help="a path, auto (the newest of output_dir), none")
    options = parser.parse_args()
    torch.set_num_threads(1)
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", options.devices))
    fabric = lightning.Fabric(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto")
    fabric.launch()
    fabric.seed_everything(7, verbose=False)
    module = Digits()
    configured = module.configure_optimizers()
    scheduler = configured["lr_scheduler"]["scheduler"]
    model, optimizer = fabric.setup(module, configured["optimizer"])
    train = fabric.setup_dataloaders(loaders()[0])
    torch.manual_seed(7 + fabric.global_rank)  # dropout of its own on every rank

    guard = sdk.lightning.protect(
        fabric, model, optimizer, directory=options.output_dir, objects={"scheduler": scheduler}
    )
    state = {"model": model, "optimizer": optimizer, "guard": guard}
    if guard.resume(load=lambda path: fabric.load(path, state)) is None and (path := chosen(options)):
        fabric.load(path, state)
    loss = float("nan")
    for epoch in range(guard.epoch, -(-options.steps // len(train))):
        for batch in guard.batches(train, epoch):
            if guard.global_step >= options.steps:
                break
            loss = train_on(fabric, model, optimizer, batch)
            scheduler.step()
            guard.step()
            if fabric.is_global_zero:
                say(f"step {guard.global_step} loss {loss!r}")
            if guard.global_step % options.save_every == 0:
                with sdk.phase("saving"):
                    fabric.save(Path(options.output_dir) / f"step={guard.global_step:06d}.ckpt", state)
            time.sleep(options.step_s)
    if fabric.is_global_zero:
        say(final_line(guard.global_step, loss, module))


def train_on(fabric: Any, model: Any, optimizer: Any, batch: Any) -> float:
    loss = model.training_step(batch)
    optimizer.zero_grad()
    fabric.backward(loss)
    optimizer.step()
    return float(loss)


def chosen(options: argparse.Namespace) -> Path | None:
    """What to load where faultrun has chosen nothing."""
    if options.resume != "auto":
        return None if options.resume == "none" else Path(options.resume)
    return max(Path(options.output_dir).glob("step=*.ckpt"), default=None)


if __name__ == "__main__":
    main()
    sdk.done()  # a framework that crashes while it is taken down must not cost what is complete
