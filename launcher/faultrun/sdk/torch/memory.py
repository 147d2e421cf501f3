"""What this rank keeps in memory that the supervisor holds: a shard whole, of replicas what is their own.

Replicas differ in their buffers only (batch norm): each writes them down before its gradients leave it, for
from then on the others can finish the step without it. Shards are copied when their step is complete.
"""

import mmap
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from faultrun.sdk.files import Position
from faultrun.sdk.snapshot import (
    SnapshotCopy,
    SnapshotDamaged,
    SnapshotFull,
    SnapshotOwner,
    Snapshots,
    Texts,
    bytes_needed,
)
from faultrun.sdk.snapshot_files import SnapshotLabel
from faultrun.sdk.torch.capture import Boundary
from faultrun.sdk.torch.packing import Packed, opened, pack, pickled, unpacked_from
from faultrun.sdk.worker import Worker

if TYPE_CHECKING:
    from faultrun.sdk.torch.guard import Guard


class StateCopies:
    """Of one rank. ``whole``: the whole state is kept, else the buffers. Main thread.

    ``suffix``: of the file that a gasp would be; "" where the script writes files of its own format.
    """

    def __init__(self, worker: Worker, guard: "Guard", *, whole: bool, suffix: str) -> None:
        self._worker = worker
        self._guard = guard
        self._whole = whole
        self._suffix = suffix
        self._wanted = whole or bool(guard.parts.buffers.copies)
        self._asked = False
        self._snapshots: Snapshots | None = None
        self.full = ""
        """Why there is no room for the state any more; "" while there is."""

    @property
    def is_ready(self) -> bool:
        """Whether all is kept that a newcomer would need, as far as it can be."""
        if not self._wanted or (self._worker.regroup.refused and not self._whole):
            return True
        return self._snapshots is not None and bool(self.steps)

    @property
    def steps(self) -> frozenset[int]:
        """Of which there is a whole copy."""
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

    def rehearse(self) -> None:
        """Pack and unpack once: what is slow the first time only, is so before anybody waits."""
        opened(self._packed_at(self._guard.boundary_now(self._guard.recorder.main_slot)).texts.plan)

    def stepped(self) -> None:
        """A step is complete."""
        if not self._wanted:
            return
        if self._snapshots is None:
            self._ask()
        elif self._whole or not self._is_noted():
            self._write(self._guard.history[-1].position.step, self._packed())

    def note_own(self) -> None:
        """The step under way may be finished by the others from here on: keep our own part of it."""
        if self._snapshots is not None and not self._whole:
            self._write(self._guard.position.step + 1, self._own())

    def read(self, step: int) -> Any:
        """The whole state at ``step``. SnapshotDamaged: it is not here, or not what it was."""
        snapshots = self._snapshots
        found = snapshots.read(step) if snapshots is not None else None
        if snapshots is None or found is None:
            raise SnapshotDamaged(f"there is no memory snapshot of step {step}")
        if not snapshots.is_sound(step):
            raise SnapshotDamaged(f"its memory snapshot of step {step} is damaged: its checksum is another")
        return _state_in(found)

    def went_back(self, step: int) -> None:
        """All go on after ``step``: what was kept of later ones is not what will come of them."""
        if self._snapshots is not None:
            self._snapshots.drop_after(step)

    def put_own(self, step: int) -> None:
        """Buffers as this rank had them at ``step``, if they were kept; else they stay those of the giver."""
        found = self._snapshots.read(step) if self._snapshots is not None and self._wanted else None
        if found is not None:
            self._guard.parts.buffers.put(_state_in(found)["buffers"])

    def _is_noted(self) -> bool:
        """Whether our own part has not changed since its gradients left: a copy being made anew is none."""
        found = self._snapshots.read(self._guard.position.step) if self._snapshots is not None else None
        if found is None:
            return False
        noted, live = _state_in(found)["buffers"], self._guard.parts.buffers.live()
        return all(torch.equal(noted[name], one) for name, one in live.items())

    def _packed(self) -> "_Packed":
        return self._packed_at(self._guard.history[-1])

    def _packed_at(self, boundary: Boundary) -> "_Packed":
        if not self._whole:
            return self._own()
        state = self._guard.state_at(boundary)
        packed = pack(state)
        if not self._suffix:
            return _Packed(packed, Texts(plan=packed.plan))
        label = self._label(boundary.position, packed)
        return _Packed(packed, Texts(plan=packed.plan, label=label.packed(), pickled=pickled(state)))

    def _label(self, position: Position, packed: Packed) -> SnapshotLabel:
        """The file that a dying gasp of this rank would be."""
        writer, session = self._guard.writer, self._worker.session
        return SnapshotLabel(
            folder=str(writer.own_folder),
            name=f"gasp-step_{position.step}{self._suffix}",
            position=position,
            world_size=session.world_size,
            replica_group=writer.folder.replica_group or tuple(range(session.world_size)),
            node=session.node,
            parts=tuple(one.nbytes for one in packed.tensors),
        )

    def _own(self) -> "_Packed":
        packed = pack({"buffers": self._guard.parts.buffers.live()})
        return _Packed(packed, Texts(plan=packed.plan))

    def _write(self, step: int, packed: "_Packed") -> None:
        if self._snapshots is None or self.full:
            return
        try:
            self._snapshots.write(
                step, self._worker.session.incarnation, packed.texts, packed.content.parts()
            )
        except SnapshotFull as error:  # the state has grown
            self.full = str(error)

    def _ask(self) -> None:
        fd = self._worker.regroup.memory()
        if fd is not None:
            self.take(fd)
            self._write(self._guard.history[-1].position.step, self._packed())
        elif not self._asked:
            self._asked = True
            packed = self._packed()
            sizes = [one.nbytes for one in packed.content.tensors]
            self._worker.say("snapshot", bytes=bytes_needed(packed.texts, sizes))


@dataclass(frozen=True, slots=True)
class _Packed:
    content: Packed
    texts: Texts


def _state_in(copy: SnapshotCopy) -> Any:
    return unpacked_from(copy.texts.plan, copy.parts)
