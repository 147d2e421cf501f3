"""Loops in which a step may be taken back and made again: ``Guard.steps``, ``batches``, ``run``.

The same batch and the same random numbers come again with a step that is repeated. Without faultrun, and in a
script that cannot rejoin, these are plain loops and an exception is an exception.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, final

import torch.distributed as dist

from faultrun.sdk.torch.group.process_group import training_group
from faultrun.sdk.torch.loader import batch_shares
from faultrun.sdk.torch.state.rng import Rng, restore_rng
from faultrun.sdk.torch.stay.gradient_accumulation import WHY_NOT, adds_up
from faultrun.sdk.worker.save_files import Position
from faultrun.sdk.worker.update_lock import UpdatePhase

if TYPE_CHECKING:
    from faultrun.sdk.torch.guard import Guard
    from faultrun.sdk.torch.stay.rejoin import Rejoin

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


@final
class StepAttempt:
    """``with guard.attempt():`` around one step, which its end counts; a lost peer ends it quietly.

    When it has ended, the state is that of a whole step again: what the script does then, such as saving,
    finds nothing half done.
    """

    def __init__(self, guard: "Guard") -> None:
        self._guard = guard
        self._step = 0
        self.done = False
        """Whether the step stands. Otherwise it was taken back: ``guard.global_step`` is one before it."""

    def __enter__(self) -> "StepAttempt":
        self._guard.redo.attempted = True
        self._step, self.done = self._guard.position.step + 1, False  # the script may keep one for all steps
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        guard, rejoin = self._guard, self._guard.rejoin
        lost = error
        if error is None and rejoin is not None:
            lost = rejoin.found_broken()
        if lost is None:
            self._ends()
            self.done = True
            return False
        by_run = guard.redo.in_function  # which takes back, and enters its function again
        if rejoin is None or by_run or not isinstance(lost, Exception) or not rejoin.undoes(lost):
            if error is None:
                raise lost
            return False
        rejoin.settle()
        self.done = guard.position.step >= self._step  # others had finished it
        return True

    def _ends(self) -> None:
        guard = self._guard
        if guard.accumulating:
            return
        goes_on = adds_up(guard)
        if goes_on and guard.rejoin is not None and not guard.redo.in_function:
            guard.rejoin.cannot_any_more(WHY_NOT)
        if not (goes_on and guard.in_loop):  # a batch that ends no step, where batches are counted too
            guard.step()


class Redo:
    """What is needed to do a step again: its batch, and the random numbers as it began."""

    def __init__(self, guard: "Guard") -> None:
        self._guard = guard
        self._noted: dict[int, bytes] = {}
        self._batches: dict[int, Batch] = {}
        self.kept = 2
        """For so many steps. Ranks differ by one: that under way may come again, and the one before it."""
        self.attempted = False
        """Whether the step that was yielded last has been attempted."""
        self.in_function = False
        """Whether the script's own loop runs, which does not say when a step begins."""

    def begins(self, step: int, generator: Any, *, at_boundary: bool) -> None:
        """``step`` is about to be yielded, perhaps again. ``at_boundary``: nothing of it was fetched yet."""
        recorder, position = self._guard.recorder, self._guard.position
        slot = recorder.redo_slot
        if step in self._noted:
            recorder.take(slot, self._noted[step])
            restore_rng(recorder.read(slot), generator)
            return
        recorder.record(slot, position, generator)
        self._noted = self._newest(self._noted, step)
        self._noted[step] = recorder.content(slot)
        if at_boundary and self._guard.history:  # what the script did since the last step has drawn some
            recorder.record(self._guard.history[-1].rng, position, generator)

    def reaches(self, step: int) -> bool:
        """Whether all steps after this one can be done again, as far as they were begun here."""
        return not self._noted or step + 1 >= min(self._noted)

    def put_back(self) -> None:
        """Undo what the step under way has changed besides parameters and optimizers, which it has not."""
        guard = self._guard
        last, parts = guard.history[-1], guard.parts
        parts.buffers.put(parts.buffers.copies)
        for optimizer, groups in zip(parts.optimizers, last.groups, strict=True):
            for group, captured in zip(optimizer.param_groups, groups, strict=True):
                group.update({key: one for key, one in captured.items() if key != "params"})
        parts.objects.load_small(last.objects)
        rng = guard.recorder.read(last.rng)
        if self.in_function or last.position.step + 1 in self._noted:
            # else nothing of the step was done, and what was drawn since the last one is the script's own
            restore_rng(rng, guard.reading.generator)
        if self.in_function:
            guard.reading.resumes_at(last.position, rng, guard.reading.epoch_rng)
        guard.position = last.position

    def keep(self, step: int, batch: Batch) -> None:
        """The batch of ``step``."""
        self._batches = self._newest(self._batches, step)
        self._batches[step] = batch

    def batch(self, step: int) -> Batch | None:
        """The batch of ``step``, if it has been fetched before."""
        return self._batches.get(step)

    def _newest(self, kept: dict[int, T], step: int) -> dict[int, T]:
        """Without those that are too long ago, now that ``step`` begins."""
        while kept and min(kept) <= step - self.kept:
            del kept[min(kept)]
        return kept


def steps(guard: "Guard", last: int) -> Iterator[int]:
    """The steps up to ``last``, each again that was taken back."""
    rejoin = _rejoins_here(guard)
    if rejoin is not None:
        guard.begin_here()
        rejoin.enter()
    while True:
        if rejoin is not None:
            rejoin.settle()
        _leave_function_if_lost(guard)
        if guard.position.step >= last:
            if rejoin is None or rejoin.finish(_meet):
                return
            continue
        step = guard.position.step + 1
        if rejoin is not None:
            guard.redo.begins(step, None, at_boundary=True)
        guard.redo.attempted = False
        yield step
        if not guard.redo.attempted:  # the script has gone past it
            guard.step()


def batches(guard: "Guard", loader: Any, epoch: int) -> Iterator[Any]:
    """``Guard.batches``: of a script that can rejoin, among fewer ranks than there were, or plain."""
    if guard.sharing is not None:
        if guard.rejoin is not None:
            guard.rejoin.enter()  # which says that it cannot
        yield from batch_shares.batches(guard, guard.reading.open(loader, epoch), epoch)
    elif (rejoin := _rejoins_here(guard)) is not None and training_group() is not None:
        yield from _repeatable(guard, rejoin, loader, epoch)
    else:
        for batch in guard.reading.open(loader, epoch):
            _leave_function_if_lost(guard)
            last = guard.position
            guard.position = Position(last.step, epoch, (last.step_in_epoch or 0) + 1)
            guard.computes()
            yield batch
            if guard.lock.phase is not UpdatePhase.CLEAN:
                guard.step()


def _repeatable(guard: "Guard", rejoin: "Rejoin", loader: Any, epoch: int) -> Iterator[Any]:
    rejoin.enter()
    loaded = guard.reading.open(loader, epoch)
    given: Position | None = None
    while True:
        unended = guard.position is given  # the batch that was given last has ended no step
        if unended:
            rejoin.cannot_any_more(WHY_NOT)
        rejoin.settle()
        step = guard.position.step + 1
        batch = None if unended else guard.redo.batch(step)
        if batch is None:
            try:
                content = next(loaded)
            except StopIteration:
                rejoin.at_an_epochs_end()
                return
            batch = Batch(content, epoch, guard.position.step_in_epoch, guard.reading.epoch_rng)
            guard.redo.keep(step, batch)
        if not unended:
            guard.redo.begins(step, guard.reading.generator, at_boundary=False)
        given = guard.position = Position(step - 1, batch.epoch, (batch.step_in_epoch or 0) + 1)
        guard.reading.epoch_rng = batch.epoch_rng
        guard.redo.attempted = False
        guard.computes()
        yield batch.content
        if not guard.redo.attempted and guard.lock.phase is not UpdatePhase.CLEAN:
            guard.step()


def _rejoins_here(guard: "Guard") -> "Rejoin | None":
    """In a function for ``run`` only that does: what the function has made is of the group that is over."""
    return None if guard.redo.in_function else guard.rejoin


def _leave_function_if_lost(guard: "Guard") -> None:
    if guard.redo.in_function and guard.rejoin is not None:
        guard.rejoin.leave_if_lost()


def run(guard: "Guard", train: Callable[["Guard"], T]) -> T:
    """``train(guard)``, and again from the common step whenever a peer was lost in it."""
    rejoin = guard.rejoin
    if rejoin is None:
        return train(guard)
    guard.redo.in_function = True
    guard.begin_here()
    rejoin.enter()
    while True:
        guard.in_loop = False  # the function opens its loader anew
        rejoin.settle()
        try:
            result = train(guard)
        except Exception as error:
            if not rejoin.undoes(error):
                raise
            continue
        if rejoin.finish(_meet):
            return result


def _meet() -> None:
    """Wait for all ranks, unless the script has left their group by itself."""
    if dist.is_initialized():
        dist.barrier()
