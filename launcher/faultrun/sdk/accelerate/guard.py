"""The guard over accelerate: a step is an update, and accelerate's own folders say where the data stand."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from faultrun.errors import CannotNow
from faultrun.sdk.session import ResumePoint
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.rest_of_state import put_rest, rest_of
from faultrun.sdk.torch.state.rng import current_rng, rng_from_plain, rng_to_plain
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Position
from faultrun.sdk.worker.update_lock import UpdatePhase

_CUSTOM = re.compile(r"custom_checkpoint_\d+\.pkl")


class AccelerateGuard(Guard):
    """What ``sdk.accelerate.protect`` returns."""

    def __init__(self, training: Training, accelerator: Accelerator) -> None:
        super().__init__(training)
        self._accelerator = accelerator
        self.place = Place(training)

    def step(self, n: int | None = None, epoch: int | None = None) -> None:
        """A step is complete, if this was the last batch of an update; else nothing is."""
        if self._accelerator.sync_gradients:
            super().step(n, epoch)

    def resume(self, load: Callable[[str], object] | None = None) -> ResumePoint | None:
        """Resume as ``Guard.resume`` does, also from a folder of ``accelerator.save_state``, place included.

        FaultrunError for a folder that was saved without ``protect``, unless ``load`` loads it.
        """
        point = self.training.point
        if point is None or load is not None or not Path(point.path).is_dir():
            return super().resume(load)
        there = sum(1 for one in Path(point.path).iterdir() if _CUSTOM.fullmatch(one.name))
        if there < len(self._accelerator._custom_objects):
            raise CannotNow(
                f"nothing says how far the checkpoint {point.path} is",
                because="it was saved without sdk.accelerate.protect, or with fewer registered objects",
                hint="guard.resume(load=...) with a function that loads it and finds the place",
            )
        self._accelerator.load_state(point.path)
        self.training.resumed()
        return point


class Place:
    """What accelerate's own folders do not hold: in its ``custom_checkpoint_<n>.pkl``, written by rank 0.

    The order of an epoch is the same for all ranks, so rank 0's random numbers at its beginning serve all.
    """

    def __init__(self, training: Training) -> None:
        self._training = training

    def state_dict(self) -> dict[str, Any]:
        """Tell the place now: a step that is updated counts, though the script has not said so yet."""
        position, rng = self._training.position, self._training.reading.epoch_rng
        if self._training.lock.phase is UpdatePhase.UPDATED:
            position = position._replace(step=position.step + 1)
        left, rest = self._training.reading.left_at(position), rest_of(self._training.state_now())
        began = None if rng is None else rng_to_plain(rng)
        return {**position._asdict(), "epoch_rng": began, "left": left, "rest": rest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Called last by ``accelerator.load_state``, which has put back the random numbers of this rank."""
        training, rng = self._training, state["epoch_rng"]
        if "rest" in state:  # not from an earlier version
            put_rest(training.parts, state["rest"], {})
        position = training.position = Position(state["step"], state["epoch"], state["step_in_epoch"])
        began = training.recorder.at_epoch(position.epoch) or (None if rng is None else rng_from_plain(rng))
        training.reading.resumes_at(position, current_rng(), began, state.get("left"))
