"""What this rank keeps in memory that the supervisor holds: a shard whole, of replicas what is their own.

Replicas differ in their buffers only (batch norm): each writes them down before its gradients leave it, for
from then on the others can finish the step without it. Shards are copied when a step is complete, of which as
their interval says (``shard_copies``); whether replicas of a shard live does not matter here.
"""

import contextlib
import mmap
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from faultrun.sdk.snapshots.buffer import (
    SnapshotCopy,
    SnapshotDamaged,
    SnapshotFull,
    SnapshotOwner,
    Snapshots,
    Texts,
    bytes_needed,
)
from faultrun.sdk.snapshots.interval import SnapshotInterval
from faultrun.sdk.snapshots.to_files import SnapshotLabel, inode_of, label_of, life_in
from faultrun.sdk.stay.common_step import NOTHING, Standing
from faultrun.sdk.torch.group.transfer import exchanged
from faultrun.sdk.torch.snapshots.next_node import CopiesArriving
from faultrun.sdk.torch.snapshots.shard_copies import ShardCopies
from faultrun.sdk.torch.state.boundary import Boundary
from faultrun.sdk.torch.state.buffers import same_values
from faultrun.sdk.torch.state.packing import Packed, opened, pack, pickled, unpacked_from
from faultrun.sdk.torch.training import Training
from faultrun.sdk.worker.save_files import Position
from faultrun.sdk.worker.worker import Worker


class StateCopies:
    """Keeps the state of one rank in memory. ``interval``: all of it, so often; None: buffers. Main thread.

    ``suffix``: of the file that a gasp would be; "" where the script writes files of its own format.
    """

    def __init__(
        self, worker: Worker, training: Training, interval: SnapshotInterval | None, suffix: str
    ) -> None:
        self._worker, self._training = worker, training
        self._interval = interval
        self._shard: ShardCopies | None = None
        if interval is not None:
            self._shard = ShardCopies(
                training, interval, self._write_state, self._sum, self._fails, self._wait_for_next_node
            )
        self._next_node = CopiesArriving(worker)
        self._suffix = suffix
        self._asked = False
        self._told: list[int] = []
        self._snapshots: Snapshots | None = None
        self.full = ""
        """Why no copies can be made any more; "" while they can."""

    @property
    def _wanted(self) -> bool:
        return self._interval is not None or bool(self._training.parts.buffers.copies)

    @property
    def is_of_a_part(self) -> bool:
        """Whether this rank's state is of no use to those that hold another part."""
        return self._interval is not None

    @property
    def is_ready(self) -> bool:
        """Whether all is kept that a newcomer would need, as far as it can be."""
        if not self._wanted or (self._worker.regroup.refused and self._shard is None):
            return True
        return self._snapshots is not None and bool(self.steps)

    @property
    def steps(self) -> frozenset[int]:
        """Steps of which there is a whole copy."""
        return self._snapshots.steps if self._snapshots is not None else frozenset()

    def take(self, fd: int) -> None:
        """Use this memory, which may hold a dead process's copies of the same rank. Closes ``fd``."""
        session = self._worker.session
        try:
            memory = mmap.mmap(fd, 0)
        except (OSError, ValueError):
            return
        finally:
            os.close(fd)
        self._snapshots = Snapshots(memory, SnapshotOwner(run_id=session.run_id, rank=session.rank))
        self._asked = True

    @property
    def asked(self) -> str:
        """How often copies were asked for, as it is told to the other ranks."""
        interval = self._interval
        return "nothing, as all hold its state," if interval is None else repr(interval.asked)

    def rehearse(self) -> None:
        """Pack and unpack once: what is slow the first time only, is so before a rank waits."""
        boundary = self._training.boundary_now(self._training.recorder.main_slot)
        if self._shard is None:
            opened(self._own().texts.plan)
            if self._wanted and self._training.inside:
                self._ask()
        else:
            opened(self._packed(boundary, self._training.state_at(boundary)).texts.plan)

    def goes_on_after(self, step: int, told: Sequence[int] = ()) -> None:
        """All ranks train from here on; of the first group, or of one that was formed again."""
        if self._interval is not None and self._shard is not None:
            self._interval.goes_on_after(step, told)
            self._shard.goes_on()

    def stepped(self, device: Any) -> None:
        """A step is complete. ``device``: where collectives of the group find their tensors.

        Also where no copies can be made any more: the others' trial ends with this rank.
        """
        if not self._wanted:
            return
        if self._snapshots is None and not self.full:
            self._ask()
        if self._shard is not None:
            self._next_node.look()
            self._agree(device)
            self._shard.stepped(there=self._snapshots is not None and not self.full)
        elif self._snapshots is not None and not self.full and not self._is_noted():
            self._write(self._training.history[-1].position.step, self._own())

    def copy_now(self) -> None:
        """The newest boundary, with whatever the script has changed since the last step."""
        if self._shard is not None:
            self._shard.copy_now(there=self._snapshots is not None and not self.full)

    def renews(self) -> None:
        """Copy like ``copy_now`` if the newest boundary was copied: more belongs to it now."""
        if self._shard is not None and self._training.history[-1].position.step in self.steps:
            self.copy_now()

    def note_own(self) -> None:
        """The step under way may be finished by the others from here on: keep our own part of it."""
        if self._snapshots is None and self._asked:
            self._ask()
        if self._snapshots is not None and self._shard is None:
            self._write(self._training.position.step + 1, self._own())

    def compared(self, live: int, device: Any) -> list[Standing]:
        """What each rank has, ``live`` and in memory, by rank. RuntimeError: one is gone."""
        shard, interval = self._shard, self._interval
        if shard is None or interval is None:
            training = self._training
            is_open = training.in_loop and not training.redo.in_function
            epoch = training.reading.epoch if is_open else None
            rows = exchanged([live, NOTHING if epoch is None else epoch], device)
            return [Standing(one, epoch=its) for one, its in rows]
        shard.wait()
        kept = sorted(self.steps)[-2:]
        rows = exchanged([interval.told, live, *kept, *[NOTHING] * (2 - len(kept))], device)
        self._told = [told for told, *_ in rows]
        return [Standing(one, frozenset(others) - {NOTHING}) for _, one, *others in rows]

    def read(self, step: int) -> Any:
        """The whole state at ``step``, this rank's from here on. SnapshotDamaged: it is not what it was."""
        snapshots = self._snapshots
        found = snapshots.read(step) if snapshots is not None else None
        if snapshots is None or found is None:
            raise SnapshotDamaged(f"there is no memory snapshot of step {step}")
        if not snapshots.is_sound(step):
            raise SnapshotDamaged(f"its memory snapshot of step {step} is damaged: its checksum is another")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            self._worker.session.trained_in = life_in(found.texts.label)
        return _state_in(found)

    def went_back(self, step: int) -> None:
        """All go on after ``step``: what was kept of later ones is not what will come of them."""
        if self._snapshots is not None:
            self._snapshots.drop_after(step)
            self._snapshots.belong_to(self._worker.session.incarnation)
        self.goes_on_after(step, self._told)

    def distrust(self) -> None:
        """Memory of this rank has gone bad: a copy beside the step that found it may hold some of that."""
        if self._shard is None or self._interval is None or self._snapshots is None:
            return
        self._shard.wait()
        newest = self._training.history[-1].position.step
        if self._interval.is_beside(newest):
            self._snapshots.drop_after(newest - 1)

    def put_own(self, step: int) -> bool:
        """Buffers as this rank had them at ``step``. False: not kept, and they stay those of the giver."""
        found = self._snapshots.read(step) if self._snapshots is not None and self._wanted else None
        if found is not None:
            self._training.parts.buffers.put(_state_in(found)["buffers"])
            if (check := self._training.check) is not None:
                check.excuse("buffer", "")
        return found is not None

    def _is_noted(self) -> bool:
        """Whether our own part has not changed since its gradients left: a copy being made anew is none."""
        found = self._snapshots.read(self._training.position.step) if self._snapshots is not None else None
        if found is None:
            return False
        noted, live = _state_in(found)["buffers"], self._training.parts.buffers.now()
        alike = (same_values(one, live[name]) for name, one in noted.items())
        return noted.keys() == live.keys() and all(alike)

    def _agree(self, device: Any) -> None:
        """At the end of a trial: on one interval for all. A rank that is gone is noticed in the next step."""
        interval, step = self._interval, self._training.history[-1].position.step
        if interval is None or not interval.ends_trial(step):
            return
        has_room = not self.full and not self._worker.regroup.refused
        with contextlib.suppress(RuntimeError):
            own = interval.wish if has_room else 1  # then any suits
            interval.settle([wish for (wish,) in exchanged([own], device)])
            self._training.redo.kept = interval.redone
            if words := interval.words():
                print(words, file=sys.stderr)  # noqa: T201 - the worker's log is where people look

    def _packed(self, boundary: Boundary, state: Any) -> "_Packed":
        packed = pack(state)
        if not self._suffix:
            return _Packed(packed, Texts(plan=packed.plan, label=label_of(self._worker.session.life)))
        label = self._label(boundary.position, packed)
        return _Packed(packed, Texts(plan=packed.plan, label=label.packed(), pickled=pickled(state)))

    def _label(self, position: Position, packed: Packed) -> SnapshotLabel:
        """The file that a dying gasp of this rank would be."""
        writer, session = self._training.writer, self._worker.session
        return SnapshotLabel(
            folder=str(writer.own_folder),
            inode=inode_of(writer.own_folder),
            name=f"gasp-step_{position.step}{self._suffix}",
            position=position,
            world_size=session.world_size,
            replica_group=writer.folder.replica_group or tuple(range(session.world_size)),
            node=session.node,
            parts=tuple(one.nbytes for one in packed.tensors),
            life=session.life,
        )

    def _own(self) -> "_Packed":
        packed = pack({"buffers": self._training.parts.buffers.now()})
        return _Packed(packed, Texts(plan=packed.plan))

    def _write_state(self, boundary: Boundary, state: Any) -> None:
        """Main thread, or the one that copies."""
        self._write(boundary.position.step, self._packed(boundary, state))

    def _write(self, step: int, packed: "_Packed") -> None:
        if self._snapshots is None or self.full:
            return
        try:
            self._snapshots.write(
                step, self._worker.session.incarnation, packed.texts, packed.content.parts()
            )
        except SnapshotFull as error:  # the state has grown
            self._fails(f"its memory snapshot is too small: {error}")

    def _sum(self, step: int) -> None:
        if self._snapshots is not None:
            self._snapshots.add_sum(step)

    def _wait_for_next_node(self) -> None:
        if self._snapshots is not None and self._interval is not None:
            took_s = self._next_node.wait(self._snapshots)
            if self._next_node.takes_copies:
                self._interval.arrival_took(took_s)

    def _fails(self, why: str) -> None:
        self.full = why

    def _ask(self) -> None:
        if (fd := self._worker.regroup.memory()) is not None:
            self.take(fd)
        elif not self._asked:
            self._asked = True
            if self._shard is None:
                packed = self._own()
            else:
                boundary = self._training.history[-1]
                packed = self._packed(boundary, self._training.state_at(boundary))
            sizes = [one.nbytes for one in packed.content.tensors]
            whole = self._shard is not None
            self._worker.say("snapshot", bytes=bytes_needed(packed.texts, sizes), whole=whole)


@dataclass(frozen=True, slots=True)
class _Packed:
    content: Packed
    texts: Texts


def _state_in(copy: SnapshotCopy) -> Any:
    return unpacked_from(copy.texts.plan, copy.parts)
