"""Two models of one accelerator, each with an optimizer and a scheduler of its own, trained side by side.

The words: the number of epochs and, done only once, ``kill-RANK-STEP-PHASE``. What each rank ends with, to
the bit, is written to ``$OUT/final_<rank>``.
"""

import os
import random
import signal
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from faultrun import sdk
from faultrun.sdk.accelerate import protect
from faultrun.sdk.torch.state.packing import pack

EPOCHS, *WORDS = sys.argv[1:]
OUT, RANK = Path(os.environ["OUT"]), int(os.environ["RANK"])


def at(step: int, phase: str) -> None:
    struck = OUT / f"struck_{RANK}_{step}_{phase}"
    if f"kill-{RANK}-{step}-{phase}" in WORDS and not struck.exists():
        struck.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def build(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, 8), nn.LayerNorm(8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, outputs)
    )


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.randn(96, 4))
    loader: Any = DataLoader(data, batch_size=4, shuffle=True)
    models = [build(4, 2), build(2, 4)]
    kinds = torch.optim.Adam, torch.optim.AdamW
    optimizers: list[Any] = [kind(one.parameters(), lr=0.01) for kind, one in zip(kinds, models, strict=True)]
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(one, 0.98) for one in optimizers]
    encoder, decoder, first, second, *others = accelerator.prepare(*models, *optimizers, *schedulers, loader)
    *schedules, batches = others
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(RANK)
    guard = protect(accelerator, directory=Path(os.environ["CKPT"]))
    guard.resume()
    for epoch in range(guard.epoch, int(EPOCHS)):
        for (x,) in guard.batches(batches, epoch):
            step = guard.global_step + 1
            at(step, "begin")
            noise = 0.1 * torch.randn(x.shape) * random.random() * np.random.rand()
            loss = mse_loss(decoder(encoder(x + noise)), x)
            first.zero_grad()
            second.zero_grad()
            accelerator.backward(loss)
            at(step, "backward")
            first.step()
            second.step()
            for one in schedules:
                one.step()
            guard.step()
            at(step, "end")
    states = [one.state_dict() for one in (encoder, decoder, first, second, *schedules)]
    packed = pack([states, random.random(), np.random.rand(), torch.rand(1)])
    ended = [zlib.crc32(bytes(one)) for one in (packed.plan, *packed.parts())]
    (OUT / f"final_{RANK}").write_text(f"{guard.global_step} {ended}")
    sdk.done()


if __name__ == "__main__":
    main()
