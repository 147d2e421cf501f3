"""``<prefix>-<epoch>_<step in epoch>_breakpoint.ckpt``, written by MindSpore itself, checksum included.

Besides the parameters, in this order: ``epoch_num``, from 1; ``step_num``, the
global step; ``global_step`` where no optimizer has it; ``loss_scale`` where
there is one. With ``append_info`` in the config the first two are counted as
ModelCheckpoint counts them: those values plus the epochs and steps of this run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mindspore

from faultrun.sdk.files import Names
from faultrun.sdk.mindspore.memory import HostState


def breakpoint_names(directory: Path, prefix: str, state: HostState) -> Names:
    """The names to try; taken ones get MindSpore's own suffix, ``prefix_1-...``."""

    def name(number: int) -> Path:
        stem = prefix if number == 0 else f"{prefix}_{number}"
        return directory / f"{stem}-{state.place.epoch}_{state.place.batch}_breakpoint.ckpt"

    return name


def appended(state: HostState, base: Mapping[str, Any]) -> dict[str, Any]:
    """What follows the parameters in a breakpoint file. ``base`` is the config's ``append_info``."""
    place = state.place
    content = {**base}
    content["epoch_num"] = int(base.get("epoch_num", 0)) + place.epoch
    content["step_num"] = int(base["step_num"]) + place.step_num if "step_num" in base else place.step
    if "global_step" not in state.arrays:
        content["global_step"] = place.step
    scale = loss_scale(state)
    if scale is not None:
        content["loss_scale"] = scale
    return content


def loss_scale(state: HostState) -> float | None:
    """The dynamic loss scale among the parameters (``scale_sense`` of TrainOneStepWithLossScaleCell)."""
    for name, array in state.arrays.items():
        if name == "scale_sense" or name.endswith(".scale_sense"):
            return float(array.reshape(-1)[0])
    return None


def write_checkpoint(
    path: str, state: HostState, dtypes: Mapping[str, Any], content: Mapping[str, Any]
) -> None:
    """Have MindSpore write the file ``path``, which ends in ``.ckpt``. Any thread."""
    # what is appended under a parameter's name replaces it: readers expect it among the last records
    tensors = [
        {"name": name, "data": mindspore.Tensor(array, dtype=dtypes[name])}
        for name, array in state.arrays.items()
        if name not in content
    ]
    mindspore.save_checkpoint(tensors, path, append_dict=dict(content), crc_check=True)
