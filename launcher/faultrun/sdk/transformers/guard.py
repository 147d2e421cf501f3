"""A guard over a loop that is not ours: Trainer counts, and we are told."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from transformers.trainer_callback import ExportableState

from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.state.boundary import Passage
from faultrun.sdk.worker.save_files import Position

_GROWING = frozenset({"log_history", "stateful_callbacks"})


class TrainerGuard(Guard):
    """Knows its place from Trainer. Main thread only."""

    _retired = False

    def retire(self) -> None:
        """Another guard takes over the same model: its hooks stay, and say nothing any more."""
        self._retired = True

    def stands_at(self, position: Position) -> None:
        """``step`` updates are complete; of ``epoch`` so many batches are done, or worked at."""
        self.position = position

    def look_again(self) -> None:
        """The state of the last step as it is now: besides the parameters, more may have changed since."""
        self.lock.boundary(self._capture_again)

    def _capture_again(self) -> None:
        if not self.history or self.history[-1].position.step != self.position.step:
            self._capture()
            return
        self.position = self.history[-1].position
        boundary = self.boundary_now(self.history.pop().rng)
        if self._mark is not None:
            boundary = boundary._replace(passage=Passage(done=self._mark()))
        self.history.append(boundary)

    def _after_forward(self, model: Any, *others: object) -> None:
        if not self._retired:
            super()._after_forward(model, *others)

    def _before_update(self, *others: object) -> None:
        if not self._retired:
            super()._before_update(*others)

    def _after_update(self, number: int, *others: object) -> None:
        if not self._retired:
            super()._after_update(number, *others)


class TrainerProgress:
    """``TrainerState`` without its list of logs, which only grows: how long it is says enough.

    Operations since the last log are counted in: Trainer adds them up in a collective when it logs.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._names = [field.name for field in fields(trainer.state) if field.name not in _GROWING]

    def state_dict(self) -> dict[str, Any]:
        """All that ``trainer_state.json`` needs, of this moment."""
        trainer, state = self._trainer, self._trainer.state
        told = {name: getattr(state, name) for name in self._names}
        told["total_flos"] += trainer.current_flos * trainer.args.world_size
        callbacks: dict[str, Any] = {}
        for one in (*trainer.callback_handler.callbacks, trainer.control):
            if isinstance(one, ExportableState):
                name = type(one).__name__
                known = callbacks.get(name)
                alike = known if isinstance(known, list) else [] if known is None else [known]
                callbacks[name] = [*alike, one.state()] if alike else one.state()
        return {"fields": told, "logs": len(state.log_history), "callbacks": callbacks}

    def load_state_dict(self, _state: Mapping[str, Any]) -> None:
        """Trainer reads its own file."""
