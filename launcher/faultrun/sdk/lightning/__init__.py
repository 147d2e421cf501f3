"""Fault tolerance for Lightning in one line, and for a Fabric loop in three.

    gasp = sdk.lightning.DyingGasp()
    Trainer(callbacks=[gasp, ...]).fit(model, data, ckpt_path=gasp.ckpt_path)

    guard = sdk.lightning.protect(fabric, model, optimizer, directory="ckpt")     # after fabric.setup
    guard.resume()
    for epoch in range(guard.epoch, EPOCHS):
        for batch in guard.batches(loader, epoch):
            ...
            optimizer.step()
            guard.step()

A callback serves the Trainer, which tells it where a step ends. The loop of a Fabric script is the script's
own, and only the script can say that. ``lightning`` and ``pytorch_lightning`` will both do.
"""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from faultrun.sdk.lightning.callback import LightningGasp
from faultrun.sdk.lightning.strategies import check_strategy
from faultrun.sdk.torch import Guard
from faultrun.sdk.torch import protect as protect_torch
from faultrun.sdk.worker.save_files import Folder
from faultrun.sdk.worker.worker import worker

__all__ = ["DyingGasp", "Folder", "protect"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def DyingGasp(directory: str | Path | Folder | None = None) -> Any:  # noqa: N802 - a class to its users
    """A callback that saves ``gasp-step_<n>.ckpt`` when a peer dies or faultrun is told to stop.

    ``trainer.fit(ckpt_path=...)`` takes the file, in ``<directory>/rank_<rank>/``; by default
    in the Trainer's ``default_root_dir``. From it, and from what ``ModelCheckpoint`` saved while the
    callback was there, training goes on at the very batch and with each rank's random numbers.
    ``ckpt_path`` is the checkpoint that faultrun chose, None for a first start. Does nothing when
    faultrun did not start the process. FaultrunError in ``fit``: nothing could ever be saved.
    """
    bases = [import_module(name).Callback for name in _PACKAGES if name in sys.modules]
    bases = bases or [import_module(_PACKAGES[0]).Callback]
    return type("DyingGasp", (LightningGasp, *bases), {})(directory)


def protect(
    fabric: Any,
    model: Any,
    *optimizers: Any,
    directory: str | os.PathLike[str] | Folder,
    objects: Mapping[str, Any] | None = None,
) -> Guard:
    """Protect what ``fabric.setup`` returned, as ``sdk.torch.protect`` does; loss scaling is saved too.

    Loaders of ``fabric.setup_dataloaders`` go into ``guard.batches``, checkpoints of
    ``fabric.save``, with the guard as an entry, into ``guard.resume(load=...)``.
    FaultrunError for a strategy whose ranks do not hold the whole state.
    """
    kept = dict(objects or {})
    if worker() is not None:
        check_strategy(fabric.strategy)
        if (scaler := getattr(fabric.strategy.precision, "scaler", None)) is not None:
            kept.setdefault("loss scaling", scaler)
    return protect_torch(model, *optimizers, directory=directory, objects=kept)
