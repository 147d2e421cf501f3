"""Outliving a peer: a step is taken back, the next process group entered, the state made common.

What is undone and from where it comes back:

* parameters and optimizers change only inside an update, and no update begins after a collective has failed:
  they are those of the last whole step;
* buffers, hyperparameters, schedulers and random numbers come from the last boundary (``state.boundary``);
* a rank that is behind, was caught inside an update, or is new takes the most advanced rank's state; of
  shards, all go back to the newest step of which every rank has a copy (``common_step``).

An exception is a peer's fault only if the supervisor says that a peer was lost.
"""

import gc
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from faultrun.errors import CannotNow
from faultrun.sdk.snapshots.buffer import SnapshotDamaged
from faultrun.sdk.stay.common_step import NOTHING, nothing_common, of_replicas, of_shards
from faultrun.sdk.stay.next_group import Join
from faultrun.sdk.torch.group import stuck_thread
from faultrun.sdk.torch.group.ddp import Averaging
from faultrun.sdk.torch.group.empty_places import NeedsAllRanks
from faultrun.sdk.torch.group.fsdp2 import Sharded
from faultrun.sdk.torch.group.group_store import PeerLost
from faultrun.sdk.torch.group.process_group import training_group
from faultrun.sdk.torch.group.same_settings import SameSettings, group_store
from faultrun.sdk.torch.group.stuck_thread import forget_frames
from faultrun.sdk.torch.repair.repair import Repair
from faultrun.sdk.torch.snapshots.state_copies import StateCopies
from faultrun.sdk.torch.stay.live_state import ElsewhereInTheScript, LiveState
from faultrun.sdk.torch.stay.memory_use import MemoryUse
from faultrun.sdk.torch.stay.preconditions import Preconditions
from faultrun.sdk.torch.stay.train_on import TrainOn
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.death_note import tells_of_a_dead_peer
from faultrun.sdk.worker.worker import Worker

_FIRST_STEPS = 2
"""DistributedDataParallel arranges its buckets in the second one, together with all ranks."""
_VERDICT_S = 10.0
"""From the error of a connection to the word that a peer is lost: a rank lets go of its connections first,
and on a busy machine takes seconds to end. Who gives up sooner has all begin anew."""

_ODD = (AttributeError, LookupError, TypeError, ValueError)
"""Raised by private names of torch that another version does not have, or means otherwise."""


class Rejoin:
    """Has a rank outlive its peers. Main thread only.

    ``refused``: why not, as ``protect`` knows. ``copies``: of this rank's state, used if no other holds it.
    ``ends_step`` counts a step as the script does.
    """

    def __init__(
        self,
        training: Training,
        worker: Worker,
        refused: str,
        copies: StateCopies,
        ends_step: Callable[[], None],
    ) -> None:
        self._training, self._worker = training, worker
        self._group = training_group()
        self._averaging = Averaging(self._before_gradients, lambda: training.in_parts.accumulating)
        self._sharded = None if training.parts.shards is None else Sharded(training.parts.model)
        self._unable = Preconditions(training, worker, self._group, self._averaging, self._sharded, refused)
        self._entered = self._able = False
        self._alike: SameSettings | None = None
        """The settings of a rank that could rejoin as training began: all such ranks meet at the end."""
        self._steps = 0
        self._said = False
        self.of_newcomer = worker.session.is_outside
        """Whether this process came to take a place, and takes it here."""
        training.survivors_stay, training.inside = True, not self.of_newcomer
        self._undone: Exception | None = None
        self._state = LiveState(training, ends_step)
        self._left = stuck_thread.Left()
        self._memory, self._memory_use = copies, MemoryUse()
        self.train_on = TrainOn(training, self._group, of_a_part=copies.is_of_a_part)
        self._told: dict[str, str] = {}
        self._repair = Repair(training, worker)
        self._verdict_s = max(_VERDICT_S, worker.session.verdict_s)
        self.incarnation = worker.session.incarnation
        """The incarnation of the process group that this process is in."""

    def enter(self) -> None:
        """Before the first step: prepare, and let a newcomer take its place. FaultrunError: it cannot.

        No later garbage collection looks at what is alive now: one took 0.2 s in the middle of a rejoin.
        """
        if self._entered:
            return
        self._entered = True
        newcomer = self.of_newcomer
        alike = SameSettings(None if newcomer else group_store(), self._worker.session)
        alike.tell(self._memory.asked)
        if why := self._unable.before_steps:
            alike.refuse(why)
            self._cannot(why)
            if newcomer:
                hint = "--on_fault=restart starts all ranks again instead"
                raise CannotNow("this rank cannot take a dead one's place", because=why, hint=hint)
            return
        self._able, self._alike = True, alike
        self.train_on.begin(self._averaging, self._say_if_able)
        self._averaging.hook(self._unable.ddps, in_group=not newcomer)
        if self._sharded is not None:
            self._sharded.between_steps(has_run=False)
        self._memory.rehearse()
        self._memory.goes_on_after(self._training.position.step)
        gc.collect()
        gc.freeze()
        self._worker.regroup.abort = self._abort
        self._worker.regroup.may_end = self._may_end
        if newcomer:
            self._state.is_whole = False
            self._worker.say("can_join")
            self._rejoin(timeout_s=None)

    def settle(self) -> None:
        """Before a step, and behind one: if a peer was lost, be in the next group and at the common step."""
        try:
            while self._able and (self._undone is not None or self._worker.regroup.is_lost(self.incarnation)):
                self._rejoin(timeout_s=self._worker.regroup.patience_s)
        except _ODD as odd:  # the state is whole all the same, or marked as half changed
            raise self.gives_up(f"{type(odd).__name__}: {odd} (torch {torch.__version__})") from odd

    def lets_in(self) -> bool:
        """Whether all leave their group here, between two steps, for who comes to an empty place.

        Asked before each step while one is empty: no rank is called away from what it does elsewhere.
        """
        regroup = self._worker.regroup
        if not self._able or not self._training.missing.places.missing:
            return False
        if self.train_on.waits:
            self._say_if_able()
        else:
            asked = torch.tensor(float(regroup.asked >= self.incarnation), device=self._device())
            try:
                with self.train_on.meets():
                    dist.all_reduce(asked, dist.ReduceOp.MIN)
            except RuntimeError:
                if not regroup.wait_lost(self.incarnation, self._verdict_s):
                    raise
            if not regroup.is_lost(self.incarnation):
                if not asked.item():
                    return False
                fields = self.train_on.fields()
                self._worker.say("can_rejoin", incarnation=self.incarnation, waits=True, **fields)
        regroup.wait_lost(self.incarnation, regroup.patience_s)
        return True

    def leave_if_lost(self) -> None:
        """PeerLost once a peer is gone: in a function that has to end before the next group is formed."""
        if self._able and self._worker.regroup.is_lost(self.incarnation):
            raise PeerLost("a rank of the process group is gone")

    def check(self) -> None:
        """PeerLost where gradients are worth nothing: asked before every update."""
        if (broken := self.found_broken()) is not None:
            raise broken
        self.train_on.check()

    def found_broken(self) -> Exception | None:
        """Why gradients are worth nothing; asked at the end of a step, too.

        The script itself may have caught the error of a collective.
        """
        if self._averaging.failed is not None:
            broken = PeerLost("the process group is broken")
            broken.__cause__ = self._averaging.failed
            return broken
        group = self._group
        if group is None or group.failed is None or not self._able or self._training.has_update:
            return None
        error, group.failed = group.failed, None
        return error if self._worker.regroup.wait_lost(self.incarnation, self._verdict_s) else None

    def renews(self) -> None:
        """What the last boundary says has changed since it was copied."""
        self._memory.renews()

    def forward_done(self) -> None:
        """Survivors can finish this step without us from here on, unless a backward pass tells it better."""
        if not self._averaging.has_begun and self._able:
            self._memory.note_own()

    def at_an_epochs_end(self) -> None:
        """A loop over batches ends or begins, at the newest boundary: no rank comes back behind it."""
        if self._able and self._training.inside:
            self._memory.copy_now()

    def stepped(self) -> None:
        """A step is complete: copy it where that is wanted, and say once that this rank can rejoin."""
        if self._alike is None:
            return
        self._steps += 1
        self.train_on.stepped()
        self._state.is_whole = True
        self._worker.session.trained_in = self.incarnation
        if against := self._alike.against():
            self._alike = None
            self._cannot(against)
            return
        self._memory.stepped(self._device())
        if self._sharded is not None and self._steps == 1:
            self._sharded.between_steps(has_run=True)
        if self._able:
            self._say_if_able()

    def undoes(self, error: Exception) -> bool:
        """Whether ``error`` ended this attempt because a peer is gone, or memory of this rank is bad.

        Then ``settle`` takes it back.
        """
        regroup = self._worker.regroup
        if (fault := self._repair.fault_in(error)) is None and not self._able:
            return False
        regroup.times.setdefault("raised", time.monotonic())
        if fault is not None:
            if not self._repair.may_begin(fault, self.incarnation, able=self._able and self._said):
                regroup.times.pop("raised")
                return False
        elif not regroup.is_lost(self.incarnation):
            hopeful = tells_of_a_dead_peer(error) and self._said
            # That all wait is certain where a step has asked for a rank that is not there.
            verdict_s = regroup.patience_s if isinstance(error, NeedsAllRanks) else self._verdict_s
            if not hopeful or not regroup.wait_lost(self.incarnation, verdict_s):
                regroup.times.pop("raised")
                return False
        self._undone = error
        self._repair.start_device()
        if fault is not None and self._repair.lost_state:
            self._state.is_whole = False
            self._memory.distrust()
        else:
            self._state.interrupted()
        alone = self._training.under_way.keeps_copies and not self._memory.is_of_a_part
        if alone and not self._state.is_whole:
            # no other survivor need have a whole state either: all begin again now, and from a copy
            self._undone = None
            self._cannot("it stands between two updates of a step, and has no copy of the last one's end")
            return False
        return True

    def finish(self, barrier: Callable[[], object]) -> bool:
        """All steps are done: leave together. False when a peer was lost in it, and ``settle`` comes next."""
        # Who has no room for copies, or none yet, comes too: others know nothing of that and wait here.
        if self._alike is None or not (self._steps or self._came_late):
            return True
        try:
            barrier()
        except RuntimeError as error:
            if not self.undoes(error):
                raise
            return False
        self.cannot_any_more("all its steps are done")
        self._alike = None
        return True

    def _may_end(self) -> bool:
        """Whether this rank, at its end, has what all hold, and the one that ends for all lives on."""
        first = (*self._training.missing.places.members[:1], 0)[0]
        alike = self.train_on.fields() == {"trains_on": ""} and not self._training.in_loop
        return alike and self._worker.regroup.keeps(first, self.incarnation, self._verdict_s)

    def _before_gradients(self) -> None:
        """Nothing of this step has left this rank yet."""
        self._training.note_under_way()
        self._memory.note_own()

    def _rejoin(self, timeout_s: float | None) -> None:
        """Leave the broken group, and enter one after the other until one holds."""
        error = self._undone
        self._undone = None
        self._leave(error)
        while True:
            after = self.incarnation if error or self._said else NOTHING
            join = self._worker.regroup.wait_join(after, timeout_s)
            if join is None:
                raise error if error is not None else PeerLost("no process group was formed again")
            timeout_s = join.timeout_s
            if self._enters(join):
                return

    def _enters(self, join: Join) -> bool:
        """False: it broke before all were in it, and the next one will come."""
        regroup = self._worker.regroup
        self.incarnation = join.incarnation
        self._worker.moves_to(join)
        regroup.times["join"] = time.monotonic()
        try:
            with self.train_on.meets():
                self._form(join)
                step = self._make_common()
        except RuntimeError as error:
            self._training.inside = True
            if not regroup.wait_lost(self.incarnation, self._verdict_s):
                raise self.gives_up(f"the next process group failed: {error}") from error
            self._leave(error)
            return False
        self._training.inside = True
        times = {name: round(at_s, 6) for name, at_s in regroup.times.items()}
        self._worker.say("rejoined", incarnation=self.incarnation, step=step, times=times)
        regroup.times.clear()
        self._said = False
        self._say_if_able()
        return True

    def _form(self, join: Join) -> None:
        regroup = self._worker.regroup
        assert self._group is not None, "a rank without a group of ours is refused"
        if join.memory >= 0:
            self._memory.take(join.memory)
        self._group.form(join, lambda: regroup.is_over(join.incarnation))
        self._training.missing.places = self._group.places
        regroup.times["formed"] = time.monotonic()
        if self._sharded is not None:
            self._sharded.enters()
            if left := self._sharded.left:
                raise self.gives_up(f"fully_shard keeps something of the interrupted step: {left}")

    def _leave(self, error: Exception | None) -> None:
        """Let go of all that the interrupted step holds, the group's connections in particular."""
        if self._averaging.arranges:
            raise self.gives_up("DistributedDataParallel arranges its buckets in its second backward pass")
        if self._training.inside:
            self._repair.start_device()
        interrupted = error is not None and not isinstance(error, PeerLost)
        forget_frames(error)
        if self._training.inside:  # a newcomer has begun no step, and its script may have made their place
            self._training.parts.forget_gradients()
        self._training.in_parts.end()
        self._averaging.leaves(interrupted=interrupted)
        gc.collect()
        if self._group is not None and self._training.inside:
            self._group.leave()
            self._worker.regroup.times["dropped"] = time.monotonic()
            self._left.note(self.incarnation)

    def _make_common(self) -> int:
        """Agree on the step that all have, and have it. RuntimeError: a rank is gone; PeerLost: no step."""
        device, spread = self._device(), self._memory.is_of_a_part
        standings = self._memory.compared(self._state.step, device)
        missing = self._training.missing.places.missing
        common = of_shards(standings) if spread else of_replicas(standings, missing)
        if common is None:
            raise self.gives_up(nothing_common(standings, of_shards=spread))
        if not self._training.redo.reaches(common.step):
            raise self.gives_up(f"step {common.step} is too long ago to do the steps after it again")
        try:
            self._state.become(common, self._memory, self._averaging, device)
        except (SnapshotDamaged, ElsewhereInTheScript) as why:
            raise self.gives_up(str(why)) from why
        self._worker.regroup.times["restored"] = time.monotonic()
        return common.step

    def _say_if_able(self) -> None:
        """Once in every incarnation; and that it is over if a copy has no room any more."""
        why = self._memory.full or self._unable.by_now
        if why:
            self._cannot(why)
        elif self._memory.is_ready and (self._steps >= _FIRST_STEPS or self._came_late):
            told = self.train_on.fields()
            if not self._said:
                self._worker.tells_memory(self._memory_use.news)
            if not self._said or told != self._told:
                self._said = self._worker.regroup.is_awaited = True
                self._told = told
                self._worker.say("can_rejoin", incarnation=self.incarnation, **told)

    @property
    def _came_late(self) -> bool:
        """Whether it was told of the buckets, and need not wait until they are arranged."""
        return self.of_newcomer and self._training.inside

    def cannot_any_more(self, why: str) -> None:
        """From now on all start again where a rank dies. Harmless when it is so already."""
        if self._able:
            self._cannot(why)

    def _cannot(self, why: str) -> None:
        self._able = self._worker.regroup.is_awaited = False
        self._worker.say("cannot_rejoin", incarnation=self.incarnation, why=why[:2000])

    def gives_up(self, why: str) -> PeerLost:
        """An error that tells of a lost peer: the request to save comes, and the process waits for it."""
        self._cannot(why)
        return PeerLost(f"this rank cannot rejoin: {why}")

    def _abort(self, incarnation: int) -> None:
        """Helper thread: only what belongs to that group, or to one that is being formed in its place."""
        if incarnation == self.incarnation and self._group is not None:
            stuck_thread.free(self._left, incarnation, self._group.abort)

    def _device(self) -> Any:
        return "cpu" if self._group is None else self._group.device(self._training.parts.model)
