"""Loops in which a step may be taken back and made again: ``Guard.steps``, ``batches``, ``run``.

The same batch and the same random numbers come again with a step that is repeated. Without faultrun, and in a
script that cannot rejoin, these are plain loops and an exception is an exception.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, final

import torch.distributed as dist

from faultrun.errors import FaultrunError
from faultrun.sdk.torch.group.empty_places import NeedsAllRanks
from faultrun.sdk.torch.group.fsdp2 import groups_of
from faultrun.sdk.torch.group.process_group import training_group
from faultrun.sdk.torch.loader.batch_shares import lost_parts, shared_out
from faultrun.sdk.torch.loader.loader_position import opened, opened_after, set_epoch
from faultrun.sdk.torch.state.check import BEGINNING
from faultrun.sdk.torch.state.rng import restore_rng
from faultrun.sdk.torch.state.shards import local_of
from faultrun.sdk.torch.stay.redo import Batch, KeptBatch
from faultrun.sdk.torch.stay.rejoin import Rejoin
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Position
from faultrun.sdk.worker.training_stages import told
from faultrun.sdk.worker.update_lock import UpdatePhase

T = TypeVar("T")

_IN_PLACE = "the script has changed the batch of the step that would come again"

_NO_COPY = "the batch of the step that would come again cannot be copied"

_ADDS_UP = "gradients are added up over several batches, which only a function for guard.run can do again"
"""Gradients that wait for an update, which a later batch makes, are in no state that is saved."""


@dataclass(frozen=True, slots=True)
class Loops:
    """Loops of a guard: ``step`` counts one, ``goes_on`` follows it; ``rejoin`` is None without faultrun."""

    training: Training
    rejoin: Rejoin | None
    step: Callable[[], None]
    goes_on: Callable[[], None]

    def steps(self, last: int) -> Iterator[int]:
        """The steps up to ``last``, each again that was taken back."""
        training, rejoin = self.training, self._rejoins_here
        training.reading.puts_numbers_back(training.position)
        if rejoin is not None:
            training.begin_here()
            rejoin.enter()
        if training.reading.enters_steps(last):
            told(f"guard.steps({last}) was left early before the fault, and ends at once")
            return
        training.redo.begins(training.position.step + 1)
        while True:
            if rejoin is not None:
                rejoin.settle()
            self._leave_function_if_lost()
            if training.position.step >= last:
                if rejoin is None or rejoin.finish(_meet):
                    return
                continue
            self.goes_on()
            step = training.position.step + 1
            if rejoin is not None:
                training.begin_step(step, is_still=training.is_still)
            training.checks(BEGINNING)
            training.redo.attempted = False
            yield step
            if not training.redo.attempted:  # the script has gone past it
                self.step()

    def batches(self, loader: Any, epoch: int) -> Iterator[Any]:
        """Batches of a script that can rejoin, among fewer ranks than there were, or plain."""
        training, sharing = self.training, self.training.sharing
        if sharing is not None:
            if self.rejoin is not None:
                self.rejoin.enter()  # which says that it cannot
            yield from self._shares(self._opened(loader, epoch), epoch)
        elif (rejoin := self._rejoins_here) is not None and training_group() is not None:
            yield from self._repeatable(rejoin, loader, epoch)
        else:
            for batch in self._opened(loader, epoch):
                self._leave_function_if_lost()
                training.takes_batch(epoch)
                training.checks(BEGINNING, batch)
                yield batch
                self.step_if_changed()
                self.goes_on()

    def run(self, train: Callable[[], T]) -> T:
        """``train()``, and again from the common step whenever a peer was lost in it."""
        training, rejoin = self.training, self.rejoin
        training.reading.puts_numbers_back(training.position)
        if rejoin is None:
            return train()
        training.redo.in_function = True
        training.begin_here()
        rejoin.enter()
        while True:
            training.in_loop = False  # the function opens its loader anew
            training.reading.lets_go()
            rejoin.settle()
            try:
                result = train()
            except Exception as error:
                if not rejoin.undoes(error):
                    raise
                continue
            if rejoin.finish(_meet):
                return result

    def _shares(self, loaded: Iterator[Any], epoch: int) -> Iterator[Any]:
        """Among fewer ranks: a step ends with its last part."""
        now, begins = self.training.in_parts, True
        if not self.training.is_shard:
            now.watch(self.training.parts.optimizers, lost_parts)
        for content, part, more in loaded:
            if begins:
                self.training.takes_batch(epoch)
            now.weight, now.accumulating, begins = part.weight, more, not more
            now.begins()
            yield content
            if more:
                now.ends()
            else:
                self.step_if_changed()
                self.goes_on()
        now.end()

    def _repeatable(self, rejoin: Rejoin, loader: Any, epoch: int) -> Iterator[Any]:
        training, redo, now = self.training, self.training.redo, self.training.in_parts
        rejoin.enter()
        rejoin.train_on.reads(loader)
        loaded = self._opened(loader, epoch)
        redo.begins(training.position.step + 1)
        if not training.is_unused and comes_again(training):
            rejoin.cannot_any_more(_ADDS_UP)
        training.missing.opens(loader, epoch)
        given: Position | None = None
        while True:
            unended = training.position is given  # the batch that was given last has ended no step
            if unended:
                rejoin.cannot_any_more(_ADDS_UP)
            rejoin.settle()
            while rejoin.lets_in():
                rejoin.settle()
            self.goes_on()
            step = training.position.step + 1
            redo.copies_batches |= any(one.kept.is_changed for one in redo.batches.values())
            batch = None if unended else redo.batches.get(step)
            if batch is not None:
                content = _again(batch.kept, rejoin)
            else:
                try:
                    content = next(loaded)
                except StopIteration:
                    rejoin.at_an_epochs_end()
                    return
                kept = KeptBatch(content, is_copied=redo.copies_batches)
                here = training.position  # perhaps still behind the epoch before
                done = here.step_in_epoch if here.epoch == epoch else 0
                batch = Batch(kept, epoch, done, training.reading.epoch_rng)
                redo.keep(redo.batches, step, batch)
            if not unended:
                training.begin_step(step)
            training.is_given_batch(Position(step - 1, batch.epoch, (batch.step_in_epoch or 0) + 1))
            given, training.reading.epoch_rng = training.position, batch.epoch_rng
            training.checks(BEGINNING, content)
            parts = training.missing.parts(content, loader, epoch, batch.step_in_epoch or 0)
            while (one := _next(parts, rejoin)) is not None:
                part, now.weight, now.accumulating = one
                now.begins()
                redo.attempted = False
                with now.given():
                    yield part
                if training.position is not given:
                    break  # all of it is done, or taken back
            now.end()
            if not redo.attempted:
                self.step_if_changed()

    def _opened(self, loader: Any, epoch: int) -> Iterator[Any]:
        """The batches that are left, with the random numbers as they were at this place."""
        training, place, recorder = self.training, self.training.reading, self.training.recorder
        if place.is_over(epoch):
            return iter(())  # the loop begins at 0 again
        resumed = place.enters(loader, epoch)
        set_epoch(loader, epoch)
        if training.check is not None:
            apart = bool(getattr(loader, "num_workers", 0))
            training.check.excuse("batch", "processes of the loader may draw numbers for it" if apart else "")
        opening = training.worker is not None
        if resumed is None:
            unended = _is_unended(training)
            training.position = Position(training.position.step, epoch, 0)
            place.epoch_rng = recorder.read(
                recorder.epoch(training.position, place.loader_state(opening=opening))
            )
            if not unended:
                training.note_boundary()  # an epoch begins: no new step, but a place to go on from
            if (rejoin := self._rejoins_here) is not None:
                rejoin.at_an_epochs_end()
            return self._from(loader, epoch, 0)
        position, rng, epoch_rng = resumed
        training.position = position
        place.epoch_rng = epoch_rng or rng
        place.finds_more(rng.loader, lambda: next(opened(loader, refuses=False), None))
        set_epoch(loader, epoch)  # it may have been opened for it
        restore_rng(place.epoch_rng, place.generator)
        recorder.epoch(position, place.loader_state(opening=opening))
        left = place.was_left(position)
        batches = iter(()) if left else self._from(loader, epoch, position.step_in_epoch or 0, rng.loader)
        if position.step_in_epoch:
            restore_rng(rng, place.generator)
        training.came_back()
        return batches

    def _from(self, loader: Any, epoch: int, done: int, state: Any = None) -> Iterator[Any]:
        """After ``done`` steps; among fewer ranks than the run began with, this one's share (``sharing``).

        ``state`` is the loader's there.
        """
        training, place = self.training, self.training.reading
        if training.sharing is not None:
            return shared_out(loader, training.sharing, done)
        ahead, refuses = place.generator, training.worker is not None
        if not done:
            batches = opened(loader, refuses=refuses)
        else:
            as_then = (lambda: None) if ahead is None else partial(ahead.fetches_as, state)
            batches = opened_after(loader, done, as_then, refuses=refuses)
        return place.read(batches, loader, epoch, done)

    def step_if_changed(self) -> None:
        """The script is done with the batch that it was given."""
        if self.training.lock.phase is not UpdatePhase.CLEAN:
            self.step()

    @property
    def _rejoins_here(self) -> Rejoin | None:
        """In a function for ``run`` only ``run`` does: what it has made is of the group that is over."""
        return None if self.training.redo.in_function else self.rejoin

    def _leave_function_if_lost(self) -> None:
        if self.training.redo.in_function and self.rejoin is not None:
            self.rejoin.leave_if_lost()


@final
class StepAttempt:
    """``with guard.attempt():`` around one step, which its end counts; a lost peer ends it quietly.

    When it has ended, the state is that of a whole step again: what the script does then, such as saving,
    finds nothing half done.
    """

    def __init__(self, loops: Loops) -> None:
        self._loops = loops
        self._step = 0
        self.done = False
        """Whether the step stands. Otherwise it was taken back: ``guard.global_step`` is one before it."""

    def __enter__(self) -> "StepAttempt":
        training, rejoin = self._loops.training, self._loops.rejoin
        training.redo.attempted = True
        if rejoin is not None:
            rejoin.train_on.attempts(begins=True)
        self._step, self.done = training.position.step + 1, False  # the script may keep one for all steps
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        training, rejoin = self._loops.training, self._loops.rejoin
        lost = error
        if rejoin is not None:
            rejoin.train_on.attempts(begins=False)
            lost = rejoin.found_broken() if error is None else error
        if lost is None:
            try:
                self._ends()
            except NeedsAllRanks as needed:
                lost = needed
            else:
                self.done = not training.in_parts.accumulating
                return False
        by_run = training.redo.in_function  # which takes back, and enters its function again
        if rejoin is None or by_run or not isinstance(lost, Exception) or not rejoin.undoes(lost):
            if error is None:
                raise lost
            return False
        rejoin.settle()
        self.done = training.position.step >= self._step  # others had finished it
        return True

    def _ends(self) -> None:
        training, rejoin = self._loops.training, self._loops.rejoin
        if training.in_parts.accumulating:
            training.in_parts.ends()
            return
        goes_on = _adds_up(training)
        if goes_on and rejoin is not None and not training.redo.in_function:
            rejoin.cannot_any_more(_ADDS_UP)
        if not (goes_on and training.in_loop):  # a batch that ends no step, where batches are counted too
            self._loops.step()


def _again(kept: KeptBatch, rejoin: Rejoin) -> Any:
    """Give the batch of a step that comes again. PeerLost: it cannot be."""
    if kept.is_changed or not kept.is_kept:
        raise rejoin.gives_up(_IN_PLACE if kept.is_changed else _NO_COPY)
    return kept.again()


def _next(parts: Iterator[T], rejoin: Rejoin) -> T | None:
    """Read the next part of a step; None behind the last, or once a rank is there that it needs."""
    try:
        return next(parts, None)
    except NeedsAllRanks as error:
        if not rejoin.undoes(error):
            raise
    rejoin.settle()
    return None


def _adds_up(training: Training) -> bool:
    """Whether there are gradients, and nothing was updated or changed since the last boundary."""
    try:
        if training.has_update or any(map(training.has_changed, [*training.history][-1:])):
            return False
        return _has_gradients(training.parts)
    except FaultrunError:  # without faultrun nothing is refused
        return False


def _is_unended(training: Training) -> bool:
    """Whether batches since the last boundary made no update: gradients wait, or the script has skipped them.

    It may have skipped them for the error of a lost peer, and then they come again. Not so that at which it
    has left its loop, and with which nothing was done.
    """
    here = training.position
    last = training.history[-1].position if training.history else here
    return last != here and last.step <= here.step and not training.reading.was_left(here)


def comes_again(training: Training) -> bool:
    """Whether batches since the last boundary come again in a training that goes on from a save made now.

    Nothing was done with them yet, or their gradients, which no save holds, wait for an update to come.
    """
    if not training.history or training.history[-1].position == training.position:
        return False
    if training.is_unused:
        return not training.reading.was_left(training.position)
    return training.lock.phase is UpdatePhase.CLEAN and _has_gradients(training.parts)


def _has_gradients(parts: Any) -> bool:
    ours = (
        one for optimizer in parts.optimizers for group in optimizer.param_groups for one in group["params"]
    )
    if any(one.grad is not None and bool(local_of(one.grad).any()) for one in ours):
        return True
    return any(  # which fully_shard keeps to itself until it may talk to the other ranks
        not getattr(group, "reduce_grads", True)
        for module in parts.model.modules()
        if callable(getattr(module, "_get_fsdp_state", None))
        for group in groups_of(module._get_fsdp_state())
    )


def _meet() -> None:
    """Wait for all ranks, unless the script has left their group by itself."""
    if dist.is_initialized():
        dist.barrier()
