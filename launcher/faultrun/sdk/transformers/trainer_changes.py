"""What ``DyingGasp`` changes at a Trainer, or refuses: some of its methods, its callbacks, its signals."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from faultrun.errors import FaultrunError
from faultrun.sdk.transformers.callback_attributes import CallbackAttributes
from faultrun.sdk.worker.training_stages import told


def refuse_sharded(trainer: Any) -> None:
    """FaultrunError where one rank does not hold the whole state."""
    ways = {
        "is_deepspeed_enabled": "DeepSpeed",
        "is_fsdp_enabled": "FSDP",
        "is_distributed_loading_by_transformers": "the model's tensor or data sharding",
    }
    found = [name for sign, name in ways.items() if getattr(trainer, sign, False)]
    if found:
        raise FaultrunError(
            "sdk.transformers.DyingGasp cannot save this training",
            because=f"with {found[0]} each rank holds a part, and Trainer gathers them in collectives, which"
            " hang once a rank is dead",
            hint="leave DyingGasp out: restarts go on from Trainer's checkpoints with faultrun"
            " --recipe=transformers, and enable_jit_checkpoint=True saves when a stop is asked for",
        )


def as_it_was(trainer: Any) -> None:
    """Let go of what an earlier training of this Trainer has changed."""
    for name in ("_run_epoch", "_save_rng_state"):
        vars(trainer).pop(name, None)


def train_no_more(trainer: Any) -> None:
    """From a finished checkpoint inside an epoch Trainer (5.23) makes a step more: it looks only after it."""

    def ends_at_once(*_: Any, **_others: Any) -> None:
        trainer.control.should_training_stop = True

    trainer._run_epoch = ends_at_once


def add_to_saves(trainer: Any, write: Callable[[Path], None]) -> None:
    """Have Trainer's own checkpoints hold what this writes, and ``trainer_state.json`` come behind it."""
    save = trainer._save_rng_state

    def save_both(output_dir: str) -> None:
        save(output_dir)
        if trainer.args.should_save:
            write(Path(output_dir))

    trainer._save_rng_state = save_both


def put_jit_aside(trainer: Any) -> None:
    """Trainer's own save on SIGTERM begins three seconds later, with collectives: ours is over by then."""
    for callback in trainer.callback_handler.callbacks:
        manager = getattr(callback, "jit_manager", None)
        if type(callback).__name__ == "JITCheckpointCallback" and manager is not None:
            before = manager._original_sigterm_handler
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
            callback.jit_manager = None
            told("DyingGasp answers SIGTERM; enable_jit_checkpoint is put aside")


class Last(TrainerCallback):  # type: ignore[misc]
    """Behind all other callbacks: what these do as a step ends belongs to it."""

    def __init__(self, others: list[Any], ended: Callable[[Any, Any], None]) -> None:
        self._ended, self._attributes = ended, CallbackAttributes(others)

    @classmethod
    def follows(cls, handler: Any, ended: Callable[[Any, Any], None]) -> None:
        """Be there once; in a new list, for the one that there was is being gone through."""
        others = [one for one in handler.callbacks if not isinstance(one, cls)]
        handler.callbacks = [*others, cls(others, ended)]

    def on_step_end(self, _args: Any, state: Any, control: Any, **_others: Any) -> None:
        """All other callbacks have been told."""
        self._ended(state, control)
        self._attributes.stepped()
