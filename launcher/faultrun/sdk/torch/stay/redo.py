"""What is needed to do a step again: its batch, and the random numbers as it began."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from faultrun.sdk.torch.state.rng import Rng
from faultrun.sdk.torch.state.trees import SMALL_BYTES, bytes_of, deep_copied, map_tensors

T = TypeVar("T")


class KeptBatch:
    """What the loader gave for a step. Large tensors of it are copied only where that is asked for."""

    def __init__(self, content: Any, *, is_copied: bool) -> None:
        self._lent: list[tuple[Any, int]] = []

        def keep(tensor: Any) -> Any:
            if is_copied or bytes_of(tensor) <= SMALL_BYTES:
                return tensor.clone()
            self._lent.append((tensor, 0 if tensor.is_inference() else tensor._version))
            return tensor

        self.is_kept = True
        """Whether it can be given again; what holds a lock or an open file, say, cannot be copied."""
        try:
            self._content = _copied(content, keep)
        except Exception:  # noqa: BLE001 - the script's own classes may raise anything
            self.is_kept = False

    @property
    def is_changed(self) -> bool:
        """Whether the script has written into a tensor of it that was not copied."""
        return any(version != one._version for one, version in self._lent if not one.is_inference())

    def again(self) -> Any:
        """A copy of the batch, for the script to do with what it likes."""
        return _copied(self._content, lambda tensor: tensor.detach().clone())


def _copied(content: Any, change: Callable[[Any], Any]) -> Any:
    """Plain containers are copied quickly, whatever else holds tensors by its own rules."""
    return map_tensors(content, change, partial(deep_copied, change=change))


@dataclass(frozen=True, slots=True)
class Batch:
    """What was yielded for one step, and where that was: the place at its beginning, its epoch and that one's
    random numbers.
    """

    kept: KeptBatch
    epoch: int | None
    step_in_epoch: int | None
    epoch_rng: Rng | None


class Redo:
    """Keeps what a step needs to be done again, by global step. Main thread."""

    def __init__(self) -> None:
        self.noted: dict[int, bytes] = {}
        """The recorder's slot as each step began."""
        self.batches: dict[int, Batch] = {}
        self.kept = 2
        """For so many steps. Ranks differ by one: that under way may come again, and the one before it."""
        self.copies_batches = False
        """Whether the script changes its batches in place, so that even large ones are copied."""
        self.attempted = False
        """Whether the step that was yielded last has been attempted."""
        self.in_function = False
        """Whether the script's own loop runs, which does not say when a step begins."""

    def begins(self, step: int) -> None:
        """A loop begins with ``step``: what was kept for it is of a loop that was left before its end."""
        for kept in (self.noted, self.batches):
            for later in [one for one in kept if one >= step]:
                del kept[later]

    def keep(self, kept: dict[int, T], step: int, one: T) -> None:
        """``one`` belongs to ``step``, which begins: what is too long ago goes."""
        while kept and min(kept) <= step - self.kept:
            del kept[min(kept)]
        kept[step] = one

    def reaches(self, step: int) -> bool:
        """Whether all steps after this one can be done again, as far as they were begun here."""
        return not self.noted or step + 1 >= min(self.noted)
