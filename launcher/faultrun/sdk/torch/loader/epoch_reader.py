"""The way through a loader: with which random numbers an epoch began, and where it goes on after a resume."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from faultrun.sdk.torch.loader.batch_shares import shared_out
from faultrun.sdk.torch.loader.loader_position import generator_of, opened, opened_after, set_epoch
from faultrun.sdk.torch.state.rng import Rng, reseeded, restore_rng
from faultrun.sdk.worker.save_files import Position

if TYPE_CHECKING:
    from faultrun.sdk.torch.guard import Guard
    from faultrun.sdk.torch.state.boundary import Boundary


class EpochReader:
    """Of one guard. Main thread."""

    def __init__(self, guard: "Guard") -> None:
        self._guard = guard
        self._resumed: tuple[Position, Rng, Rng | None] | None = None
        self.generator: Any = None
        """The one that shuffles, if the loader has one of its own."""
        self.epoch_rng: Rng | None = None
        """The random numbers at the beginning of the epoch, from which its order follows."""
        self.epoch: int | None = None
        """Of the loop that was opened last."""
        self._ended: Boundary | None = None

    def resumes_at(self, position: Position, rng: Rng, epoch_rng: Rng | None) -> None:
        """The next loop goes on at ``position``, with these random numbers."""
        self._resumed, self._ended = (position, rng, epoch_rng), None

    def ends(self) -> None:
        """The loop over an epoch has ended."""
        self._ended = self._guard.history[-1] if self._guard.history else None

    @property
    def ended(self) -> "Boundary | None":
        """Where the script is between two epochs: the end of its last step.

        What it does there, such as a step of its scheduler, it does again after a resume.
        """
        between = self._ended is not None and self._ended.position == self._guard.position
        return self._ended if between else None

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

    def own_numbers(
        self, position: Position, rng: Rng | None, epoch_rng: Rng | None
    ) -> tuple[Rng | None, Rng | None]:
        """This rank's random numbers at ``position`` and at its epoch's beginning, as it last noted them.

        ``rng`` and ``epoch_rng`` are another rank's: without a note, new ones are made from them.
        """
        guard, recorder = self._guard, self._guard.recorder
        noted, began = recorder.at_step(position), recorder.at_epoch(position.epoch)
        if noted is None and guard.rejoin is not None:  # it may have ended the step, and not begun an epoch
            noted = recorder.near_step(position.step)
            began = noted if position.step_in_epoch == 0 else began
        return noted or (rng and reseeded(rng, guard.writer.session.rank)), began or epoch_rng

    def open(self, loader: Any, epoch: int) -> Iterator[Any]:
        """The batches that are left, with the random numbers as they were at this place."""
        guard, recorder = self._guard, self._guard.recorder
        if self._resumed is not None and epoch < (self._resumed[0].epoch or 0):
            return iter(())  # it was done before the save; the loop begins at 0 again
        self.epoch, self._ended = epoch, None
        self.generator = generator = generator_of(loader)
        resumed, self._resumed = self._resumed, None
        set_epoch(loader, epoch)
        if resumed is None or resumed[0].epoch != epoch:
            guard.position = Position(guard.position.step, epoch, 0)
            self.epoch_rng = recorder.read(recorder.epoch(guard.position, generator))
            guard.note_boundary()  # an epoch begins: no new step, but a place to go on from
            if guard.rejoin is not None and not guard.redo.in_function:
                guard.rejoin.at_an_epochs_end()
            return self._opened(loader, 0)
        position, rng, epoch_rng = resumed
        guard.position = position
        self.epoch_rng = epoch_rng or rng
        restore_rng(self.epoch_rng, generator)
        recorder.epoch(position, generator)
        batches = self._opened(loader, position.step_in_epoch or 0)
        if position.step_in_epoch:
            restore_rng(rng, generator)
        guard.came_back()
        return batches

    def _opened(self, loader: Any, done: int) -> Iterator[Any]:
        """After ``done`` steps; among fewer ranks than the run began with, this one's share (``sharing``)."""
        if self._guard.sharing is not None:
            return shared_out(loader, self._guard.sharing, done)
        return opened_after(loader, done) if done else opened(loader)
