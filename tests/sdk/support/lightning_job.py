"""A small training of Lightning's, saved wherever a test wants, and all that can be compared."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

from faultrun.sdk import lightning as sdk_lightning
from faultrun.sdk.session import Session
from faultrun.sdk.worker.state_provider import SaveOrder
from faultrun.sdk.worker.worker import Worker
from sdk.support.lightning_plans import BATCHES, Job


class Stream(IterableDataset[Any]):  # type: ignore[misc]
    """Has no length."""

    def __iter__(self) -> Any:
        yield from torch.arange(2.0 * BATCHES).reshape(-1, 1)


def stream() -> Any:
    return DataLoader(Stream(), batch_size=2)


def shuffled() -> Any:
    return DataLoader(TensorDataset(torch.arange(2.0 * BATCHES)), batch_size=2, shuffle=True)


def with_kept_workers() -> Any:
    data = TensorDataset(torch.arange(2.0 * BATCHES))
    return DataLoader(data, batch_size=2, shuffle=True, num_workers=1, persistent_workers=True)


class Shuffled(Sampler[int]):  # type: ignore[misc]
    """Draws each epoch's order from a generator that only it knows."""

    def __init__(self) -> None:
        self._numbers = np.random.default_rng(7)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers.permutation(2 * BATCHES).tolist())

    def __len__(self) -> int:
        return 2 * BATCHES


def with_own_sampler() -> Any:
    return DataLoader(TensorDataset(torch.arange(2.0 * BATCHES)), batch_size=2, sampler=Shuffled())


class Net(lightning.LightningModule):  # type: ignore[misc]
    """Draws random numbers in every step, and has a buffer that every forward pass changes."""

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(1, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.seen: list[Any] = []
        self.steps_told = 0

    def training_step(self, batch: Any, _batch_idx: int) -> Any:
        values = batch[0] if isinstance(batch, list) else batch
        self.seen.append([round(one, 4) for one in values.reshape(-1).tolist()])
        self.steps_told += 1
        return self.net(values.reshape(-1, 1)).square().mean()

    def validation_step(self, batch: Any, _batch_idx: int) -> None:
        self.log("val", self.net(batch[0].reshape(-1, 1)).mean())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["steps_told"] = self.steps_told

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.steps_told = checkpoint["steps_told"]

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Adversaries(Net):
    """Two optimizers that are stepped by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()

    def configure_optimizers(self) -> Any:
        first, *_, last = self.net
        return [torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.Adam(last.parameters(), lr=0.1)]


class Pulled(torch.optim.SGD):  # type: ignore[misc]
    """Counts its steps in an attribute, and steps less and less."""

    count = 0

    def step(self, closure: Any = None) -> Any:
        self.count += 1
        self.param_groups[0]["lr"] = 0.1 / self.count
        return super().step(closure)


class Outside(Net):
    """Has a part that only the optimizer knows, which is an own class."""

    def __init__(self) -> None:
        super().__init__()
        self.outside = [nn.Linear(1, 1)]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.outside[0].zero_grad()
        return super().training_step(batch, batch_idx) + self.outside[0](self.net[0].weight).square().mean()

    def configure_optimizers(self) -> Any:
        return Pulled([*self.parameters(), *self.outside[0].parameters()], lr=0.1)


NETS = {"net": Net, "adversaries": Adversaries, "outside": Outside}
LOADERS = {"shuffled": shuffled, "stream": stream, "kept": with_kept_workers, "own": with_own_sampler}


class Asks(lightning.Callback):  # type: ignore[misc]
    """Saves as faultrun's helper thread does, at the ``hook`` that is called for the ``turn``-th time."""

    def __init__(self, hook: str, turn: int, gasp: Any) -> None:
        self._left, self._gasp = turn, gasp
        self.path = ""
        setattr(self, hook, self._called)

    def _called(self, trainer: Any, *_: Any) -> None:
        self._left -= not trainer.sanity_checking
        if self._left == 0 and not self.path:
            thread = threading.Thread(target=self._save)
            thread.start()
            thread.join(30)
            trainer.should_stop = True

    def _save(self) -> None:
        order = SaveOrder(until_s=float("inf"), peers_lost=True, leaves=False)
        provider = self._gasp._worker._helper.provider
        self.path = provider.save(order).path


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Parameters, buffers and optimizers at the end, and the batches that were trained."""

    end: dict[str, Any]
    seen: list[Any]
    logged: int
    told: int
    path: str = ""


def train(
    job: Job,
    directory: Path,
    *,
    resume: str | None = None,
    ask: tuple[str, int] | None = None,
    saves: dict[str, Any] | None = None,
    session: Session | None = None,
    worker: Worker | None = None,
) -> Trained:
    """Train in this process as if faultrun had started it, from the beginning or from ``resume``."""
    lightning.seed_everything(3, verbose=False)
    with pytest.MonkeyPatch.context() as patched:
        worker = worker or Worker(session or Session())
        patched.setattr("faultrun.sdk.lightning.callback.worker", lambda: worker)
        gasp = sdk_lightning.DyingGasp(directory)
    callbacks = [gasp]
    asks = Asks(*ask, gasp) if ask else None
    if asks is not None:
        callbacks.append(asks)
    if saves is not None:
        callbacks.append(ModelCheckpoint(dirpath=directory / "periodic", save_top_k=-1, **saves))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        callbacks=callbacks,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=saves is not None,
        default_root_dir=directory,
        **job.options,
    )
    net = NETS[job.net]()
    held_out = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2)
    trainer.fit(net, LOADERS[job.loader](), held_out, ckpt_path=resume)
    optimizers = {str(number): one.state_dict()["state"] for number, one in enumerate(trainer.optimizers)}
    return Trained(
        end={**net.state_dict(), **optimizers, "rng": torch.get_rng_state()},
        seen=net.seen,
        logged=trainer.fit_loop.epoch_loop._batches_that_stepped,
        told=net.steps_told,
        path=asks.path if asks is not None else "",
    )
