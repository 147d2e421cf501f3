"""Which keys of a state dict say how far training was. Names only; any value may stand behind them.

Trainers agree on no spelling, so this is a list of those in use: torch's
ImageNet and elastic examples (``epoch``, ``EPOCHS_RUN``), Lightning (``epoch``,
``global_step``), Megatron (``iteration``), DeepSpeed (``global_steps``),
fairseq (``num_updates``), mmengine (``meta: {epoch, iter}``).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from faultrun.model.checkpoint import Entry

_SPELLINGS = {
    "epoch": ("epoch", "epoch_num", "current_epoch", "cur_epoch", "epochs_run", "epochs"),
    "global_step": (
        "global_step", "global_steps", "num_updates", "iteration", "iterations", "iter", "step", "steps",
        "step_num",
    ),
    "step_in_epoch": ("step_in_epoch", "batch_in_epoch"),
    "world_size": ("world_size",),
}  # fmt: skip
_KNOWN = frozenset(name for names in _SPELLINGS.values() for name in names)
_LARGEST = 2**53


def with_progress(entry: Entry, items: Iterable[tuple[object, object]]) -> Entry:
    """Let contents, as names in any case and values, overrule what the entry's name said; integers count."""
    counts = {
        key.lower(): value
        for key, value in items
        if isinstance(key, str) and type(value) is int and 0 <= value < _LARGEST
    }
    told: dict[str, Any] = {}
    for fact, names in _SPELLINGS.items():
        said = [counts[name] for name in names if name in counts]
        told |= {fact: said[0]} if said else {}
    return replace(entry, **told)


def is_progress(name: str) -> bool:
    """Whether a value of this name would be taken for a part of the progress."""
    return name.lower() in _KNOWN
