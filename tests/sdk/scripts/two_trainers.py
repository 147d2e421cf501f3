"""A short training and a longer one of the same model, in one script. ``--kill``: STAGE@STEP of each life."""

import argparse
import os
import time
import zlib
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from faultrun import sdk

parser = argparse.ArgumentParser()
parser.add_argument("--kill", default="")
KILL = dict(enumerate(parser.parse_args().kill.split(",")))
LIFE = int(os.environ.get("FAULTRUN_INCARNATION", "0"))
RANK = int(os.environ["RANK"])


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        out = self.layers(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


class Kills(TrainerCallback):  # type: ignore[misc]
    def __init__(self, stage: str) -> None:
        self._stage = stage

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_others: Any) -> None:
        time.sleep(0.02)
        if KILL.get(LIFE) == f"{self._stage}@{state.global_step}" and RANK == 1:
            os.kill(os.getpid(), 9)


def stage(name: str, model: Any, factor: float, steps: int) -> None:
    numbers = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    data = [{"x": one, "labels": one.sum()[None] * factor} for one in numbers]
    gasp = sdk.transformers.DyingGasp()
    args = TrainingArguments(
        output_dir=f"out/{name}",
        max_steps=steps,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        save_steps=5,
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        seed=3,
    )
    trainer = Trainer(model, args, train_dataset=data, callbacks=[gasp, Kills(name)])
    begins_at = gasp.checkpoint
    trainer.train(resume_from_checkpoint=begins_at)
    digest = zlib.crc32(b"".join(one.detach().numpy().tobytes() for one in model.parameters()))
    if RANK == 0:
        print(f"stage {name} from {begins_at} digest {digest:08x}", flush=True)  # noqa: T201


torch.set_num_threads(1)
torch.manual_seed(3)
NET = Net()
stage("pretrain", NET, 1.0, 12)
stage("finetune", NET, 2.0, 24)
sdk.done()
