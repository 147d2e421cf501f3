"""A tiny GPT-2 learns to write sums, with ``transformers.Trainer``: two lines are for faultrun.

Nothing is downloaded: the text is made here, a character is a token, the weights begin at random. The same
under ``python``, ``torchrun`` and ``faultrun``.
"""

import argparse
import os
import random
import time
import zlib
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from faultrun import sdk

LETTERS = "0123456789+=\n"
BLOCK = 32  # characters in an example


def main() -> None:
    options = read_options()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(LETTERS), n_positions=BLOCK, n_embd=32, n_layer=2, n_head=2,
            bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip
    gasp = sdk.transformers.DyingGasp()  # line 1: save when a peer dies or a stop is asked for
    printed = Printed(options.step_s)
    trainer = Trainer(model, arguments(options), train_dataset=sums(384), callbacks=[printed, gasp])
    trainer.train(
        resume_from_checkpoint=gasp.checkpoint or found(options)
    )  # line 2: go on from where faultrun says
    if trainer.is_world_process_zero():
        weights = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
        say(f"final step {trainer.state.global_step} loss {printed.loss!r} digest {zlib.crc32(weights):08x}")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", default="sums")
    parser.add_argument("--steps", type=int, default=60, help="updates in all")
    parser.add_argument(
        "--save_every", type=int, default=10, help="updates between Trainer's own checkpoints"
    )
    parser.add_argument(
        "--resume_from_checkpoint", default="auto", help="a folder, auto (the newest) or none"
    )
    parser.add_argument("--step_s", type=float, default=0.0, help="seconds to sleep after every update")
    return parser.parse_args()


def arguments(options: argparse.Namespace) -> TrainingArguments:
    return TrainingArguments(
        output_dir=options.output_dir,
        max_steps=options.steps,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        save_steps=options.save_every,
        save_total_limit=3,
        logging_steps=1,
        seed=7,
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
        report_to="none",
    )


def found(options: argparse.Namespace) -> str | None:
    """What a user of Trainer says: the newest checkpoint, a certain one, or none."""
    match options.resume_from_checkpoint:
        case "auto":
            newest: str | None = (
                get_last_checkpoint(options.output_dir) if Path(options.output_dir).is_dir() else None
            )
            return newest
        case "none":
            return None
        case path:
            return str(path)


def sums(count: int) -> list[dict[str, Any]]:
    """Blocks of a text such as 17+25=42."""
    chance = random.Random(7)
    pairs = ((chance.randrange(100), chance.randrange(100)) for _ in range(count * BLOCK // 4))
    text = "\n".join(f"{a}+{b}={a + b}" for a, b in pairs)
    tokens = torch.tensor([LETTERS.index(letter) for letter in text[: count * BLOCK]])
    return [{"input_ids": block, "labels": block} for block in tokens.reshape(count, BLOCK)]


class Printed(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Prints the loss of every step, and sleeps if it is told to."""

    def __init__(self, step_s: float) -> None:
        self.loss = float("nan")
        self._step_s = step_s

    def on_log(self, _args: Any, state: Any, _control: Any, logs: dict[str, Any], **_: Any) -> None:
        if "loss" in logs:
            self.loss = logs["loss"]
            if state.is_world_process_zero:
                say(f"step {state.global_step} loss {self.loss:.6f}")

    def on_step_end(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        time.sleep(self._step_s)


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # one write: the lines of two workers never mix


if __name__ == "__main__":
    main()
    sdk.done()  # whatever happens while the process is taken down, training is complete
