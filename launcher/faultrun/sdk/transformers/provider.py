"""The helper thread's view of a Trainer: as of any torch training, but it writes a ``checkpoint-N``."""

from pathlib import Path
from typing import Any

import torch

from faultrun.sdk.torch.provider import TorchProvider
from faultrun.sdk.torch.state.boundary import Boundary
from faultrun.sdk.torch.state.rng import rng_from_plain
from faultrun.sdk.torch.state.rng_recorder import noted_in
from faultrun.sdk.torch.state.state_dict import emptied
from faultrun.sdk.transformers.folder import (
    OPTIMIZER,
    SCHEDULER,
    new_numbers,
    numbers_of,
    write_checkpoint,
    write_model,
)
from faultrun.sdk.transformers.guard import TrainerGuard
from faultrun.sdk.worker.save_files import Position, Saved, numbered


class TrainerProvider(TorchProvider):
    """Over a ``TrainerGuard``, in the helper thread."""

    def __init__(self, guard: TrainerGuard, trainer: Any) -> None:
        super().__init__(guard)
        self._trainer = trainer

    def save_no_tensors(self, directory: Path) -> None:
        """As for any torch training; the model's file is not tried: it may have gigabytes."""
        guard = self._guard
        state = emptied(guard.state_at(guard.boundary_now(guard.recorder.main_slot)))

        def fill(folder: Path) -> None:
            write_checkpoint(folder, self._trainer, state, [])

        saved = self.writer.save_folder(numbered(directory / "state"), Position(), fill)
        for name in (OPTIMIZER, SCHEDULER):
            torch.load(Path(saved.path, name), weights_only=True)

    def _state(self, boundary: Boundary) -> Any:
        """With all ranks' random numbers: while the state is held no peer can be further than a step."""
        state = super()._state(boundary)
        session = self.writer.session
        own = rng_from_plain(state["rng"])
        others = (rank for rank in range(session.world_size) if rank != session.rank)
        noted = {rank: self._noted(rank, boundary.position) for rank in others}
        numbers = {
            rank: new_numbers(own, rank) if one is None else numbers_of(one) for rank, one in noted.items()
        }
        state["numbers"] = {**numbers, session.rank: numbers_of(own)}
        return state

    def _noted(self, rank: int, position: Position) -> Any:
        folder = self.writer.session.beside(self.writer.folder.path, rank)
        path = folder / f"rank_{rank}" / self._guard.recorder.file_name
        steps = self._guard.history.maxlen or 0
        return noted_in(path, self.writer.session.run_id, steps, position)

    def _written(self, state: Any, boundary: Boundary, ahead: bool) -> Saved:
        numbers = [one for _, one in sorted(state["numbers"].items())]

        def fill(folder: Path) -> None:
            write_model(folder, self._trainer, state["model"])
            write_checkpoint(folder, self._trainer, state, numbers)
            if ahead:
                self._check_still(boundary)

        names = numbered(self.writer.own_folder / f"checkpoint-{boundary.position.step}")
        return self.writer.save_folder(names, boundary.position, fill)
