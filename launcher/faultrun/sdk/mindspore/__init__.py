"""Fault tolerance for a MindSpore script: one more callback.

    gasp = sdk.mindspore.DyingGasp(prefix="net", directory=f"ckpt/rank_{get_rank()}")
    model.train(epochs, dataset, callbacks=[..., gasp])

Graph and PyNative mode; made before ``model.train``, in the main thread. With
the optimizer in ``OptTFTWrapper`` nothing has to be copied on the CPU, and a lost peer costs no step.
"""

from faultrun.sdk.mindspore.callback import DyingGasp
from faultrun.sdk.mindspore.compatible import (
    ExceptionCheckpoint,
    OptTFTWrapper,
    RestoreStrategyGenerator,
    TFTRegister,
)

__all__ = ["DyingGasp", "ExceptionCheckpoint", "OptTFTWrapper", "RestoreStrategyGenerator", "TFTRegister"]
