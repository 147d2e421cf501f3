"""Where a training is in its loader: with which random numbers the epoch began, and where it goes on.

A loop that the script has left is not begun again by a resume. One over steps is known by its last step. It
may only pause (the script comes to it again), or end for this run: another run goes on with it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.loader.batch_notes import BatchNotes, batch_digest
from faultrun.sdk.torch.loader.loader_position import check_positions, reads_ahead
from faultrun.sdk.torch.loader.loader_state import LoaderState
from faultrun.sdk.torch.state.boundary import Boundary
from faultrun.sdk.torch.state.rng import Rng, restore_rng
from faultrun.sdk.worker.save_files import Position

ResumedAt = tuple[Position, Rng, Rng | None]
"""A place, and the random numbers there and at its epoch's beginning."""

LoopsLeft = tuple[bool, dict[int, int], str]
"""Whether a loop over an epoch was left; loops over steps: by the last one, where they were; in which run."""


class EpochPlace:
    """Place of one training in its epoch. Main thread. ``notes`` of batches that are read: under faultrun."""

    def __init__(self, notes: BatchNotes | None = None, run_id: str = "") -> None:
        self._notes, self._run_id = notes, run_id
        self._is_anew = True
        self._resumed: ResumedAt | None = None
        self.generator: LoaderState | None = None
        """What the loader that is open keeps of its own, its random generators above all; None: nothing."""
        self._state_of: tuple[tuple[Any, ...], LoaderState] | None = None
        self.epoch_rng: Rng | None = None
        """The random numbers at the beginning of the epoch, from which its order follows."""
        self.epoch: int | None = None
        """What the loop has that was opened last."""
        self._begun: int | None = None
        """The epoch that was opened last, unless it comes again."""
        self._listed: int | None = None
        """A digest of the list that was given last."""
        self._ended: Boundary | None = None
        self._left: Position | None = None
        """Where a loop was left before its loader's end."""
        self._steps_left: dict[int, int] = {}
        self._to_end: set[int] = set()
        """Loops over steps that were left before the save that is resumed, and end at once."""
        self._pauses: set[int] = set()
        """Those that have begun again after they were left."""
        self.is_fresh = False
        """Whether a loader was opened, which has drawn its seed, and no batch was given of it."""
        self._open: dict[object, int] = {}
        """Epochs of loops that have begun and not ended, by loop."""

    def resumes_at(
        self, position: Position, rng: Rng, epoch_rng: Rng | None, left: LoopsLeft | bool | None = None
    ) -> None:
        """The next loop goes on at ``position``, with these random numbers, unless it was ``left`` there.

        An earlier version has saved of the loop over an epoch alone that it was left.
        """
        self._resumed, self._ended = (position, rng, epoch_rng), None
        self._begun, self._is_anew = None, False
        early, steps, run_id = left if isinstance(left, tuple) else (bool(left), {}, "")
        self._left = position if early else None
        self._steps_left = dict(steps) if run_id and run_id == self._run_id else {}
        self._to_end = {*self._steps_left}

    def puts_numbers_back(self, position: Position) -> None:
        """Steps begin that open no loader: if a save is resumed at ``position``, with its random numbers."""
        if self._resumed is not None and self._resumed[0] == position:
            restore_rng(self._resumed[1], self.generator)

    def forgets(self) -> None:
        """No batch need come as it did: training starts anew, or with other random numbers."""
        if self._notes is not None:
            self._notes.forget()

    def is_over(self, epoch: int) -> bool:
        """Whether ``epoch`` was done before the save that is resumed."""
        return self._resumed is not None and epoch < (self._resumed[0].epoch or 0)

    @contextmanager
    def is_open(self, epoch: int) -> Iterator[None]:
        """A loop over ``epoch`` goes on, until it is let go of."""
        loop = object()
        self._open[loop] = epoch
        try:
            yield
        finally:
            self._open.pop(loop, None)

    def lets_go(self) -> None:
        """What had opened the loops begins anew."""
        self._open.clear()

    def check(self, loader: Any, epoch: int) -> None:
        """FaultrunError: no rank could come back to a place in this loop."""
        check_positions(loader)
        for other in self._open.values():
            raise FaultrunError(
                "guard.batches cannot find its place in two loops at once",
                because=f"one over epoch {epoch} begins while that over epoch {other} goes on",
                hint="give it one loader: a class with set_epoch(epoch) whose __iter__ opens both",
            )
        if self._begun is not None and epoch <= self._begun:
            raise FaultrunError(
                f"guard.batches cannot tell two loops over epoch {epoch} apart",
                because=f"one over epoch {self._begun} began before; a place is an epoch and a batch in it",
                hint="give each loop a number that grows: guard.batches(second, 2 * epoch + 1)",
            )
        if isinstance(loader, list | tuple):
            listed, before = batch_digest(loader), self._listed
            if before not in (None, listed):
                raise FaultrunError(
                    "guard.batches cannot make this order of batches again",
                    because=f"the {type(loader).__name__} of epoch {epoch} was made before it was given,"
                    " and is another than the one before",
                    hint="give it a DataLoader, or a class whose __iter__ makes it as set_epoch told",
                )
            self._listed = listed
        self.state_of(loader).check()

    def enters(self, loader: Any, epoch: int) -> ResumedAt | None:
        """A loop over ``epoch`` begins; where it goes on, None where nothing is resumed."""
        self.epoch, self._begun, self._ended = epoch, epoch, None
        if self._is_anew:
            self.forgets()
        self._is_anew = False
        state = self._state_of[1] if self._is_of(loader) and self._state_of else self.state_of(loader)
        self.generator = None if state.is_empty else state
        resumed, self._resumed = self._resumed, None
        return resumed if resumed is not None and resumed[0].epoch == epoch else None

    def state_of(self, *loaders: Any) -> LoaderState:
        """What these loaders keep, and kept when they were first seen. No batch of them is open."""
        if not self._is_of(*loaders) or self._state_of is None:
            ahead = not loaders[1:] and reads_ahead(loaders[0])
            self._state_of = loaders, LoaderState(*loaders, reads_ahead=ahead)
        else:
            self._state_of[1].look()
        return self._state_of[1]

    def _is_of(self, *loaders: Any) -> bool:
        return self._state_of is not None and [*map(id, self._state_of[0])] == [*map(id, loaders)]

    def read(self, batches: Iterator[Any], loader: Any, epoch: int, done: int) -> Iterator[Any]:
        """What ``batches`` has of ``epoch`` after ``done``, each noted. FaultrunError: it is another now."""
        self.is_fresh = True
        if self.generator is not None:
            self.generator.is_opened()
        return self._read(batches, loader, epoch, done)

    def _read(self, batches: Iterator[Any], loader: Any, epoch: int, done: int) -> Iterator[Any]:
        apart, before = bool(getattr(loader, "num_workers", 0)), done
        while True:
            if self.generator is not None:
                self.generator.fetches()
            try:
                batch = next(batches)
            except StopIteration:
                return
            done += 1
            if self._notes is not None:
                self._notes.note(epoch, done, batch, apart=apart)
                if not (done - before) & (done - before - 1):
                    self.finds_more()  # with the first batch, the second, the fourth
            yield batch

    def finds_more(self, state: Any = None, read: Callable[[], object] = lambda: None) -> None:
        """Find what samples have made to draw from; what the loader's ``state`` has once a batch is ``read``.

        FaultrunError: it is not there even then, or does not tell where it is.
        """
        if self._state_of is not None:
            own = self._state_of[1]
            own.look_again()
            if own.lacks(state):
                read()
                own.look_again()
            own.check(state)
            self.generator = None if own.is_empty else own

    def note_inputs(self, step: int, inputs: Any) -> None:
        """What the model is given in ``step``, outside of a loop over batches."""
        if self._notes is not None:
            if self._is_anew:
                self.forgets()
            self._is_anew = False
            self._notes.note_inputs(step, inputs)

    def loader_state(self, *, opening: bool = False) -> Any:
        """What the loader that is open keeps, as a state; ``opening``: as it is opened."""
        return None if self.generator is None else self.generator.get_state(opening=opening)

    def leaves(self, boundary: Boundary | None, position: Position, *, early: bool) -> None:
        """The loop over an epoch has ended, behind this boundary; ``early``: before its loader has."""
        self._ended = boundary
        self._left = position if early else None
        if self.generator is not None and self._notes is not None:
            self.generator.ends()
            if not early:
                self.generator.check_settled(ends=True)

    def was_left(self, position: Position) -> bool:
        """Whether the loop does not go on at ``position``, although its loader may."""
        return self._left == position

    def enters_steps(self, last: int) -> bool:
        """A loop over the steps up to ``last`` begins; whether it ends at once."""
        if is_over := last in self._to_end:
            self._to_end.discard(last)
        elif self._steps_left.pop(last, None) is not None:
            self._pauses.add(last)
        return is_over

    def leaves_steps(self, last: int, position: Position) -> None:
        """The loop over the steps up to ``last`` is left before."""
        if last not in self._pauses:
            self._steps_left[last] = position.step

    def left_at(self, position: Position) -> LoopsLeft:
        """What was left before ``position``, as ``resumes_at`` takes it."""
        steps = {last: step for last, step in self._steps_left.items() if step <= position.step}
        return self.was_left(position), steps, self._run_id

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
        return f"the ranks that are left go on at {where}: the script counts epochs, and is not turned back"
