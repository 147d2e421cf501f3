"""What is needed to do a step again: its batch, and the random numbers as it began."""

from dataclasses import dataclass
from typing import Any, TypeVar

from faultrun.sdk.torch.state.rng import Rng

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batch:
    """What was yielded for one step, and where that was: the place at its beginning, its epoch and that one's
    random numbers.
    """

    content: Any
    epoch: int | None
    step_in_epoch: int | None
    epoch_rng: Rng | None


class Redo:
    """Of one training, by global step. Main thread."""

    def __init__(self) -> None:
        self.noted: dict[int, bytes] = {}
        """The recorder's slot as each step began."""
        self.batches: dict[int, Batch] = {}
        self.kept = 2
        """For so many steps. Ranks differ by one: that under way may come again, and the one before it."""
        self.attempted = False
        """Whether the step that was yielded last has been attempted."""
        self.in_function = False
        """Whether the script's own loop runs, which does not say when a step begins."""

    def keep(self, kept: dict[int, T], step: int, one: T) -> None:
        """``one`` belongs to ``step``, which begins: what is too long ago goes."""
        while kept and min(kept) <= step - self.kept:
            del kept[min(kept)]
        kept[step] = one

    def reaches(self, step: int) -> bool:
        """Whether all steps after this one can be done again, as far as they were begun here."""
        return not self.noted or step + 1 >= min(self.noted)
