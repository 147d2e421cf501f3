"""Lightning's Trainer on handwritten digits. One line is faultrun's: the callback."""

import os
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from digits import Digits, arguments, final_line, loaders, say
from lightning.pytorch.callbacks import ModelCheckpoint

from faultrun import sdk


class Report(lightning.Callback):  # type: ignore[misc]  # Lightning is not always there
    """Prints every step on rank 0."""

    loss = float("nan")

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s

    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, *_: Any) -> None:
        self.loss = float(outputs["loss"])
        if trainer.is_global_zero:
            say(f"step {trainer.global_step} loss {self.loss!r}")
        time.sleep(self.step_s)


def main() -> None:
    parser = arguments()
    parser.add_argument(
        "--ckpt_path", default="auto", help="a path, auto (the newest, as Lightning finds it), none"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    lightning.seed_everything(7, verbose=False)
    model = Digits()
    gasp, report = sdk.lightning.DyingGasp(options.output_dir), Report(options.step_s)
    saves = ModelCheckpoint(
        dirpath=Path(options.output_dir) / "periodic",
        filename="{step}",
        every_n_train_steps=options.save_every,
        save_top_k=-1,
        save_last=True,
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", options.devices)),
        strategy="ddp" if int(os.environ.get("WORLD_SIZE", options.devices)) > 1 else "auto",
        max_steps=options.steps,
        callbacks=[gasp, report, saves],
        val_check_interval=0.5,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=options.output_dir,
    )
    wanted = {"auto": "last", "none": None}.get(options.ckpt_path, options.ckpt_path)
    trainer.fit(model, *loaders(), ckpt_path=gasp.ckpt_path or wanted)
    if trainer.is_global_zero:
        say(final_line(trainer.global_step, report.loss, model))


if __name__ == "__main__":
    main()
    sdk.done()  # a framework that crashes while it is taken down must not cost what is complete
