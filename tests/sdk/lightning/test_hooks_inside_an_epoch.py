"""A fit that goes on inside an epoch: what hooks of the epoch's beginning set, again or told."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("lightning")

import lightning
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from faultrun.sdk.lightning.callback import _begin_epoch_again
from faultrun.sdk.lightning.checkpoint import overrides

pytestmark = pytest.mark.torch


class Freezes(lightning.Callback):  # type: ignore[misc]
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        raise AssertionError("it may count how often it is called")


def test_what_follows_from_the_epoch_is_set_again_and_the_rest_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = GradientAccumulationScheduler({0: 1, 2: 4})
    trainer = SimpleNamespace(current_epoch=3, accumulate_grad_batches=1, callbacks=[plan, Freezes()])
    _begin_epoch_again(trainer, lightning.LightningModule())
    assert trainer.accumulate_grad_batches == 4
    told = capsys.readouterr().err
    assert "Freezes.on_train_epoch_start is not called again inside of epoch 3" in told
    assert told.count("is not called again") == 1


def test_a_hook_of_the_scripts_own_is_one_whatever_its_module_is_called() -> None:
    assert not overrides(lightning.Callback(), "on_train_epoch_start")
    assert not overrides(lightning.LightningModule(), "on_save_checkpoint")
    Freezes.on_train_epoch_start.__module__ = "own.callbacks.callback"
    assert overrides(Freezes(), "on_train_epoch_start")
