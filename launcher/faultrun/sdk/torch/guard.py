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
import dis
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from faultrun.errors import CannotNow
from faultrun.model.checkpoint import Kind
from faultrun.model.observed.progress import WorkPhase
from faultrun.sdk.session import ResumePoint
from faultrun.sdk.torch.group.same_parameters import SameParameters
from faultrun.sdk.torch.loader.batch_shares import check_shares
from faultrun.sdk.torch.snapshots.last_boundary import LastBoundary
from faultrun.sdk.torch.state.dcp import gathered, objects_from, objects_in, taken_apart
from faultrun.sdk.torch.state.rng import restore_rng
from faultrun.sdk.torch.state.state_dict import is_ours, read_state
from faultrun.sdk.torch.stay.rejoin import Rejoin
from faultrun.sdk.torch.stay.step_attempts import Loops, StepAttempt, comes_again
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Position, Saved, numbered
from faultrun.sdk.worker.training_stages import told

T = TypeVar("T")

_LETS_GO = frozenset({"POP_TOP", "POP_ITER", "END_FOR"})
"""What CPython 3.10 to 3.14 does with what a loop went through as it is left by ``break`` or ``return``."""
_YIELDS = frozenset({"YIELD_VALUE", "RESUME"})
_BEFORE_RETURN = _LETS_GO | {"SWAP", "ROT_TWO", "NOP", "LOAD_CONST", "LOAD_FAST"}


class Guard:
    """What ``protect`` returns. Main thread only, except where a method says otherwise.

    Without faultrun it counts and opens loaders; only ``save`` and ``load`` look at what is protected.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.rejoin: Rejoin | None = None
        """How it outlives a peer; None without faultrun."""
        self.last_boundary: LastBoundary | None = None
        """Keeps it for saves between two; None where others do, or none can."""
        self.alike: SameParameters | None = None
        """Compares parameters with those of other ranks, where one of them may save for all."""
        self._told = False
        training.broken = lambda: None if self.rejoin is None else self.rejoin.found_broken()
        if training.worker is not None:
            training.watch(self._before_update, self._after_forward)

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

    @property
    def weight(self) -> float:
        """Multiply the mean loss of the batch by it: 1 when all ranks are there."""
        self.training.in_parts.asked.add("weight")
        return self.training.in_parts.weight

    @property
    def leads(self) -> bool:
        """Whether this is the first of the ranks that are there, and saves for all: rank 0 may be missing."""
        first = self.training.missing.places.members[:1] or (0,)
        return not dist.is_initialized() or dist.get_rank() == first[0]

    @property
    def accumulating(self) -> bool:
        """Whether more batches belong to this step: add up gradients, and do not update yet."""
        self.training.in_parts.asked.add("accumulating")
        return self.training.in_parts.accumulating

    def resume(self, load: Callable[[str], object] | None = None) -> ResumePoint | None:
        """Put back everything, random numbers too, from where faultrun says; None when training starts anew.

        A checkpoint in a format of your own is given to ``load(path)``; its step and epoch are then those
        that faultrun read from it. FaultrunError when nothing can load the file.
        """
        if (point := self.training.point) is None:
            return None
        state = read_state(point.path)
        if is_ours(state):
            if (state := self.training.stage.of_this(state)) is None:
                return None
            self.load(state)
            self.training.tell_whose_buffers(state["rank"])
            self.training.parts.updated.tell_what_is_anew(self.training.writer.session.world_size)
        elif load is not None:
            self.training.position = Position(step=point.step or 0, epoch=point.epoch)
            load(point.path)
            self.training.has_buffers_of_another()
        else:
            why = "it is not one of faultrun.sdk.torch" if state is not None else "torch.load refuses it"
            hint = "guard.resume(load=...) with a function that loads your own format"
            raise CannotNow(f"nothing loads the checkpoint {point.path}", because=why, hint=hint)
        self.training.resumed()
        return point

    def load(self, state: Any) -> None:
        """Put back a state that ``save`` or a dying gasp wrote, as ``torch.load`` returns it.

        From another rank's file the random numbers are this rank's own, as it
        last noted them; when it was killed in the instant between two notes, new ones.
        """
        self.training.load(state)

    def state_dict(self) -> dict[str, Any]:
        """Place, objects and all random numbers for ``dcp.save({..., "guard": guard})``, by all ranks.

        ``fabric.save`` asks for it too; for ``torch.save`` call it on all ranks and save on one.
        """
        training = self.training
        last = training.history[-1] if comes_again(training) else None
        boundary = last or training.boundary_now(training.recorder.main_slot)
        rng = training.recorder.read(boundary.rng)
        objects = objects_in(training.parts.objects.states())
        full = training.writer.session.full_world_size
        left = training.reading.left_at(boundary.position)
        return {
            **gathered(boundary.position, rng, boundary.epoch_rng, full),
            "objects": objects,
            "left": left,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what ``state_dict`` returned, among any number of ranks."""
        training, self.training.kept = self.training, None
        training.position, rng, epoch_rng = taken_apart(state, training.writer.session.full_world_size)
        training.parts.objects.load(objects_from(state["objects"]))
        if training.writer.session.world_size > 1:  # dcp spreads what all ranks have over them
            training.puts_own_objects(rng.noted, "one rank")
        restore_rng(rng)
        training.reading.resumes_at(training.position, rng, epoch_rng, state.get("left"))

    def batches(self, loader: Any, epoch: int) -> Iterator[Any]:
        """The batches of ``loader`` in ``epoch``; after a resume only those that are not done yet.

        Asking for the next batch, or ``break``, ends a step, unless ``step`` did. Each loop has an epoch of
        its own, of which samplers and loaders with ``set_epoch`` are told. Where ranks were left out a step
        may have several batches: see ``weight`` and ``accumulating``. FaultrunError, under faultrun, for a
        loader whose place in an epoch could not be found again, and for a batch that is another than before.
        """
        training = self.training
        if training.worker is not None:
            if not training.reading.is_over(epoch):
                training.reading.check(loader, epoch)
            if training.writer.session.full_world_size:
                check_shares(loader)
        training.in_loop = True
        try:
            with training.reading.is_open(epoch):
                yield from self._loops.batches(loader, epoch)
        except GeneratorExit:
            if _was_broken_off(sys._getframe().f_back):
                self._loops.step_if_changed()
                self._leave_loop(early=not self._is_stopping)
            raise
        self._leave_loop(early=training.reading.was_left(training.position))

    @property
    def _is_stopping(self) -> bool:
        """Whether a loop may be left for a stop of the run, after which it goes on."""
        worker = self.training.worker
        return worker is not None and worker.is_stopping

    def _leave_loop(self, *, early: bool) -> None:
        training, last = self.training, self.training.history[-1] if self.training.history else None
        training.in_loop = False
        training.in_parts.end()  # where the loop was left in the midst of a step
        early = early and last is not None and (last.position == training.position or training.is_unused)
        training.reading.leaves(last, training.position, early=early)
        training.decides()
        training.works_at(WorkPhase.UNKNOWN)  # what a script does between and after its epochs takes its time

    def steps(self, last: int) -> Iterator[int]:
        """The global steps up to ``last`` that are not done yet, for a script that fetches its own data.

        Each with ``with guard.attempt():`` around all that it does. Where a rank dies in it, the others
        take it back, and it comes again. The first call is where a rank that takes a dead one's place waits
        for it; nothing before may need other ranks but building the model. A loop that is left by ``break``
        ends at once where this run comes to it again after a fault.
        """
        try:
            yield from self._loops.steps(last)
        except GeneratorExit:
            if _was_broken_off(sys._getframe().f_back):
                self._loops.step_if_changed()
                if not self._is_stopping:
                    self.training.reading.leaves_steps(last, self.training.position)
            raise

    def attempt(self) -> StepAttempt:
        """One step, around all that talks to other ranks; do not call ``step`` too.

        In ``steps``, ``batches`` or ``run``. An exception of the script's own comes out of it as ever. What
        follows it in the loop runs for a step that was taken back, too: ``done`` of what it returns says so.
        """
        return StepAttempt(self._loops)

    def run(self, train: Callable[["Guard"], T]) -> T:
        """``train(guard)``, called again to go on after ``guard.global_step`` whenever a rank has died.

        For scripts that own their loop: all that touches a process group is made inside of ``train``.
        """
        return self._loops.run(lambda: train(self))

    def step(self, n: int | None = None, epoch: int | None = None) -> None:
        """A step is complete: call it right after the last of optimizer, scheduler, scaler and averages.

        ``n`` is the global step, by default one more than the last. In particular before anything that talks
        to other ranks: what is lost with a dead peer then is nothing.
        """
        self.training.step(n, epoch)
        if self.rejoin is not None and self.training.history[-1].position == self.training.position:
            self.rejoin.stepped()
        if self.last_boundary is not None:
            self.last_boundary.stepped()
        if self.alike is not None:
            self.alike.stepped(self.training.position.step)
        if self.training.is_shard:
            # going on, it would help peers past the step that is being saved here
            self.training.lock.let_read()

    def close(self) -> None:
        """This training is over, or never begins: another ``protect`` may take its place. No more steps."""
        self.training.is_over = True

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """Mark a change of parameters that no protected optimizer makes, such as clipping them."""
        self.training.begin()
        yield  # an exception leaves the state marked as half changed, which it is
        self.training.end()

    def save(self, path: str | Path) -> Saved:
        """Write the whole state to ``path``, with a manifest, between two steps: your periodic checkpoint.

        By any one rank, with its random numbers (``state_dict``: of all), under a new name. Behind a loop
        over ``batches`` as of the last step: what is done between two epochs is done again. Where gradients
        wait for an update, or a batch was only taken, too: it comes again. OSError.
        """
        training = self.training
        before = training.works_at(WorkPhase.SAVING)
        ended = training.reading.ended(training.position)
        if comes_again(training):
            boundary = training.history[-1]
        else:
            boundary = ended or training.boundary_now(training.recorder.main_slot)
        state = training.parts.device.to_host(training.state_at(boundary))
        name, write = numbered(Path(path)), partial(torch.save, state)
        saved = training.writer.save(name, boundary.position, write, Kind.PERIODIC)
        training.works_at(before)
        return saved

    def _place(self) -> Position:
        """Where to go on. A newcomer does not know until it has taken its place."""
        if self.rejoin is not None and self.rejoin.of_newcomer:
            self.rejoin.enter()
        return self.training.position

    @property
    def _loops(self) -> Loops:
        return Loops(self.training, self.rejoin, self.step, self._goes_on)

    def _goes_on(self) -> None:
        if not self.training.goes_on():
            return
        if not (self._told or self.training.reading.is_fresh):
            self._told = True
            told(
                f"something is drawn or changed behind step {self.training.position.step}, which is not done"
                " again: after a fault in between training goes on as of that step's end"
            )
        for copies in (self.rejoin, self.last_boundary):
            if copies is not None:
                copies.renews()

    def _before_update(self, *_: object) -> None:
        if self.rejoin is not None:
            self.rejoin.check()
        self.training.before_update()

    def _after_forward(self, model: Any, *_: object) -> None:
        self.training.after_forward(model)
        if model.training and self.rejoin is not None:
            self.rejoin.forward_done()


def _was_broken_off(loop: FrameType | None) -> bool:
    """Whether the script has left its loop by ``break``. An exception leaves it in what has raised it."""
    while loop is not None:
        code = [one for one in dis.get_instructions(loop.f_code) if one.offset >= loop.f_lasti]
        here = code[0].opname if code and code[0].offset == loop.f_lasti else ""  # or in the midst of a call
        if not (loop.f_code.co_flags & inspect.CO_GENERATOR and here in _YIELDS):
            follows = next((one.opname for one in code if one.opname not in _BEFORE_RETURN), "")
            return here in _LETS_GO and not follows.startswith("RETURN")
        loop = loop.f_back  # a generator around us is let go of, such as tqdm's
    return False
