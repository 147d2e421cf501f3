"""The guard over accelerate: a step is an update, and accelerate's own folders say where the data stand."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from faultrun.errors import FaultrunError
from faultrun.sdk.session import ResumePoint
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.state.rng import current_rng, rng_from_plain, rng_to_plain
from faultrun.sdk.torch.state.state_dict import Parts, is_compiled, unwrapped
from faultrun.sdk.worker.save_files import Position, SaveWriter
from faultrun.sdk.worker.update_lock import UpdatePhase
from faultrun.sdk.worker.worker import Worker

_CUSTOM = re.compile(r"custom_checkpoint_\d+\.pkl")


class AccelerateGuard(Guard):
    """What ``sdk.accelerate.protect`` returns."""

    def __init__(
        self,
        make_parts: Callable[[], Parts],
        worker: Worker | None,
        writer: SaveWriter,
        accelerator: Accelerator,
    ) -> None:
        super().__init__(make_parts, worker, writer)
        self._accelerator = accelerator
        self.place = Place(self)
        models = accelerator._models
        if worker is not None and len(models) > 1 and writer.session.world_size > 1:
            for one in models:
                if not is_compiled(one):
                    unwrapped(one).register_forward_hook(self._after_forward)

    def step(self, n: int | None = None, epoch: int | None = None) -> None:
        """A step is complete, if this was the last batch of an update; else nothing is."""
        if self._accelerator.sync_gradients:
            super().step(n, epoch)

    def resume(self, load: Callable[[str], object] | None = None) -> ResumePoint | None:
        """As ``Guard.resume``; takes a folder of ``accelerator.save_state`` too, with the place in the epoch.

        FaultrunError for a folder that was saved without ``protect``, unless ``load`` loads it.
        """
        point = self.worker.session.point if self.worker is not None else None
        if point is None or load is not None or not Path(point.path).is_dir():
            return super().resume(load)
        there = sum(1 for one in Path(point.path).iterdir() if _CUSTOM.fullmatch(one.name))
        if there < len(self._accelerator._custom_objects):
            raise FaultrunError(
                f"nothing says how far the checkpoint {point.path} is",
                because="it was saved without sdk.accelerate.protect, or with fewer registered objects",
                hint="guard.resume(load=...) with a function that loads it and finds the place",
            )
        self._accelerator.load_state(point.path)
        return point

    def ended(self) -> Position:
        """Where training stands: a step is complete when it is saved, though nobody has said so yet."""
        updated = self.lock.phase is UpdatePhase.UPDATED
        return self.position._replace(step=self.global_step + 1) if updated else self.position

    def goes_on(self, position: Position, epoch_rng: Any) -> None:
        """After accelerate has put back the state of this rank, random numbers too, as of ``position``."""
        self.position = position
        began = self.recorder.at_epoch(position.epoch) or epoch_rng
        self.reading.resumes_at(position, current_rng(), began)

    @property
    def epoch_rng(self) -> Any:
        """The random numbers at the beginning of the epoch, from which its order follows."""
        return self.reading.epoch_rng


class Place:
    """What accelerate's own folders do not hold: in its ``custom_checkpoint_<n>.pkl``, written by rank 0.

    The order of an epoch is the same for all ranks, so rank 0's random numbers at its beginning serve all.
    """

    def __init__(self, guard: AccelerateGuard) -> None:
        self._guard = guard

    def state_dict(self) -> dict[str, Any]:
        """Of this moment."""
        position = self._guard.ended()
        rng = self._guard.epoch_rng
        return {**position._asdict(), "epoch_rng": None if rng is None else rng_to_plain(rng)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Called last by ``accelerator.load_state``."""
        rng = state["epoch_rng"]
        position = Position(state["step"], state["epoch"], state["step_in_epoch"])
        self._guard.goes_on(position, None if rng is None else rng_from_plain(rng))
