"""The form of a Trainer's gasps: a ``checkpoint-N`` as it writes one itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from faultrun.sdk.torch.state.boundary import Boundary
from faultrun.sdk.torch.state.rng import rng_from_plain
from faultrun.sdk.torch.state.rng_recorder import noted_in
from faultrun.sdk.torch.state.state_dict import emptied
from faultrun.sdk.torch.training import Training
from faultrun.sdk.transformers.folder import (
    OPTIMIZER,
    SCHEDULER,
    new_numbers,
    numbers_of,
    write_checkpoint,
    write_model,
)
from faultrun.sdk.worker.save_files import Position, Saved, SaveWriter, numbered


class GaspFolder:
    """Writes a Trainer's gasp, a folder, as a ``GaspForm`` does. Helper thread, if nothing is said."""

    def __init__(self, training: Training, trainer: Any) -> None:
        self._training, self._trainer = training, trainer

    def rehearse(self, directory: Path) -> None:
        """Save a state without tensors and read it again, but no model file: it may have gigabytes."""
        state = emptied(self._training.state_now())

        def fill(folder: Path) -> None:
            write_checkpoint(folder, self._trainer, state, [])

        saved = self._training.writer.save_folder(numbered(directory / "state"), Position(), fill)
        for name in (OPTIMIZER, SCHEDULER):
            torch.load(Path(saved.path, name), weights_only=True)

    def state(self, boundary: Boundary) -> Any:
        """With all ranks' random numbers: while the state is held no peer can be further than a step."""
        state = self._training.host_state_at(boundary)
        session = self._training.writer.session
        own = rng_from_plain(state["rng"])
        others = (rank for rank in range(session.world_size) if rank != session.rank)
        noted = {rank: self._noted(rank, boundary.position) for rank in others}
        numbers = {
            rank: new_numbers(own, rank) if one is None else numbers_of(one) for rank, one in noted.items()
        }
        state["numbers"] = {**numbers, session.rank: numbers_of(own)}
        return state

    def _noted(self, rank: int, position: Position) -> Any:
        training, writer = self._training, self._training.writer
        folder = writer.session.beside(writer.folder.path, rank)
        path = folder / f"rank_{rank}" / training.recorder.file_name
        return noted_in(path, writer.session.run_id, training.history.maxlen or 0, position)

    def write(self, writer: SaveWriter, state: Any, boundary: Boundary, check: Callable[[], None]) -> Saved:
        """``checkpoint-<step>`` in the writer's own folder."""
        numbers = [one for _, one in sorted(state["numbers"].items())]

        def fill(folder: Path) -> None:
            write_model(folder, self._trainer, state["model"])
            write_checkpoint(folder, self._trainer, state, numbers)
            check()

        names = numbered(writer.own_folder / f"checkpoint-{boundary.position.step}")
        return writer.save_folder(names, boundary.position, fill)
