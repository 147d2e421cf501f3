"""What is trained and how far it is: what follows from what the script does, update by update."""

import threading
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from faultrun.errors import FaultrunError
from faultrun.model.observed.progress import WorkPhase
from faultrun.sdk.torch.boundaries import Boundaries
from faultrun.sdk.torch.loader.batch_shares import InParts, sharing_of
from faultrun.sdk.torch.loader.missing_samples import MissingSamples
from faultrun.sdk.torch.script_stages import Stage
from faultrun.sdk.torch.state.boundary import Boundary
from faultrun.sdk.torch.state.carried import Carried
from faultrun.sdk.torch.state.rng import restore_rng
from faultrun.sdk.torch.state.state_dict import Parts
from faultrun.sdk.worker.save_files import Position, SaveWriter
from faultrun.sdk.worker.training_stages import told
from faultrun.sdk.worker.update_lock import UpdatePhase
from faultrun.sdk.worker.worker import Worker

_MANY_UPDATES = 100


class Training(Boundaries):
    """One training of this process. Main thread only, except where a method says otherwise."""

    def __init__(self, make_parts: Callable[[], Parts], worker: Worker | None, writer: SaveWriter) -> None:
        super().__init__(make_parts, worker, writer)
        group = writer.folder.replica_group
        self.is_shard = bool(group) and len(group) < writer.session.world_size
        """Whether a save of this rank serves only beside those of other ranks, of the same step."""
        self.sharing = sharing_of(writer.session)
        self.broken: Callable[[], Exception | None] = lambda: None
        """Tells why gradients of the step under way are worth nothing."""
        self.in_parts = InParts()
        self.missing = MissingSamples(writer.session.rank)
        self._ran = False
        """Whether the model ran since the last boundary, which may change its buffers."""
        self._is_seen = False
        """Whether it was seen to run before."""
        self._is_asked = False
        self._decides = threading.Event()
        """The script has gone on from the last step, or has left its loop."""
        self._decides.set()
        """Whether the script asks for its steps, and so tells where one begins."""
        self.carried = Carried(self._is_given, self.note_under_way)
        self._told: set[str] = set()
        self.is_still = False
        """Whether the last boundary had these random numbers as the script asked for its next step."""
        self._is_unused = self._is_ahead = False
        """Whether a batch was taken that the model was not given yet, and another while it was so."""
        self.is_over = False
        """Whether the script has said so, or has begun another."""

    def watch(self, before_update: Callable[..., None], after_forward: Callable[..., None]) -> list[Any]:
        """Be told of every update, and have these told of it, too; the hooks, each with ``remove``."""
        hooks = []
        for number, optimizer in enumerate(self.parts.optimizers):
            hooks.append(optimizer.register_step_pre_hook(before_update))
            hooks.append(optimizer.register_step_post_hook(partial(self.after_update, number)))
        hooks += self.carried.watch(self.parts.watched, self.parts.optimizers)
        if self.writer.session.world_size > 1:
            hooks += [one.register_forward_hook(after_forward) for one in self.parts.watched]
        return hooks

    def before_update(self, *_: object) -> None:
        """An optimizer is about to step. FaultrunError where it must not."""
        self.in_parts.check_update()
        self.works_at(WorkPhase.UPDATING)
        self.begin()

    def after_update(self, number: int, *_: object) -> None:
        """That optimizer has stepped. PeerLost where its closure's gradients are worth nothing."""
        if (broken := self.broken()) is not None:
            raise broken
        now = self.under_way
        now.updates[number] += 1
        self.in_parts.updated()
        if self.carried.is_late or now.whole.looks:
            self.note_under_way(updated=True)
        self.end()
        now.has_updated(self.position.step + 1, self.reading.loader_state)
        if self.history and now.updates[number] - self.history[-1].updates[number] == _MANY_UPDATES:
            self._tell(f"{_MANY_UPDATES} updates were made since a step ended: is guard.step() missing?")

    def _is_given(self, inputs: Any) -> None:
        """The model is given these: the same, if the step comes again."""
        if not self.in_loop:
            self.reading.note_inputs(self.position.step + 1, inputs)
        last = self.history[-1] if self.history and not self._is_asked else None
        if last is not None and last.position == self.position and self.has_changed(last):
            self._tell(
                "objects or learning rates are changed behind guard.step(), perhaps by an evaluation, which a"
                " fault in the next step loses: guard.steps() and guard.batches() keep it"
            )

    def after_forward(self, model: Any, *_: object) -> None:
        """From here on the survivors can finish this step without us, and we may wait for them."""
        self._ran = True
        self.works_at(WorkPhase.COLLECTIVE if model.training else WorkPhase.EVALUATING)
        if model.training:
            self.note_under_way()

    def begin(self) -> None:
        """The state changes from here on. Blocks while it is being read."""
        if self.is_touched:
            self.under_way.changes_early()
            self._tell(
                f"parameters are changed before step {self.position.step + 1} makes an update: until then"
                " only a copy of the last step can be saved; change them in `with guard.updating():`"
            )
        self.lock.begin()
        if self._counted is not None:
            self._counted.begins_change()
        passage = self.history[-1].passage if self.history else None
        if self._mark is not None and passage is not None and passage.left is None:
            passage.left = self._mark()

    def end(self) -> None:
        """That change is made."""
        if self._counted is not None:
            self._counted.ends_change()
        self.lock.end()

    def step(self, n: int | None = None, epoch: int | None = None) -> None:
        """A step is complete: the global step ``n``, by default one more than the last."""
        if self.is_over:
            because = "guard.close() was called, or another protect() took its place, and only that is saved"
            hint = "give one guard all that is trained: protect(model, *optimizers, objects={...})"
            raise FaultrunError("this guard counts no more steps", because=because, hint=hint)
        last = self.position
        if self.in_loop:
            self._decides.clear()
        self.position = Position(
            last.step + 1 if n is None else n, last.epoch if epoch is None else epoch, last.step_in_epoch
        )
        if self._is_ahead and self.carried.is_given:
            self._tell(
                f"two batches were taken before the model was given one in step {self.position.step}: if one"
                " is fetched ahead, a resume leaves it out; fetch in a class that guard.batches is given"
            )
        self._is_ahead = False
        before = self.history[-1] if self.history else None
        under_way = self._counted
        if before is not None and self.parts.optimizers and not self.has_update:
            self._ends_without_update()
        else:
            seen = under_way.seen(self.position.step, self.reading.loader_state) if under_way else (0, None)
            self.note_boundary()
            if under_way is not None:
                self._ended_step(self.history[-1])
                under_way.ended(before, self.history[-1], *seen)
        if self.worker is not None:
            self.carried.stepped(in_loop=self.in_loop)
            self.worker.step(self.position.step, self.position.epoch)

    def _ends_without_update(self) -> None:
        step = self.position.step
        if self.is_touched:
            because = "parameters have changed, and no optimizer that is protected has made a step"
            hint = "protect the optimizer whose step() is called, or change them in `with guard.updating():`"
            raise FaultrunError(f"step {step} could not be saved", because=because, hint=hint)
        self._tell(
            f"step {step} ends without an update, and saves are as of the last one: was guard.step() called"
            " twice, or the update skipped, perhaps by an exception that was caught?"
        )

    def _ended_step(self, now: Boundary) -> None:
        self.parts.updated.look(now.groups, now.trained)
        if not (step := now.position.step) & (step - 1):
            self.parts.note_gradients()
        if not self.carried.is_late and self.writer.session.world_size > 1:
            self._see_late_draws(now)

    def _see_late_draws(self, ended: Boundary) -> None:
        step, before = ended.position.step, [one.rng for one in self.history][-2:-1]
        self.carried.is_late = not self.recorder.was_under_way(ended.rng, step)
        if self.carried.is_late and not any(self.recorder.are_same(one, ended.rng) for one in before):
            told(
                f"step {step} draws random numbers behind the model's forward pass, or beside it, or changes"
                " objects or its sampler; of a rank that dies there it is taken that it drew as many as in"
                " the step before"
            )

    def takes_batch(self, epoch: int) -> None:
        """The next batch of ``epoch`` is worked on."""
        last = self.position
        self.is_given_batch(Position(last.step, epoch, (last.step_in_epoch or 0) + 1))

    def is_given_batch(self, position: Position) -> None:
        """The script works on a batch, behind which is this place."""
        self._is_ahead |= self._is_unused and not self.carried.is_given
        self._is_unused, self.position, self.reading.is_fresh = True, position, False
        self.works_at(WorkPhase.COMPUTING)

    @property
    def is_unused(self) -> bool:
        """Whether batches were taken since the last boundary, and nothing was done with them.

        Only where the model is seen as it runs, which a compiled one is not.
        """
        is_idle = not (self._is_used or self.in_parts.has_gradients or self.has_update)
        return self._is_unused and self._is_seen and is_idle

    @property
    def _is_used(self) -> bool:
        """Whether the model is seen to have run since the last boundary."""
        return self._ran or self.carried.is_given

    def note_boundary(self, now: Callable[[], Boundary] | None = None) -> None:
        """A step is complete, or there is a place like its end to go on from."""
        self._is_seen |= self._is_used
        self._ran = self._is_unused = False
        self.carried.boundary()
        super().note_boundary(now)

    def goes_on(self) -> bool:
        """The script asks for its next step: what it changed since the last one's end belongs to that.

        Whether there was anything, such as random numbers that it drew.
        """
        self.decides()
        last, self._is_asked, self.is_still = self.history[-1] if self.history else None, True, False
        if last is None or last.position != self.position or last.position.step + 1 in self.redo.noted:
            return False
        if self.lock.phase is not UpdatePhase.CLEAN:
            return False
        self.parts.buffers.note_settings()
        is_still, self.is_still = self.recorder.is_still(last.rng, self.reading.loader_state()), True
        if is_still and not (self._ran or self.has_changed(last) or self.is_touched):
            return False
        self.note_boundary(lambda: self.boundary_now(self.history.pop().rng))
        return True

    def decides(self) -> None:
        """The script asks for its next step, or leaves its loop."""
        self._decides.set()

    def wait_decided(self, timeout_s: float) -> None:
        """Give the script that has ended a step the time to leave its loop. Helper thread only."""
        self._decides.wait(timeout_s)

    def begin_here(self) -> None:
        """A loop begins: no new step, but a place to go on from. A newcomer's is the dead rank's."""
        if self.worker is not None and not self.in_loop:
            self.carried.look_for_loaders()
        if not self.history and self.inside:
            self.note_boundary()

    def begin_step(self, step: int, *, is_still: bool = False) -> None:
        """``step`` is about to be yielded, perhaps again; ``is_still``: nothing was drawn since the last."""
        recorder, slot = self.recorder, self.recorder.redo_slot
        if step in self.redo.noted:
            recorder.take(slot, self.redo.noted[step])
            restore_rng(recorder.read(slot), self.reading.generator)
            return
        loader = self.reading.loader_state()
        if self.history and (is_still or recorder.is_still(self.history[-1].rng, loader)):
            slot = self.history[-1].rng
        else:
            recorder.record(slot, self.position, loader)
        self.redo.keep(self.redo.noted, step, recorder.content(slot))

    def note_under_way(self, *, updated: bool = False) -> None:
        """Note the random numbers of the step under way: others can finish it without us from here on."""
        if self.inside:
            step = self.position._replace(step=self.position.step + 1)
            self.recorder.under_way(step, self.reading.loader_state(), updated=updated)

    def ends_stage(self) -> None:
        """Another training follows in this script. This one's end is kept, for a resume in the next one."""
        self.is_over = True
        if self.history:
            boundary = self.reading.ended(self.position) or self.boundary_now(self.recorder.main_slot)
            self.stage.keep_end(self.host_state_at(boundary))

    @cached_property
    def stage(self) -> Stage:
        """Which training of the script this is."""
        return Stage(self.writer.own_folder, self.parts.stage)

    @property
    def may_be_followed(self) -> bool:
        """Whether another may take its place: it has trained, now or in an earlier process, or is over."""
        return self.is_over or self.position.step > 0 or any(self.under_way.updates)

    def _tell(self, what: str) -> None:
        """Once for what begins so: the script may mean it."""
        if (begins := what.partition(" ")[0]) not in self._told:
            self._told.add(begins)
            told(what)

    def works_at(self, phase: WorkPhase) -> WorkPhase:
        """Tell the supervisor what is done from here on; what was told before."""
        return self.worker.works_at(phase) if self.worker is not None else phase
