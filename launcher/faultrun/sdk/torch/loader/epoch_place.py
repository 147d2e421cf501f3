"""Where a training is in its loader: with which random numbers the epoch began, and where it goes on."""

from typing import Any

from faultrun.sdk.torch.loader.loader_state import LoaderState
from faultrun.sdk.torch.state.boundary import Boundary
from faultrun.sdk.torch.state.rng import Rng, restore_rng
from faultrun.sdk.worker.save_files import Position

ResumedAt = tuple[Position, Rng, Rng | None]
"""A place, and the random numbers there and at its epoch's beginning."""


class EpochPlace:
    """Of one training. Main thread."""

    def __init__(self) -> None:
        self._resumed: ResumedAt | None = None
        self.generator: LoaderState | None = None
        """What the loader that is open keeps of its own, its random generators above all; None: nothing."""
        self._state_of: tuple[tuple[Any, ...], LoaderState] | None = None
        self.epoch_rng: Rng | None = None
        """The random numbers at the beginning of the epoch, from which its order follows."""
        self.epoch: int | None = None
        """Of the loop that was opened last."""
        self._ended: Boundary | None = None

    def resumes_at(self, position: Position, rng: Rng, epoch_rng: Rng | None) -> None:
        """The next loop goes on at ``position``, with these random numbers."""
        self._resumed, self._ended = (position, rng, epoch_rng), None

    def is_over(self, epoch: int) -> bool:
        """Whether ``epoch`` was done before the save that is resumed."""
        return self._resumed is not None and epoch < (self._resumed[0].epoch or 0)

    def enters(self, loader: Any, epoch: int) -> ResumedAt | None:
        """A loop over ``epoch`` begins; where it goes on, None where nothing is resumed."""
        self.epoch, self._ended = epoch, None
        state = self.state_of(loader)
        self.generator = None if state.is_empty else state
        resumed, self._resumed = self._resumed, None
        return resumed if resumed is not None and resumed[0].epoch == epoch else None

    def state_of(self, *loaders: Any) -> LoaderState:
        """What these loaders keep, as they were when they were first seen."""
        if self._state_of is None or [*map(id, self._state_of[0])] != [*map(id, loaders)]:
            self._state_of = loaders, LoaderState(loaders if loaders[1:] else loaders[0])
        return self._state_of[1]

    def loader_state(self, *, opening: bool = False) -> Any:
        """What the loader that is open keeps, as a state; ``opening``: as it is opened."""
        return None if self.generator is None else self.generator.get_state(opening=opening)

    def leaves(self, boundary: Boundary | None) -> None:
        """The loop over an epoch has ended, behind this boundary."""
        self._ended = boundary

    def ended(self, position: Position) -> Boundary | None:
        """Where a script at ``position`` is between two epochs: the end of its last step.

        What it does there, such as a step of its scheduler, it does again after a resume.
        """
        return self._ended if self._ended is not None and self._ended.position == position else None

    def resumes_here(self) -> None:
        """The loop that is open goes on, from a state that was loaded meanwhile."""
        if self._resumed is not None:
            restore_rng(self._resumed[1], self.generator)
            self._resumed = None

    def why_not_at(self, position: Position) -> str:
        """Why the loop that is open cannot go on at ``position``; "" if it can.

        The script counts epochs, and what it does between two, such as a step of its scheduler, is done once.
        """
        if self.epoch is None or position.epoch is None or position.epoch == self.epoch:
            return ""
        where = f"step {position.step} of epoch {position.epoch}, and this rank is in epoch {self.epoch}"
        return f"the ranks that are left go on at {where}: the script counts epochs, and nobody turns it back"
