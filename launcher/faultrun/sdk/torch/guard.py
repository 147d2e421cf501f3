"""Protects a torch training: knows when its state is consistent, saves it when asked, and brings it back.

No copies of parameters are made in normal training. What happens when:

* between the end of a step (``Guard.step``, or asking ``Guard.batches`` for
  the next batch) and the next ``optimizer.step()``: the live state is that
  of the step, and may be saved at any time;
* inside ``optimizer.step()``: a request waits for it to return;
* after it, before the end of the step: a request waits for the end. Only
  when the main thread is stuck or has stopped there is the state saved as
  the next step's, and only if nothing of it is missing (``state.boundary``).
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from faultrun.errors import FaultrunError
from faultrun.model.checkpoint import Kind
from faultrun.model.observed.progress import WorkPhase
from faultrun.sdk.session import ResumePoint
from faultrun.sdk.torch.loader.batch_shares import InParts, check_shares, sharing_of
from faultrun.sdk.torch.loader.epoch_reader import EpochReader
from faultrun.sdk.torch.loader.loader_position import check_positions
from faultrun.sdk.torch.state.boundary import Boundary, Passage
from faultrun.sdk.torch.state.dcp import gathered, taken_apart
from faultrun.sdk.torch.state.rng import cuda_rng_if_used, restore_rng, rng_from_plain
from faultrun.sdk.torch.state.rng_recorder import recorder_of
from faultrun.sdk.torch.state.state_dict import Parts, assemble, batches_done, is_ours, load_into, read_state
from faultrun.sdk.torch.stay import step_attempts
from faultrun.sdk.torch.stay.rejoin import Rejoin
from faultrun.sdk.torch.stay.step_attempts import Redo
from faultrun.sdk.worker.save_files import Position, Saved, SaveWriter, numbered
from faultrun.sdk.worker.update_lock import UpdateLock
from faultrun.sdk.worker.worker import Worker

T = TypeVar("T")


class Guard(InParts):
    """What ``protect`` returns. Main thread only, except where a method says otherwise.

    Without faultrun (no ``worker``) it counts and opens loaders; only ``save`` and
    ``load`` look at the ``parts``.
    """

    def __init__(self, make_parts: Callable[[], Parts], worker: Worker | None, writer: SaveWriter) -> None:
        self._make_parts = make_parts
        self.writer = writer
        self.lock = UpdateLock()
        self.in_loop = False
        self.worker = worker
        """Who speaks to the supervisor."""
        group = writer.folder.replica_group
        self.is_shard = bool(group) and len(group) < writer.session.world_size
        """Whether a save of this rank serves only beside those of other ranks, of the same step."""
        self.sharing = sharing_of(writer.session)
        ahead = 2 if worker is None else self.parts.device.ahead
        self._mark = None if worker is None else self.parts.device.mark
        self.history: deque[Boundary] = deque(maxlen=ahead)
        self.position = Position()
        """Of the last whole step; while a batch is worked on, with that batch."""
        self.rejoin: Rejoin | None = None
        """How it outlives a peer; None without faultrun."""
        device_rng = cuda_rng_if_used if worker is None else self.parts.device.rng
        self.recorder = recorder_of(writer, ahead, device_rng, kept=worker is not None)
        self.reading = EpochReader(self)
        """Where it is in its loader."""
        self.redo = Redo(self)
        self._updates: list[int] = []
        if worker is not None:
            self._updates = [0] * len(self.parts.optimizers)
            self._watch()

    @cached_property
    def parts(self) -> Parts:
        """What is protected."""
        return self._make_parts()

    @property
    def global_step(self) -> int:
        """Steps completed since the very first start."""
        return self._place().step

    @property
    def epoch(self) -> int:
        """The epoch to go on in, as the script counts; 0 when nothing was resumed."""
        return self._place().epoch or 0

    @property
    def step_in_epoch(self) -> int:
        """How many batches of ``epoch`` are consumed."""
        return self._place().step_in_epoch or 0

    def resume(self, load: Callable[[str], object] | None = None) -> ResumePoint | None:
        """Put back everything, random numbers too, from where faultrun says; None when training starts anew.

        A checkpoint in a format of your own is given to ``load(path)``; its
        step and epoch are then those that faultrun read from it.
        FaultrunError when nothing can load the file.
        """
        point = self.worker.session.point if self.worker is not None else None
        if point is None:
            return None
        state = read_state(point.path)
        if is_ours(state):
            self.load(state)
        elif load is not None:
            self.position = Position(step=point.step or 0, epoch=point.epoch)
            load(point.path)
        else:
            why = "it is not one of faultrun.sdk.torch" if state is not None else "torch.load refuses it"
            raise FaultrunError(
                f"nothing loads the checkpoint {point.path}",
                because=why,
                hint="guard.resume(load=...) with a function that loads your own format",
            )
        return point

    def load(self, state: Any) -> None:
        """Put back a state that ``save`` or a dying gasp wrote, as ``torch.load`` returns it.

        From another rank's file the random numbers are this rank's own, as it
        last noted them; when it was killed in the instant between two notes, new ones.
        """
        position = load_into(self.parts, state)
        rng, epoch_rng = (
            None if state[key] is None else rng_from_plain(state[key]) for key in ("rng", "epoch_rng")
        )
        if state["rank"] != self.writer.session.rank:
            rng, epoch_rng = self.reading.own_numbers(position, rng, epoch_rng)
        if self.worker is not None:  # of other launchers nobody knows here how many ranks there are
            done = batches_done(state, self.writer.session.batch_ranks)
            position = position._replace(step_in_epoch=done)
        self.position = position
        if rng is not None:
            restore_rng(rng)
            self.reading.resumes_at(position, rng, epoch_rng)

    def state_dict(self) -> dict[str, Any]:
        """Place, objects and all random numbers for ``dcp.save({..., "guard": guard})``, by all ranks.

        ``fabric.save`` asks for it too; for ``torch.save`` call it on all ranks and save on one.
        """
        rng = self.recorder.read(
            self.recorder.record(self.recorder.main_slot, self.position, self.reading.generator)
        )
        objects = self.parts.objects.states()
        full = self.writer.session.full_world_size
        return {**gathered(self.position, rng, self.reading.epoch_rng, full), "objects": objects}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what ``state_dict`` returned, among any number of ranks."""
        self.position, rng, epoch_rng = taken_apart(state, self.writer.session.full_world_size)
        self.parts.objects.load(state["objects"])
        restore_rng(rng)
        self.reading.resumes_at(self.position, rng, epoch_rng)

    def batches(self, loader: Any, epoch: int) -> Iterator[Any]:
        """The batches of ``loader`` in ``epoch``; after a resume only those that are not done yet.

        Asking for the next batch ends a step, unless ``step`` did. Samplers and loaders
        with ``set_epoch`` are told the epoch. FaultrunError, under faultrun, for a loader
        whose place in an epoch could not be found again. Where ranks were left out a step may have several
        batches: see ``weight`` and ``accumulating``.
        """
        if self.worker is not None:
            check_positions(loader)
            if self.writer.session.full_world_size:
                check_shares(loader)
        self.in_loop = True
        yield from step_attempts.batches(self, loader, epoch)
        self._leaves_loop()

    def steps(self, last: int) -> Iterator[int]:
        """The global steps up to ``last`` that are not done yet, for a script that fetches its own data.

        Each with ``with guard.attempt():`` around all that it does. Where a rank dies in it, the others
        take it back, and it comes again. The first call is where a rank that takes a dead one's place waits
        for it; nothing before may need other ranks but building the model.
        """
        return step_attempts.steps(self, last)

    def attempt(self) -> "step_attempts.StepAttempt":
        """One step, around all that talks to other ranks; do not call ``step`` too.

        In ``steps``, ``batches`` or ``run``. An exception of the script's own comes out of it as ever. What
        follows it in the loop runs for a step that was taken back, too: ``done`` of what it returns says so.
        """
        return step_attempts.StepAttempt(self)

    def run(self, train: Callable[["Guard"], T]) -> T:
        """``train(guard)``, called again to go on after ``guard.global_step`` whenever a rank has died.

        For scripts that own their loop: all that touches a process group is made inside of ``train``.
        """
        return step_attempts.run(self, train)

    def step(self, n: int | None = None, epoch: int | None = None) -> None:
        """A step is complete: call it right after the last of optimizer, scheduler, scaler and averages.

        ``n`` is the global step, by default one more than the last. In
        particular before anything that talks to other ranks: what is lost
        with a dead peer then is nothing.
        """
        last = self.position
        self.position = Position(
            last.step + 1 if n is None else n, last.epoch if epoch is None else epoch, last.step_in_epoch
        )
        self.note_boundary()
        if self.worker is not None:
            self.worker.step(self.position.step, self.position.epoch)
        if self.rejoin is not None:
            self.rejoin.stepped()
        if self.is_shard:
            self.lock.let_read()  # going on, it would help peers past the step that is being saved here

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """Mark a change of parameters that no protected optimizer makes, such as clipping them."""
        self._begin()
        yield  # an exception leaves the state marked as half changed, which it is
        self.lock.end()

    def save(self, path: str | Path) -> Saved:
        """Write the whole state to ``path``, with a manifest, between two steps: your periodic checkpoint.

        By any one rank, with its random numbers (``state_dict``: of all), under a new name. Behind a loop
        over ``batches`` as of the last step: what is done between two epochs is done again. OSError.
        """
        before = self._works_at(WorkPhase.SAVING)
        boundary = self.reading.ended or self.boundary_now(self.recorder.main_slot)
        state = self.parts.device.to_host(self.state_at(boundary))
        name, write = numbered(Path(path)), partial(torch.save, state)
        saved = self.writer.save(name, boundary.position, write, Kind.PERIODIC)
        self._works_at(before)
        return saved

    def state_at(self, boundary: Boundary) -> dict[str, Any]:
        """The state at ``boundary``, where it lies. Any thread, while the main thread changes nothing."""
        newest = self.history[-1] if self.history else boundary
        if newest.position.step <= boundary.position.step:
            newest = boundary
        rng = self.recorder.read(boundary.rng), self.reading.epoch_rng
        return assemble(self.parts, boundary, newest, rng, self.writer.session)

    def boundary_now(self, slot: int | None = None) -> Boundary:
        """What a boundary at this moment would say. Any thread, while the main thread stands still.

        The random numbers go into this slot of the recorder; None: into the next one of its ring.
        """
        recorder, parts, objects = self.recorder, self.parts, self.parts.objects
        place = self._noted_as(), self.reading.generator
        rng = recorder.step(*place) if slot is None else recorder.record(slot, *place)
        parts.buffers.capture()
        # a scheduler may change the hyperparameters before the next update
        groups = [[group.copy() for group in one.param_groups] for one in parts.optimizers]
        updates = tuple(self._updates) or (0,) * len(groups)
        return Boundary(self.position, rng, groups, objects.capture(), objects.versions(), updates)

    def _watch(self) -> None:
        """Be told of every update, and of the end of every forward pass."""
        for number, optimizer in enumerate(self.parts.optimizers):
            optimizer.register_step_pre_hook(self._before_update)
            optimizer.register_step_post_hook(partial(self._after_update, number))
        if self.parts.forward_hooks and self.writer.session.world_size > 1:
            self.parts.model.register_forward_hook(self._after_forward)

    def _capture(self) -> None:
        if self.worker is not None:
            boundary = self.boundary_now()
            if self._mark is not None:
                boundary = boundary._replace(passage=Passage(done=self._mark()))
            self.history.append(boundary)

    def _noted_as(self) -> Position:
        """The name that the random numbers of this moment get in the recorder."""
        return self.position

    def _after_forward(self, model: Any, *_: object) -> None:
        """From here on the survivors can finish this step without us, and we may wait for them."""
        self._works_at(WorkPhase.COLLECTIVE if model.training else WorkPhase.EVALUATING)
        if model.training:
            self.note_under_way()
            if self.rejoin is not None:
                self.rejoin.forward_done()

    def note_under_way(self) -> None:
        """Note the random numbers of the step under way: others can finish it without us from here on."""
        if self.rejoin is None or self.rejoin.inside:
            self.recorder.under_way(
                self.position._replace(step=self.position.step + 1), self.reading.generator
            )

    def begin_here(self) -> None:
        """A loop begins: no new step, but a place to go on from."""
        if not self.history:
            self.note_boundary()

    def note_boundary(self) -> None:
        """A step is complete, or there is a place like its end to go on from."""
        self.lock.boundary(self._capture)

    def came_back(self) -> None:
        """The state is that of ``position`` again, by whatever way."""
        while self.history and self.history[-1].position.step >= self.position.step:
            self.history.pop()
        if self.in_loop:  # its loader is open
            self.reading.resumes_here()
        self.note_boundary()

    def computes(self) -> None:
        """A step begins."""
        self._works_at(WorkPhase.COMPUTING)

    def _place(self) -> Position:
        """Where to go on. A newcomer does not know until it has taken its place."""
        if self.rejoin is not None and self.rejoin.of_newcomer:
            self.rejoin.enter()
        return self.position

    def _leaves_loop(self) -> None:
        self.in_loop = False
        self.reading.ends()
        self._works_at(WorkPhase.UNKNOWN)  # what a script does between and after its epochs takes its time

    def _works_at(self, phase: WorkPhase) -> WorkPhase:
        return self.worker.works_at(phase) if self.worker is not None else phase

    def _before_update(self, *_: object) -> None:
        if self.rejoin is not None:
            self.rejoin.check()
        self._check_update()
        self._works_at(WorkPhase.UPDATING)
        self._begin()

    def _after_update(self, number: int, *_: object) -> None:
        self._updates[number] += 1
        self.lock.end()

    def _begin(self) -> None:
        self.lock.begin()
        passage = self.history[-1].passage if self.history else None
        if self._mark is not None and passage is not None and passage.left is None:
            passage.left = self._mark()
