"""Fault tolerance for MindFormers: one import in the script that starts the training, and a name in its YAML.

    import faultrun.sdk.mindformers               # run_mindformer.py: makes the name known

    callbacks:
      - type: MFLossMonitor
      - type: DyingGasp                           # the arguments are those of sdk.mindspore.DyingGasp
        prefix: qwen3

MindFormers builds its callbacks by name from ``MindFormerRegister``
(``core/callback/build_callback.py`` of 2.1.0); any package may register there. What it saves is a file of
the format 1.0 (``use_legacy_format: True``), of which each rank has its own.
"""

import os
from pathlib import Path
from typing import Any

from mindformers.tools.register import MindFormerModuleType, MindFormerRegister

from faultrun.sdk.mindspore import DyingGasp

__all__ = ["DyingGasp"]


def _of_this_rank(directory: str | Path = "./output/checkpoint", **arguments: Any) -> DyingGasp:
    """Make ``DyingGasp`` by a YAML, which is one for all ranks: ``rank_<r>`` is appended to ``directory``."""
    return DyingGasp(directory=folder_of_rank(directory), **arguments)


def folder_of_rank(directory: str | Path) -> Path:
    """The folder of this process's rank."""
    rank = os.environ.get("RANK_ID") or os.environ.get("RANK") or "0"
    return Path(directory) / f"rank_{rank}"


MindFormerRegister.register_cls(_of_this_rank, MindFormerModuleType.CALLBACK, alias="DyingGasp")
