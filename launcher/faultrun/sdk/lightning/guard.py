"""A training in Lightning's ``Trainer``: where its loops are, what comes next, what a gasp of it holds."""

from functools import partial
from typing import Any

from faultrun.sdk.lightning.checkpoint import STATE_KEY, checkpoint_of, hooked, parts_of
from faultrun.sdk.lightning.progress import FitPlace, Next
from faultrun.sdk.torch.group.same_parameters import SameParameters
from faultrun.sdk.torch.loader.loader_state import LoaderState
from faultrun.sdk.torch.provider import GaspFile, is_reached, settled
from faultrun.sdk.torch.rest_of_state import rest_of
from faultrun.sdk.torch.snapshots.last_boundary import LastBoundary
from faultrun.sdk.torch.state.boundary import Boundary
from faultrun.sdk.torch.state.rng import Rng, reseeded, rng_from_plain, rng_to_plain
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Position, SaveWriter
from faultrun.sdk.worker.update_lock import UpdatePhase
from faultrun.sdk.worker.worker import Worker

_SCHEMA = 1
_ERA = 1 << 40
"""Added to the batches in a name of the recorder before the validation after that batch, twice after it: the
place in the data is the same, the random numbers are others."""


class LightningGuard:
    """Made once the Trainer has its optimizers. Main thread only, except where a method says otherwise."""

    def __init__(self, trainer: Any, worker: Worker, writer: SaveWriter) -> None:
        self._trainer = trainer
        self._fit = trainer.fit_loop
        self._next = Next.BATCH
        self._position = Position()
        self._stepped: int | None = None
        self._before_validation: int | None = None
        self.batch_is_over = self.validated = self.epoch_is_over = False
        self.training = Training(partial(parts_of, trainer, self._standing), worker, writer)
        # Lightning runs the whole step inside of ``optimizer.step``, which begins before the update
        for number, optimizer in enumerate(self.training.parts.optimizers):
            optimizer.register_step_post_hook(partial(self.training.after_update, number))
        self.form = GaspFile(
            self.training,
            now=lambda: self._state_at(self._boundary_now(self.training.recorder.main_slot)),
            state=lambda boundary: self.training.parts.device.to_host(self._state_at(boundary)),
            suffix=".ckpt",
        )
        self._alike = SameParameters(self.training.parts, worker.session, writer.folder.replica_group)
        self._last = LastBoundary(self.training, worker, state=self.form.state)

    @property
    def epoch(self) -> int:
        """The epoch that the loops are in, or will begin."""
        return int(self._fit.epoch_progress.current.processed)

    @property
    def place(self) -> FitPlace:
        """Where a fit goes on that is resumed from the last boundary."""
        epoch, done = self._position.epoch or 0, self._position.step_in_epoch or 0
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

    def opened(self, epoch: int, state: LoaderState) -> None:
        """The batches of ``epoch`` are about to be opened; ``state`` is what their loaders keep."""
        place, recorder = self.training.reading, self.training.recorder
        place.generator = None if state.is_empty else state
        at = Position(self._trainer.global_step, epoch, 0)
        place.epoch_rng = recorder.read(recorder.epoch(at, place.loader_state(opening=True)))

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
            loader = self.training.reading.loader_state()
            self._before_validation = self.training.recorder.step(self._name(), loader)

    def fetches(self) -> None:
        """The next batch is fetched: a boundary, if anything was changed since the last one."""
        done = self._fit.epoch_loop.batch_progress.current.processed
        moved = self._trainer.global_step != self._position.step or self.validated
        if moved or not done or self.training.lock.phase is not UpdatePhase.CLEAN:
            self.boundary(Next.BATCH)

    def boundary(self, comes: Next) -> None:
        """All that belongs to the last step is over."""
        before = self._position.step
        self.stands_before(comes)
        self.training.note_boundary(self._boundary_now)
        if self._position.step != before:
            self._alike.stepped(self._position.step)
        if self._position.step != before and comes is not Next.VALIDATION:  # for which weights may be swapped
            self._last.stepped()

    def stands_before(self, comes: Next) -> None:
        """Take note of how far the loops are. Any thread, while the main thread stands still."""
        epoch = self.epoch
        done = self._fit.epoch_loop.batch_progress.current.processed
        if comes is Next.EPOCH and done:
            epoch, done = (epoch if self.epoch_is_over else epoch + 1), 0
        self._next = comes
        self._position = self.training.position = Position(self._trainer.global_step, epoch, done)

    def what_comes(self) -> Next:
        """What follows the batch that is over. Any thread, while the main thread stands still."""
        loop = self._fit.epoch_loop
        if self.epoch_is_over:
            return Next.EPOCH
        if (due := self._validation_is_due()) and not self.validated:
            return Next.VALIDATION
        if loop._num_ready_batches_reached():
            return Next.EPOCH_END if due else Next.EPOCH
        return Next.BATCH

    def under_way(self) -> None:
        """The forward pass is over: survivors can finish this step without this rank."""
        epoch = self.epoch
        done = self._fit.epoch_loop.batch_progress.current.ready
        following = Position(self._trainer.global_step + 1, epoch, done)
        self.training.recorder.under_way(following, self.training.reading.loader_state())

    def unended(self, step: int | None) -> Boundary | None:
        """What can be saved between an update and the next batch: once the batch has said that it is over."""
        training, now = self.training, int(self._trainer.global_step)
        if not self.batch_is_over or not training.history or step not in (None, now):
            return None
        self.stands_before(self.what_comes())
        return (
            self._boundary_now(training.recorder.helper_slot) if is_reached(training) else settled(training)
        )

    def _boundary_now(self, slot: int | None = None) -> Boundary:
        """What a boundary now would say; before a validation with the random numbers that it begins with."""
        noted = self._before_validation if self._next is Next.VALIDATION else None
        boundary = self.training.boundary_now(slot, self._name() if noted is None else self._of_era(3))
        return boundary if noted is None else boundary._replace(rng=noted)

    def _state_at(self, boundary: Boundary) -> dict[str, Any]:
        """The checkpoint at ``boundary``, as Lightning makes one. Any thread, while nothing changes."""
        ours = self.training.state_at(boundary)
        rest = rest_of(ours)
        loops = ours["objects"].pop("loops")
        checkpoint = checkpoint_of(self._trainer, ours, loops["numbers"], place_in(loops["standing"]))
        checkpoint["callbacks"][STATE_KEY] = self._own(loops["standing"], {**ours, "rest": rest})
        hooked(self._trainer, checkpoint, ours["objects"].get("hooks", {}))
        return checkpoint

    def own_state(self) -> dict[str, Any]:
        """What belongs into a checkpoint that Lightning writes now, on every rank, besides its own."""
        self.stands_before(self.what_comes() if self.batch_is_over else Next.BATCH)
        name, place, recorder = self._name(), self.training.reading, self.training.recorder
        recorder.keep(name, place.loader_state())
        rng = recorder.read(recorder.record(recorder.main_slot, name, place.loader_state()))
        began = None if place.epoch_rng is None else rng_to_plain(place.epoch_rng)
        rest = rest_of(self.training.state_now())
        return self._own(self._standing(), {"rng": rng_to_plain(rng), "epoch_rng": began, "rest": rest})

    def rng_of(self, own: dict[str, Any]) -> tuple[Rng | None, Rng | None]:
        """The random numbers of this rank at a place that any rank has saved, and at its epoch's beginning.

        Another rank's file does not have them: they are what this rank last noted, or new ones
        if it was killed in the instant between two notes.
        """
        rng, began = (None if own[key] is None else rng_from_plain(own[key]) for key in ("rng", "epoch_rng"))
        rank = self.training.writer.session.rank
        if own["rank"] == rank:
            return rng, began
        name = Position(*own["name"])
        recorder = self.training.recorder
        noted = recorder.at_step(name) or recorder.near_step(name.step)
        return noted or (rng and reseeded(rng, rank)), recorder.at_epoch(name.epoch) or began

    def _validation_is_due(self) -> bool:
        fetcher = self._fit._data_fetcher
        return fetcher is not None and bool(self._fit.epoch_loop._should_check_val_fx(fetcher))

    def _standing(self) -> dict[str, Any]:
        return {"place": (self.place.next.value, *self.place[1:]), "name": tuple(self._name())}

    def _own(self, standing: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        session = self.training.writer.session
        return {
            "faultrun": _SCHEMA,
            "rank": session.rank,
            "world_size": session.world_size,
            **standing,
            **{name: state[name] for name in ("rng", "epoch_rng", "rest")},
        }

    def _name(self) -> Position:
        return self._of_era(1 if self._next is Next.VALIDATION else 2 if self.validated else 0)

    def _of_era(self, era: int) -> Position:
        return self._position._replace(step_in_epoch=(self._position.step_in_epoch or 0) + era * _ERA)


def is_own(state: Any) -> bool:
    """Whether it is what this callback has added to a checkpoint."""
    return isinstance(state, dict) and state.get("faultrun") == _SCHEMA


def place_in(own: dict[str, Any]) -> FitPlace:
    """Where a fit goes on, as ``own`` state of this callback says."""
    comes, *rest = own["place"]
    return FitPlace(Next(comes), *rest)
