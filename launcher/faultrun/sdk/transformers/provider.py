"""The form of a Trainer's gasps: a ``checkpoint-N`` as it writes one itself."""

from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import torch

from faultrun.sdk.torch.rest_of_state import rest_of
from faultrun.sdk.torch.state.boundary import Boundary
from faultrun.sdk.torch.state.rng import rng_from_plain
from faultrun.sdk.torch.state.rng_recorder import noted_in
from faultrun.sdk.torch.state.state_dict import emptied
from faultrun.sdk.torch.training import Training
from faultrun.sdk.transformers.folder import (
    OPTIMIZER,
    REST,
    SCHEDULER,
    ModelFile,
    new_numbers,
    numbers_of,
    write_checkpoint,
    write_export,
)
from faultrun.sdk.worker.save_files import Position, Saved, SaveWriter, numbered
from faultrun.sdk.worker.training_stages import told


class GaspFolder:
    """Writes a Trainer's gasp, a folder, as a ``GaspForm`` does. Helper thread, if nothing is said."""

    def __init__(self, training: Training, trainer: Any, written: Container[str] = ()) -> None:
        self._training, self._trainer = training, trainer
        parts = training.parts
        self._model = ModelFile(parts.model, parts.buffers, written)
        self._can_export = True
        parts.objects.are_plain = parts.updated.are_plain = True

    def rehearse(self, directory: Path) -> None:
        """Save a state without tensors, but with those of adapters, and read it again."""
        now = self._training.state_now()
        state = emptied(now)

        def fill(folder: Path) -> None:
            self._export(folder, now["model"])
            self._fill(folder, state, [])

        saved = self._training.writer.save_folder(numbered(directory / "state"), Position(), fill)
        for name in (OPTIMIZER, SCHEDULER, REST):
            torch.load(Path(saved.path, name), weights_only=True)

    def write_rest(self, folder: Path, state: Any) -> None:
        """Write what Trainer's own files do not hold of ``state``."""
        rest = rest_of(state)
        if self._model.is_adapters:
            rest["model"] = self._model.changed(state["model"])
        torch.save(self._training.parts.device.to_host(rest), folder / REST)

    def _fill(self, folder: Path, state: Any, numbers: list[Any]) -> None:
        if not (self._model.is_adapters and self._can_export):
            self._model.write(folder, self._model.changed(state["model"]), state["buffers"])
        self.write_rest(folder, state)
        write_checkpoint(folder, self._trainer, state, numbers)

    def _export(self, folder: Path, model: Any) -> None:
        """Write what only ``from_pretrained`` needs, or Trainer for adapters, if it can be."""
        try:
            if self._can_export:
                write_export(folder, self._trainer, model)
        except Exception as error:  # noqa: BLE001 - code of a model's class, which says what the matter is
            self._can_export = False
            told(f"gasps serve Trainer only, and no from_pretrained: {type(error).__name__}: {error}")

    def state(self, boundary: Boundary) -> Any:
        """With all ranks' random numbers: while the state is held no peer can be further than a step."""
        state = self._training.host_state_at(boundary)
        return {**state, "numbers": self._numbers(state, boundary)}

    def _numbers(self, state: Any, boundary: Boundary) -> list[dict[str, Any]]:
        session, own = self._training.writer.session, rng_from_plain(state["rng"])
        found = []
        for rank in range(session.world_size):
            noted = own if rank == session.rank else self._noted(rank, boundary.position)
            found.append(new_numbers(own, rank) if noted is None else numbers_of(noted))
        return found

    def _noted(self, rank: int, position: Position) -> Any:
        training, writer = self._training, self._training.writer
        folder = writer.session.beside(writer.folder.path, rank)
        path = folder / f"rank_{rank}" / training.recorder.file_name
        return noted_in(path, writer.session.run_id, training.history.maxlen or 0, position)

    def write(self, writer: SaveWriter, state: Any, boundary: Boundary, check: Callable[[], None]) -> Saved:
        """``checkpoint-<step>`` in the writer's own folder; of a copy with the numbers that are noted now."""
        numbers = state.get("numbers") or self._numbers(state, boundary)

        def fill(folder: Path) -> None:
            self._export(folder, state["model"])
            self._fill(folder, state, numbers)
            check()

        names = numbered(writer.own_folder / f"checkpoint-{boundary.position.step}")
        return writer.save_folder(names, boundary.position, fill)
