"""Which keys of a state dict say how far training was. Names only; any value may stand behind them.

Trainers agree on no spelling, so this is a list of those in use: torch's
ImageNet and elastic examples (``epoch``, ``EPOCHS_RUN``), Lightning (``epoch``,
``global_step``), Megatron (``iteration``), DeepSpeed (``global_steps``),
fairseq (``num_updates``), mmengine (``meta: {epoch, iter}``).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from faultrun.checkpoints.pickle_values import Table, Value
from faultrun.model.checkpoint import Entry

_EPOCH = ("epoch", "epoch_num", "current_epoch", "cur_epoch", "epochs_run", "epochs")
_GLOBAL_STEP = (
    "global_step", "global_steps", "num_updates", "iteration", "iterations", "iter", "step", "steps",
    "step_num",
)  # fmt: skip
_STEP_IN_EPOCH = ("step_in_epoch", "batch_in_epoch")
_WORLD_SIZE = ("world_size",)
_KNOWN = frozenset((*_EPOCH, *_GLOBAL_STEP, *_STEP_IN_EPOCH, *_WORLD_SIZE))
_LARGEST = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far training was; ``step`` and ``iteration`` are taken for the global step."""

    epoch: int | None = None
    step_in_epoch: int | None = None
    global_step: int | None = None
    world_size: int | None = None


def progress_of(value: Value) -> Progress:
    """Read the progress out of an unpickled state dict, or out of the ``meta`` dict within it."""
    if not isinstance(value, Table):
        return Progress()
    found = progress_of_items(value.items())
    meta = value.get("meta")
    if found == Progress() and isinstance(meta, Table):
        return progress_of_items(meta.items())
    return found


def progress_of_items(items: Iterable[tuple[object, object]]) -> Progress:
    """Read the progress out of pairs of names, in any case, and values; only integers count."""
    counts = {
        key.lower(): value
        for key, value in items
        if isinstance(key, str) and type(value) is int and 0 <= value < _LARGEST
    }

    def first(names: tuple[str, ...]) -> int | None:
        return next((counts[name] for name in names if name in counts), None)

    return Progress(
        epoch=first(_EPOCH),
        step_in_epoch=first(_STEP_IN_EPOCH),
        global_step=first(_GLOBAL_STEP),
        world_size=first(_WORLD_SIZE),
    )


def is_progress(name: str) -> bool:
    """Whether a value of this name would be taken for a part of the progress."""
    return name.lower() in _KNOWN


def with_progress(entry: Entry, progress: Progress) -> Entry:
    """Let the contents overrule what the name said, where they say something."""

    def newer(content: int | None, name: int | None) -> int | None:
        return name if content is None else content

    return replace(
        entry,
        epoch=newer(progress.epoch, entry.epoch),
        step_in_epoch=newer(progress.step_in_epoch, entry.step_in_epoch),
        global_step=newer(progress.global_step, entry.global_step),
        world_size=newer(progress.world_size, entry.world_size),
    )
