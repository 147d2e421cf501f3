"""Handwritten digits as a LightningModule, for the Trainer (train.py) and for a Fabric loop (fabric.py)."""

import argparse
import zlib
from typing import Any

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRAIN_IMAGES = 1280  # of 1797; the rest is held out
BATCH = 32


class Digits(lightning.LightningModule):  # type: ignore[misc]  # Lightning is not always there
    """A small network with dropout: each rank draws numbers of its own at every step."""

    def __init__(self, learning_rate: float = 0.005) -> None:  # noqa: ARG002 - a hyper-parameter, which Lightning reads
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 10)
        )

    def on_fit_start(self) -> None:
        torch.manual_seed(
            7 + self.global_rank
        )  # the same first weights everywhere, dropout of its own on every rank

    def forward(self, images: torch.Tensor) -> Any:
        return self.net(images)

    def training_step(self, batch: Any, _batch_idx: int = 0) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self(images), labels)

    def validation_step(self, batch: Any, _batch_idx: int = 0) -> None:
        images, labels = batch
        self.log("val_loss", nn.functional.cross_entropy(self(images), labels), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams["learning_rate"])
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def loaders() -> tuple[Any, Any]:
    """Shuffled batches to train with, and batches that are held out."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    train = TensorDataset(images[:TRAIN_IMAGES], labels[:TRAIN_IMAGES])
    held_out = TensorDataset(images[TRAIN_IMAGES:], labels[TRAIN_IMAGES:])
    return DataLoader(train, batch_size=BATCH, shuffle=True), DataLoader(held_out, batch_size=128)


def arguments() -> argparse.ArgumentParser:
    """The options that both have; each adds how it resumes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", default="digits")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save_every", type=int, default=10)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument(
        "--step_s", type=float, default=0.0, help="sleep in every step, so that it can be watched"
    )
    return parser


def final_line(step: int, loss: float, model: nn.Module) -> str:
    """What two runs can be compared by: every bit of every parameter."""
    digest = 0
    for parameter in model.parameters():
        digest = zlib.crc32(parameter.detach().cpu().numpy().tobytes(), digest)
    return f"final step {step} loss {loss!r} digest {digest:08x}"


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # one write: the lines of two workers never mix
