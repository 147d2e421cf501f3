"""The trainings of one script, one after the other: each goes on from its own saves, and none is repeated."""

import contextlib
from pathlib import Path
from typing import Any

import torch

from faultrun.errors import CannotNow
from faultrun.sdk.torch.state.state_dict import read_state
from faultrun.sdk.worker.training_stages import told


class Stage:
    """The ``number``-th training of a script. Its end is kept in ``folder``, among this rank's saves."""

    def __init__(self, folder: Path, number: int) -> None:
        self._number, self._end = number, folder / f"end-of-training-{number}"

    def keep_end(self, state: Any) -> None:
        """Keep the state with which it ended, for a resume in a later training."""
        partial = self._end.with_suffix(".tmp")
        try:
            partial.parent.mkdir(parents=True, exist_ok=True)
            torch.save(state, partial)
            partial.rename(self._end)
        except OSError as error:
            told(f"after a restart this script's {self._number}. training cannot be skipped: {error}")

    def of_this(self, state: dict[str, Any]) -> dict[str, Any] | None:
        """``state``, if it is of this training of the script, or this one's end, if it is of a later one.

        None: it is of an earlier one, and this one begins. CannotNow: how it ended is unknown.
        """
        there, here = state.get("stage", self._number), self._number
        if there < here:
            told(f"the recovery point is of this script's {there}. training; the {here}. one begins")
            return None
        if there == here:
            return state
        ended: dict[str, Any] | None = None
        with contextlib.suppress(OSError):
            ended = read_state(str(self._end))
        if ended is None:
            raise CannotNow(
                f"the recovery point is of this script's {there}. training, and this is its {here}. one",
                because=f"how that ended is not known: {self._end} cannot be read",
                hint="run each training by a faultrun command and with a --checkpoint_dir of its own",
            )
        return ended
