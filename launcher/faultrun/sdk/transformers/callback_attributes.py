"""Tells of what the script's own callbacks keep from step to step: Trainer saves none of it, nor do gasps.

A callback that has ``state()`` is saved by Trainer, and what lies in the model is a part of it.
"""

import zlib
from collections.abc import Iterable
from typing import Any

import torch
from transformers.trainer_callback import ExportableState

from faultrun.sdk.torch.group.same_parameters import sample_of
from faultrun.sdk.torch.loader.held_objects import is_of_library
from faultrun.sdk.torch.state.trees import map_tensors
from faultrun.sdk.worker.training_stages import told

_FIRST, _SECOND = 1, 3
"""Steps of this process behind which attributes are looked at."""


class CallbackAttributes:
    """Looks whether the attributes of ``callbacks`` change in the first steps."""

    def __init__(self, callbacks: Iterable[Any]) -> None:
        own = (one for one in callbacks if not isinstance(one, ExportableState))
        self._own = [one for one in own if not is_of_library(type(one))]
        self._steps = 0
        self._then: dict[str, str] = {}

    def stepped(self) -> None:
        """A step has ended, with all that callbacks do then."""
        self._steps += 1
        if self._steps == _FIRST:
            self._then = self._now()
        elif self._steps == _SECOND:
            then, now = self._then, self._now()
            if names := [name for name, one in now.items() if then.get(name) != one]:
                told(
                    f"callbacks keep from step to step what is not saved ({', '.join(names[:3])}), and begin"
                    " anew after a fault: where training follows from it, keep it in buffers of the model"
                )

    def _now(self) -> dict[str, str]:
        return {
            f"{type(one).__name__}.{name}": repr(map_tensors(value, sample_of, _digest_of_other))
            for one in self._own
            for name, value in vars(one).items()
        }


def _digest_of_other(value: Any) -> Any:
    """Look into the state of a module and the numbers of an array; all else has the name of its class."""
    if isinstance(value, torch.nn.Module):
        return map_tensors(value.state_dict(), sample_of, id)
    return zlib.crc32(value.tobytes()) if hasattr(value, "tobytes") else type(value).__name__
