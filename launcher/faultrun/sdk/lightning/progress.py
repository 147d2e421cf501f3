"""How far Lightning's loops are, and how to write it so that ``fit`` goes on at the right place.

Lightning 2.6 (``loops/fit_loop.py``, ``training_epoch_loop.py``) works out from its counters where a
checkpoint was taken, and knows few places. Taken after the last batch of an epoch, before a validation that
is due, or with ``max_steps``, it leaves a validation out, or trains a batch more. So the counters that are
written are always those of three places, from which it goes on rightly.
"""

import copy
from enum import Enum
from typing import Any, NamedTuple

_STAGES = ("ready", "started", "processed", "completed")
_EPOCHS = "epoch_progress"
_BATCHES = "epoch_loop.batch_progress"
_VALIDATION = "epoch_loop.val_loop.batch_progress"
_EPOCH_LOOP = "epoch_loop.state_dict"
_STEPPED = "_batches_that_stepped"


class Next(Enum):
    """What comes next. ``EPOCH_END``: what follows the last batch of an epoch and its validation."""

    BATCH = "batch"
    VALIDATION = "validation"
    EPOCH_END = "epoch_end"
    EPOCH = "epoch"


class FitPlace(NamedTuple):
    """Where a fit goes on: in ``epoch``, from 0, ``done`` batches of which are trained.

    ``stepped``: updates so far, as loggers count them once the last batch is over.
    """

    next: Next
    epoch: int
    done: int
    stepped: int


class Counters:
    """The counters of a fit loop and of the loops in it."""

    def __init__(self, fit_loop: Any) -> None:
        self._progress: dict[str, Any] = {}
        self._loops: dict[str, Any] = {}
        self._find(fit_loop, "")

    def read(self) -> dict[str, Any]:
        """Read what ``fit_loop.state_dict()`` would tell, in ten microseconds where it takes hundreds."""
        numbers = {key: _plain(one) for key, one in self._progress.items()}
        return {
            **numbers,
            **{f"{key}state_dict": loop.on_save_checkpoint() for key, loop in self._loops.items()},
        }

    def _find(self, loop: Any, prefix: str) -> None:
        self._loops[prefix] = loop
        for name, one in vars(loop).items():
            if hasattr(one, "on_save_checkpoint") and hasattr(one, "restarting"):
                self._find(one, f"{prefix}{name}.")
            elif callable(getattr(one, "from_state_dict", None)):
                self._progress[prefix + name] = one


def place_of(numbers: dict[str, Any]) -> FitPlace | None:
    """Where another program's checkpoint was taken; None where the counters are not of Lightning 2."""
    try:
        epochs, batches = numbers[_EPOCHS]["current"], numbers[_BATCHES]
        done, is_last = batches["current"]["processed"], batches["is_last_batch"]
        stepped = numbers.get(_EPOCH_LOOP, {}).get(_STEPPED, 0)
        if is_last:
            ended = epochs["processed"] > epochs["completed"]
            return FitPlace(Next.EPOCH, epochs["processed"] + (0 if ended else 1), 0, stepped)
        return FitPlace(Next.BATCH if done else Next.EPOCH, epochs["processed"], done, stepped)
    except (KeyError, TypeError):
        return None


def resumable(numbers: dict[str, Any], place: FitPlace) -> dict[str, Any]:
    """Return ``numbers`` changed to those of a fit that goes on at ``place``."""
    changed = copy.deepcopy(numbers)
    if place.next is Next.EPOCH_END:
        return changed
    epochs, batches = changed[_EPOCHS], changed[_BATCHES]
    earlier = epochs["total"]["processed"] - epochs["current"]["processed"]
    for tracker, before in ((epochs["current"], 0), (epochs["total"], earlier)):
        _set(tracker, before + place.epoch)
        if place.next is not Next.EPOCH:
            tracker["ready"] = tracker["started"] = before + place.epoch + 1
    _set(batches["total"], batches["total"]["processed"])
    _set(batches["current"], place.done)
    if place.next is Next.VALIDATION:
        _begin_validation(changed[_VALIDATION])
    else:
        batches["is_last_batch"] = False
    changed.setdefault(_EPOCH_LOOP, {})[_STEPPED] = place.stepped
    return changed


def _begin_validation(batches: dict[str, Any]) -> None:
    """Lightning begins one again that was stopped in its first batch; all others it takes for done."""
    for tracker in (batches["total"], batches["current"]):
        _set(tracker, tracker["completed"] if tracker is batches["total"] else 0)
        tracker["ready"] += 1
        tracker["started"] += 1
    batches["is_last_batch"] = False


def _set(tracker: dict[str, int], count: int) -> None:
    tracker.update(dict.fromkeys(_STAGES, count))


def _plain(progress: Any) -> dict[str, Any]:
    return {name: one if type(one) in (int, bool) else _plain(one) for name, one in vars(progress).items()}
