"""The boundaries of one training, where its state is that of a whole step: noted, saved, and gone back to.

Here is all that ``sdk.torch`` works on. It knows none of its users: neither the script's ``Guard``, nor the
helper thread's provider, nor what outlives a peer (``stay``).
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from faultrun.sdk.session import ResumePoint
from faultrun.sdk.torch.loader.batch_notes import BatchNotes
from faultrun.sdk.torch.loader.epoch_place import EpochPlace
from faultrun.sdk.torch.state.boundary import Boundary, Passage
from faultrun.sdk.torch.state.check import BEGINNING, BOUNDARY, check_of, living
from faultrun.sdk.torch.state.rng import Rng, cuda_rng_if_used, reseeded, restore_rng, rng_from_plain
from faultrun.sdk.torch.state.rng_recorder import recorder_of
from faultrun.sdk.torch.state.state_dict import Parts, assemble, batches_done, load_into
from faultrun.sdk.torch.state.step_under_way import StepUnderWay
from faultrun.sdk.torch.state.trees import copied
from faultrun.sdk.torch.stay.redo import Redo
from faultrun.sdk.worker.save_files import Position, SaveWriter
from faultrun.sdk.worker.state_provider import check_folder
from faultrun.sdk.worker.training_stages import told
from faultrun.sdk.worker.update_lock import UpdateLock, UpdatePhase
from faultrun.sdk.worker.worker import Worker


class Boundaries:
    """Boundaries of one training of this process. Main thread only, except where a method says otherwise.

    Without faultrun (no ``worker``) nothing is noted, and ``parts`` are made when something looks at them.
    With it FaultrunError for a folder that cannot be meant.
    """

    def __init__(self, make_parts: Callable[[], Parts], worker: Worker | None, writer: SaveWriter) -> None:
        if worker is not None:
            check_folder(writer.folder, writer.session)
            worker.point_for(writer.folder.path)
        self._make_parts, self.writer = make_parts, writer
        self.lock = UpdateLock()
        self.in_loop = False
        self.worker = worker
        """Who speaks to the supervisor."""
        ahead = 2 if worker is None else self.parts.device.ahead
        self._mark = None if worker is None else self.parts.device.mark
        self.history: deque[Boundary] = deque(maxlen=ahead)
        self.position = Position()
        """The place after the last whole step; while a batch is worked on, with that batch."""
        self.survivors_stay = False
        """Whether a rank may have outlived others here, which ended its step for it."""
        self.inside = True
        """Whether this rank has its place among the others; one that takes a dead one's has it late."""
        device_rng = cuda_rng_if_used if worker is None else self.parts.device.rng
        noted = self.parts.objects.noted if worker is not None else None
        self.recorder = recorder_of(writer, ahead, device_rng, noted)
        self.check = check_of(writer) if worker is not None else None
        self.reading = EpochPlace(BatchNotes(writer) if worker is not None else None, writer.session.run_id)
        self.redo = Redo()
        self._counted = None if worker is None else StepUnderWay(self.parts, self.recorder)
        if worker is not None:
            self.parts.stage = worker.providers + 1
        self.kept: tuple[Boundary, Any] | None = None
        """A boundary, and a copy of its state on the host."""

    @cached_property
    def parts(self) -> Parts:
        """What is protected."""
        return self._make_parts()

    @property
    def point(self) -> ResumePoint | None:
        """Where faultrun says that it is to go on, if anywhere."""
        return self.worker.session.point if self.worker is not None else None

    @property
    def has_update(self) -> bool:
        """Whether something was done since the last boundary that ends a step: an update, or a scaler's skip.

        Without one that boundary stays the place to go on from: the error of a collective may have left the
        update out, and the script have caught it.
        """
        then = self.history[-1].objects if self.history else {}
        return self.lock.phase is not UpdatePhase.CLEAN or self.parts.objects.have_skipped(then)

    @property
    def is_touched(self) -> bool:
        """Whether parameters were changed since the last boundary, and no update has begun. Any thread."""
        now = self._counted
        return now is not None and self.lock.phase is UpdatePhase.CLEAN and now.has_changed_parameters

    @property
    def under_way(self) -> StepUnderWay:
        """What is counted of the step under way, under faultrun."""
        assert self._counted is not None, "without faultrun nothing is counted"
        return self._counted

    def whole_now(self) -> Boundary | None:
        """What the step under way would end with, if all of it is done. Any thread, as ``boundary_now``."""
        now = self.boundary_now(self.recorder.helper_slot)
        following, loader = self.position.step + 1, self.reading.loader_state
        return now if self.under_way.is_whole(self.history[-1], now, following, loader) else None

    def note_boundary(self, now: Callable[[], Boundary] | None = None) -> None:
        """A step is complete, or there is a place like its end to go on from.

        ``now`` makes the boundary where that is not ``boundary_now``, while it is not read.
        """

        def capture() -> None:
            if self.worker is not None:
                boundary = self.boundary_now() if now is None else now()
                if self._mark is not None:
                    boundary = boundary._replace(passage=Passage(done=self._mark()))
                self.history.append(boundary)
            if self._counted is not None:
                self._counted.boundary()

        self.lock.boundary(capture)
        self.checks(BOUNDARY)

    def has_changed(self, last: Boundary) -> bool:
        """Whether hyperparameters or objects have, since that boundary."""
        parts = self.parts
        return parts.updated.have_changed(last.groups) or parts.objects.have_changed(last.objects)

    def checks(self, when: str, batch: Any = None, *, drawn: bool = False) -> None:
        """In check mode: the state before a step that comes again is that of the first try. FaultrunError.

        ``drawn``: as of random numbers, too; between two steps a script may draw some.
        """
        if (check := self.check) is None:
            return
        now = living(self.parts, self.reading.loader_state(), batch)
        left_out = ("gradient",) if drawn else ("gradient", "random")
        check.compare(when, self.position, now, () if when is BEGINNING else left_out)
        if self.inside:
            check.write(when, self.position, now)

    def resumed(self) -> None:
        """What was saved is there again, and a step may come that was tried before."""
        if self.check is not None:
            self.check.comes_back()
            self.checks(BOUNDARY, drawn=True)

    def boundary_now(self, slot: int | None = None, name: Position | None = None) -> Boundary:
        """What a boundary at this moment would say. Any thread, while the main thread stands still.

        The random numbers go into this slot of the recorder; None: into the next one of its ring. They get
        this name there; None: that of the position. In a slot of those who only look, it is no boundary, and
        the buffers of the last one stay.
        """
        recorder, parts, objects = self.recorder, self.parts, self.parts.objects
        place = self.position if name is None else name, self.reading.loader_state()
        rng = recorder.step(*place) if slot is None else recorder.record(slot, *place)
        buffers = None
        if slot in (recorder.main_slot, recorder.helper_slot):
            buffers, states = copied(parts.buffers.now()), copied(objects.now())
        else:
            parts.buffers.capture()
            states = objects.capture()
        # a scheduler may change the hyperparameters before the next update
        groups = parts.updated.groups()
        updates = (0,) * len(groups) if self._counted is None else tuple(self._counted.updates)
        began = self.reading.epoch_rng
        trained, passes = parts.updated.now(), parts.next_pass.now()
        return Boundary(self.position, rng, groups, states, updates, trained, passes, began, buffers=buffers)

    def state_at(self, boundary: Boundary) -> dict[str, Any]:
        """The state at ``boundary``, where it lies. Any thread, while the main thread changes nothing."""
        newest = self.history[-1] if self.history else boundary
        if newest.position.step <= boundary.position.step:
            newest = boundary
        rng = self.recorder.read(boundary.rng), boundary.epoch_rng
        state = assemble(self.parts, boundary, newest, rng, self.writer.session)
        return {**state, "left": self.reading.left_at(boundary.position)}

    def state_now(self) -> dict[str, Any]:
        """The state of this moment, where it lies. Main thread."""
        return self.state_at(self.boundary_now(self.recorder.main_slot))

    def host_state_at(self, boundary: Boundary) -> Any:
        """The state at ``boundary``, on the host, as ``load`` takes it. Any thread, as ``state_at``."""
        return self.parts.device.to_host(self.state_at(boundary))

    def load(self, state: Any, alike: Iterable[str] = ()) -> None:
        """Put back what ``state_at`` made. From another rank's the random numbers are this rank's own.

        Where it has none, those that are ``alike`` on all others are theirs.
        """
        self.kept = None  # of what is not what came before this state
        if self._counted is not None:
            self._counted.distrusts_parameters()
        position = load_into(self.parts, state)
        rng, epoch_rng = (
            None if state[key] is None else rng_from_plain(state[key]) for key in ("rng", "epoch_rng")
        )
        if state["rank"] != self.writer.session.rank:
            self.has_buffers_of_another(f"rank {state['rank']}")
            rng, epoch_rng = self._own_numbers(position, rng, epoch_rng, alike)
            self.puts_own_objects(b"" if rng is None else rng.noted, f"rank {state['rank']}")
        if self.worker is not None:  # of other launchers it is unknown how many ranks there are
            done = batches_done(state, self.writer.session.batch_ranks)
            position = position._replace(step_in_epoch=done)
        self.position = position
        if rng is not None:
            restore_rng(rng)
            self.reading.resumes_at(position, rng, epoch_rng, state.get("left"))

    def has_buffers_of_another(self, giver: str = "the rank that saved") -> None:
        """This rank's buffers are ``giver``'s, which each forward pass hands to all anyway."""
        if self.check is not None and self.writer.session.world_size > 1:
            self.check.excuse("buffer", f"they come from {giver}")

    def puts_own_objects(self, noted: bytes, giver: str) -> None:
        """Put back what this rank has ``noted`` of its own objects, where those of ``giver`` were loaded."""
        if names := self.parts.objects.put_noted(noted):
            told(f"objects ({', '.join(names)}) are those of {giver}, which saved")

    def tell_whose_buffers(self, giver: int, saved: Iterable[str] | None = None) -> None:
        """This rank has those of rank ``giver``: all, or what is ``saved`` but no parameter, as metrics."""
        trained = {name for name, _ in self.parts.model.named_parameters(remove_duplicate=False)}
        held = self.parts.buffers.now() if saved is None else saved
        names = [name for name in held if name not in trained]
        if names and giver != self.writer.session.rank:
            told(
                f"buffers ({', '.join(names[:3])}) are those of rank {giver}, which saved: another"
                " training goes on where ranks have buffers of their own"
            )

    def _own_numbers(
        self, position: Position, rng: Rng | None, epoch_rng: Rng | None, alike: Iterable[str]
    ) -> tuple[Rng | None, Rng | None]:
        """This rank's random numbers at ``position`` and at its epoch's beginning, as it last noted them.

        ``rng`` and ``epoch_rng`` are another rank's: without a note, new ones are made from them.
        """
        recorder = self.recorder
        noted, began = recorder.at_step(position), recorder.at_epoch(position.epoch)
        if noted is None and (self.survivors_stay or position.step_in_epoch == 0):
            noted = recorder.near_step(position.step)  # it may not have begun this epoch
            began = noted if position.step_in_epoch == 0 else began
        if noted is None:
            self.reading.forgets()
            told(f"the random numbers of this rank at step {position.step} are not known: it draws new ones")
        return noted or (rng and reseeded(rng, self.writer.session.rank, alike)), began or epoch_rng

    def is_broken_off(self) -> None:
        """The step under way will not be ended by the script, which may be in the midst of an evaluation."""
        self.parts.buffers.put_settings()

    def put_back(self) -> None:
        """Undo what the step under way has changed besides parameters and optimizers, which it has not."""
        last, parts, redo = self.history[-1], self.parts, self.redo
        parts.buffers.put_back()
        parts.updated.put_back(last.groups, last.trained)
        parts.objects.put_back(last.objects)
        parts.next_pass.put(last.next_pass)
        rng = self.recorder.read(last.rng)
        if redo.in_function or last.position.step + 1 in redo.noted:
            # else nothing of the step was done, and what was drawn since the last one is the script's own
            restore_rng(rng, self.reading.generator)
        if redo.in_function:
            left = self.reading.left_at(last.position)
            self.reading.resumes_at(last.position, rng, last.epoch_rng, left)
        self.position = last.position

    def came_back(self) -> None:
        """The state is that of ``position`` again, by whatever way."""
        if self.check is not None:
            self.check.comes_back()
        while self.history and self.history[-1].position.step >= self.position.step:
            self.history.pop()
        if self.in_loop:  # its loader is open
            self.reading.resumes_here()
        self.note_boundary()
