"""A ``Guard`` over Lightning's ``Trainer``: knows where its loops are, and what comes next."""

from functools import partial
from typing import Any

from faultrun.sdk.lightning.checkpoint import STATE_KEY, Contents, checkpoint_of, hooked
from faultrun.sdk.lightning.progress import FitPlace, Next
from faultrun.sdk.torch.guard import Guard
from faultrun.sdk.torch.provider import TorchProvider
from faultrun.sdk.torch.state.boundary import Boundary, passes
from faultrun.sdk.torch.state.rng import Rng, reseeded, rng_from_plain, rng_to_plain
from faultrun.sdk.torch.state.state_dict import emptied
from faultrun.sdk.worker.save_files import Position, SaveWriter
from faultrun.sdk.worker.update_lock import UpdatePhase
from faultrun.sdk.worker.worker import Worker

_SCHEMA = 1
_ERA = 1 << 40
"""Added to the batches in a name of the recorder before the validation after that batch, twice after it: the
place in the data is the same, the random numbers are others."""


class LightningGuard(Guard):
    """Made once the Trainer has its optimizers. Main thread only, except where a method says otherwise."""

    def __init__(self, trainer: Any, worker: Worker, writer: SaveWriter) -> None:
        self._trainer = trainer
        self._fit = trainer.fit_loop
        self._next = Next.BATCH
        self.position = Position()
        self._stepped: int | None = None
        self._before_validation: int | None = None
        self.batch_is_over = False
        self.validated = False
        self.epoch_is_over = False
        contents = Contents(trainer, self._standing)
        super().__init__(contents.parts, worker, writer)

    @property
    def epoch(self) -> int:
        """The epoch that the loops are in, or will begin."""
        return int(self._fit.epoch_progress.current.processed)

    @property
    def global_step_now(self) -> int:
        """Updates so far, as Lightning counts them."""
        return int(self._trainer.global_step)

    @property
    def place(self) -> FitPlace:
        """Where a fit goes on that is resumed from the last boundary."""
        epoch, done = self.position.epoch or 0, self.position.step_in_epoch or 0
        stepped = self._fit.epoch_loop._batches_that_stepped
        if self._stepped is not None:
            stepped = self._stepped + (self._next is not Next.VALIDATION)
        loop = self._fit.epoch_loop
        match self._next:  # a validation that a fit leaves out as it goes on counts as a batch
            case Next.BATCH:
                stepped -= self.validated if done else self._validation_is_due()
            case Next.EPOCH if self._trainer.max_steps != -1:
                stepped -= loop._should_check_val_epoch()
        return FitPlace(self._next, epoch, done, stepped)

    def opened(self, epoch: int, generator: Any) -> None:
        """The batches of ``epoch`` are about to be opened; ``generator`` shuffles them, if they have one."""
        self.reading.generator = generator
        position = Position(self._trainer.global_step, epoch, 0)
        self.reading.epoch_rng = self.recorder.read(self.recorder.epoch(position, generator))

    def begins_batch(self) -> None:
        """A batch is there and is trained now."""
        self._stepped = self._fit.epoch_loop._batches_that_stepped
        self.batch_is_over = self.validated = self.epoch_is_over = False
        self._before_validation = None

    def ends_batch(self) -> None:
        """The step is made. A validation that follows draws random numbers before it says so."""
        self.batch_is_over = True
        if self.what_comes() is Next.VALIDATION:
            self.stands_before(Next.VALIDATION)
            self._before_validation = self.recorder.step(self._name(), self.reading.generator)

    def fetches(self) -> None:
        """The next batch is fetched: a boundary, if anything was changed since the last one."""
        done = self._fit.epoch_loop.batch_progress.current.processed
        moved = self._trainer.global_step != self.position.step or self.validated
        if moved or not done or self.lock.phase is not UpdatePhase.CLEAN:
            self.boundary(Next.BATCH)

    def boundary(self, comes: Next) -> None:
        """All that belongs to the last step is over."""
        self.stands_before(comes)
        self.lock.boundary(self._capture)

    def stands_before(self, comes: Next) -> None:
        """Take note of how far the loops are. Any thread, while the main thread stands still."""
        epoch = self.epoch
        done = self._fit.epoch_loop.batch_progress.current.processed
        if comes is Next.EPOCH and done:
            epoch, done = (epoch if self.epoch_is_over else epoch + 1), 0
        self._next = comes
        self.position = Position(self._trainer.global_step, epoch, done)

    def what_comes(self) -> Next:
        """What follows the batch that is over. Any thread, while the main thread stands still."""
        loop = self._fit.epoch_loop
        if self.epoch_is_over:
            return Next.EPOCH
        due = self._validation_is_due()
        if due and not self.validated:
            return Next.VALIDATION
        if loop._num_ready_batches_reached():
            return Next.EPOCH_END if due else Next.EPOCH
        return Next.BATCH

    def about_to_update(self) -> None:
        """The gradients are there, and the optimizer uses them now."""
        self._before_update()

    def changes_until_the_next_boundary(self) -> None:
        """From here on nothing may be saved."""
        self._begin()

    def under_way(self) -> None:
        """The forward pass is over: survivors can finish this step without this rank."""
        epoch = self.epoch
        done = self._fit.epoch_loop.batch_progress.current.ready
        self.recorder.under_way(Position(self._trainer.global_step + 1, epoch, done), self.reading.generator)

    def boundary_now(self, slot: int | None = None) -> Boundary:
        """As ``Guard.boundary_now``; before a validation with the random numbers that it begins with."""
        boundary = super().boundary_now(slot)
        if self._next is Next.VALIDATION and self._before_validation is not None:
            return boundary._replace(rng=self._before_validation)
        return boundary

    def state_at(self, boundary: Boundary) -> dict[str, Any]:
        """The checkpoint at ``boundary``, as Lightning makes one. Any thread, while nothing changes."""
        ours = super().state_at(boundary)
        loops = ours["objects"].pop("loops")
        checkpoint = checkpoint_of(self._trainer, ours, loops["numbers"], place_in(loops["standing"]))
        checkpoint["callbacks"][STATE_KEY] = self._own(loops["standing"], ours)
        hooked(self._trainer, checkpoint, ours["objects"].get("hooks", {}))
        return checkpoint

    def own_state(self) -> dict[str, Any]:
        """What belongs into a checkpoint that Lightning writes now, on every rank, besides its own."""
        self.stands_before(self.what_comes() if self.batch_is_over else Next.BATCH)
        name = self._name()
        self.recorder.keep(name, self.reading.generator)
        rng = self.recorder.read(self.recorder.record(self.recorder.main_slot, name, self.reading.generator))
        began = None if self.reading.epoch_rng is None else rng_to_plain(self.reading.epoch_rng)
        return self._own(self._standing(), {"rng": rng_to_plain(rng), "epoch_rng": began})

    def rng_of(self, own: dict[str, Any]) -> tuple[Rng | None, Rng | None]:
        """The random numbers of this rank at a place that any rank has saved, and at its epoch's beginning.

        Another rank's file does not have them: they are what this rank last noted, or new ones
        if it was killed in the instant between two notes.
        """
        rng, began = (None if own[key] is None else rng_from_plain(own[key]) for key in ("rng", "epoch_rng"))
        rank = self.writer.session.rank
        if own["rank"] == rank:
            return rng, began
        name = Position(*own["name"])
        noted = self.recorder.at_step(name) or self.recorder.near_step(name.step)
        return noted or (rng and reseeded(rng, rank)), self.recorder.at_epoch(name.epoch) or began

    def _validation_is_due(self) -> bool:
        fetcher = self._fit._data_fetcher
        return fetcher is not None and bool(self._fit.epoch_loop._should_check_val_fx(fetcher))

    def _standing(self) -> dict[str, Any]:
        return {"place": (self.place.next.value, *self.place[1:]), "name": tuple(self._name())}

    def _own(self, standing: dict[str, Any], rng: dict[str, Any]) -> dict[str, Any]:
        session = self.writer.session
        return {
            "faultrun": _SCHEMA,
            "rank": session.rank,
            "world_size": session.world_size,
            **standing,
            "rng": rng["rng"],
            "epoch_rng": rng["epoch_rng"],
        }

    def _name(self) -> Position:
        return self._of_era(1 if self._next is Next.VALIDATION else 2 if self.validated else 0)

    def _noted_as(self) -> Position:
        noted = self._next is Next.VALIDATION and self._before_validation is not None
        return self._of_era(3) if noted else self._name()

    def _of_era(self, era: int) -> Position:
        return self.position._replace(step_in_epoch=(self.position.step_in_epoch or 0) + era * _ERA)

    def _watch(self) -> None:
        """Lightning runs the whole step inside ``optimizer.step``, which begins before the update."""
        for number, optimizer in enumerate(self.parts.optimizers):
            optimizer.register_step_post_hook(partial(self._after_update, number))


def is_own(state: Any) -> bool:
    """Whether it is what this callback has added to a checkpoint."""
    return isinstance(state, dict) and state.get("faultrun") == _SCHEMA


def place_in(own: dict[str, Any]) -> FitPlace:
    """Where a fit goes on, as ``own`` state of this callback says."""
    comes, *rest = own["place"]
    return FitPlace(Next(comes), *rest)


class LightningProvider(TorchProvider):
    """Over a ``LightningGuard``: writes ``.ckpt`` files that Lightning reads."""

    suffix = ".ckpt"

    def __init__(self, guard: LightningGuard) -> None:
        super().__init__(guard)
        self._fit = guard

    def _no_tensors(self) -> tuple[Any, bool]:
        guard = self._fit
        return emptied(guard.state_at(guard.boundary_now(guard.recorder.main_slot))), False

    def _updated_and_whole(self, step: int | None) -> bool:
        """Between an update and the next batch a state is whole once the batch has said that it is over."""
        guard = self._fit
        if not guard.batch_is_over or not guard.history or step not in (None, guard.global_step_now):
            return False
        guard.stands_before(guard.what_comes())
        mark = guard.parts.device.mark
        if mark is None or passes(mark(), 0.05):
            self._chosen = guard.boundary_now(guard.recorder.helper_slot)
        else:
            self._chosen = self._settled()
        return self._chosen is not None
