"""Fault tolerance for a MindSpore script: one more callback.

    gasp = sdk.mindspore.DyingGasp(prefix="net", directory=f"ckpt/rank_{get_rank()}")
    model.train(epochs, dataset, callbacks=[..., gasp])

Graph and PyNative mode; made before ``model.train``, in the main thread. With
the optimizer in ``OptTFTWrapper`` nothing has to be copied on the CPU, and a lost peer costs no step.
``SharedBatches`` keeps the global batch where a run may go on with fewer ranks.

And stand-ins for the classes of MindX and MindIO in existing scripts: change the import, and they run here.

    mindx_elastic.terminating_message.ExceptionCheckpoint   -> ExceptionCheckpoint
    mindx_elastic.restore_module.RestoreStrategyGenerator   -> RestoreStrategyGenerator
    mindspore.train.TFTRegister, TrainFaultTolerance        -> TFTRegister
    mindspore.nn.OptTFTWrapper                              -> OptTFTWrapper

Where MindIO is installed on an Ascend machine, TFTRegister and OptTFTWrapper are the real ones.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mindspore
from mindspore import nn

from faultrun.sdk.mindspore.batch_shares import SharedBatches
from faultrun.sdk.mindspore.callback import DyingGasp
from faultrun.sdk.mindspore.parameters import HostState, MarkingOptimizer
from faultrun.sdk.mindspore.provider import loss_scale
from faultrun.sdk.worker.save_files import Names, Position, numbered
from faultrun.sdk.worker.worker import lone_worker

__all__ = [
    "DyingGasp",
    "ExceptionCheckpoint",
    "OptTFTWrapper",
    "RestoreStrategyGenerator",
    "SharedBatches",
    "TFTRegister",
]


class ExceptionCheckpoint(DyingGasp):
    """``DyingGasp`` under the name and with the defaults of MindX; answers SIGTERM under any launcher.

    Unlike there, no work is done in a signal handler, a second one changes nothing, and the process leaves
    with 143.
    """

    _find_worker = staticmethod(lone_worker)

    def __init__(
        self, prefix: str = "Exception", directory: str | Path | None = None, config: Any = None
    ) -> None:
        super().__init__(prefix=prefix, directory=directory, config=config)


class TFTRegister(DyingGasp):
    """MindIO's power-off checkpoint without its controller: any rank may die, rank 0 too.

    ``TFTRegister(rank, ip, port, directory)`` as in MindSpore up to 2.5, or
    ``TFTRegister(ckpt_save_path=directory)`` as later; where a controller
    would listen does not matter here. Writes
    ``tft_saved_checkpoints-step_<global step>/rank_<rank>/ttp_rank_<rank>-<epoch>_<step in epoch>.ckpt``.
    """

    _find_worker = staticmethod(lone_worker)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """The real one where MindIO is."""
        return _real_register(*args, **kwargs) if _has_mindio() else super().__new__(cls)

    def __init__(
        self,
        ctrl_rank_id: int | str | None = None,
        ctrl_ip: str | None = None,
        ctrl_port: int | None = None,
        ckpt_save_path: str | None = None,
        **kwargs: Any,
    ) -> None:
        del ctrl_ip, ctrl_port, kwargs
        if isinstance(ctrl_rank_id, str):
            ckpt_save_path = ctrl_rank_id
        if ckpt_save_path is None:
            raise ValueError("TFTRegister needs a directory to save to: ckpt_save_path")
        super().__init__(prefix="ttp_rank", directory=ckpt_save_path)

    def _names(self, position: Position) -> Names:
        rank = self._provider.writer.session.rank
        step = self._provider.writer.folder.path / f"tft_saved_checkpoints-step_{position.step}"
        folder = step / f"rank_{rank}"
        return numbered(folder / f"ttp_rank_{rank}-{position.epoch}_{position.step_in_epoch}.ckpt")

    def _content(self, state: HostState) -> dict[str, Any]:
        """Fields that MindIO appends to a file; ``step_num`` is global."""
        step, count = state.position.step, state.arrays.get("global_step")
        scale = loss_scale(state)
        return {
            "epoch_num": state.position.epoch,
            "step_num": step,
            "cur_rank": self._provider.writer.session.rank,
            "batch_num": self._batch_num,
            "global_step": step if count is None else mindspore.Tensor(count),
            **({} if scale is None else {"loss_scale": scale}),
        }


class OptTFTWrapper(MarkingOptimizer):
    """Marks where updates begin (``MarkingOptimizer``): a lost peer costs no step, and no copies are made."""

    def __new__(cls, opt: Any, **kwargs: Any) -> Any:
        """The real one where MindIO is."""
        if _has_mindio():
            return nn.OptTFTWrapper(opt, **kwargs)
        return super().__new__(cls, opt, **kwargs)


class RestoreStrategyGenerator:
    """Which ranks' dying-gasp files to load: what faultrun decided, in MindX's form."""

    def gen_fault_tolerance_strategy(self) -> tuple[str, str | None]:
        """Ranks as ``"0,1"`` and a JSON map ``{"0,8": 0, "1,9": 1}``; ``("-1", None)``: use periodic ones."""
        ranks = os.environ.get("RESTORE_RANKS", "-1")
        restore_map = os.environ.get("RESTORE_RANKS_MAP", "")
        if ranks in ("", "-1") or restore_map in ("", "{}"):
            return "-1", None
        return ranks, restore_map


def _has_mindio() -> bool:
    """Whether the real thing can work: MindIO is installed and the device is an Ascend."""
    installed = any(find_spec(name) is not None for name in ("mindio_ttp", "mindio_tft"))
    return installed and mindspore.get_context("device_target") == "Ascend"


def _real_register(*args: Any, **kwargs: Any) -> Any:
    if (old := getattr(mindspore.train, "TFTRegister", None)) is not None:
        return old(*args, **kwargs)
    if len(args) == 4:  # the older signature on a newer MindSpore
        os.environ.setdefault("MS_TFT_IP", str(args[1]))
        os.environ.setdefault("MS_TFT_PORT", str(args[2]))
        args = (args[3],)
    return mindspore.train.TrainFaultTolerance(*args, **kwargs)
