"""The memory snapshot of one rank: two copies of its state in memory that outlives it. Pure over a buffer.

    0     two headers of 2048 bytes each
    4096  two bodies of the same size, each ``plan`` and then ``parts`` at multiples of 64

A header is invalid (zeros) while its body is written, and says of which run, rank and step the body is. Two
copies are enough where a rank finishes its copy of step n before it enters step n + 1: ranks differ by one
step at most, so the step that all go on from is in one of them. The checksum covers header and plan; a body
needs none against a writer that was killed, for then its header is not valid.
"""

import mmap
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

_MAGIC = b"frsnap1\n"
_HEADER = struct.Struct("<8sQqqqqqI")
"""Magic, run, rank, incarnation, step, bytes of plan and body, checksum of the rest and the plan."""
_HEADER_BYTES = 2048
_BODIES_AT = 4096
_ALIGNED = 64


class SnapshotFull(Exception):
    """The state is larger than the memory; the message has both sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOwner:
    """Whose copies they are: another's are never used."""

    run_id: str
    rank: int

    @property
    def run(self) -> int:
        """The run as a number."""
        return zlib.crc32(self.run_id.encode()) + 1


def bytes_needed(plan_bytes: int, parts_bytes: Sequence[int]) -> int:
    """How much memory two copies of such a state take; a plan may become somewhat longer."""
    body = aligned(plan_bytes * 2 + 4096) + sum(map(aligned, parts_bytes))
    return _BODIES_AT + 2 * body


def aligned(size_bytes: int) -> int:
    """The next multiple of 64."""
    return -(-size_bytes // _ALIGNED) * _ALIGNED


class Snapshots:
    """Over writable shared memory: ``mmap`` of a descriptor, or any buffer. One thread."""

    def __init__(self, memory: "mmap.mmap | bytearray", owner: SnapshotOwner) -> None:
        self._memory = memoryview(memory)
        self._owner = owner
        self._body_bytes = (len(self._memory) - _BODIES_AT) // 2 // _ALIGNED * _ALIGNED

    @property
    def steps(self) -> frozenset[int]:
        """Of which there is a whole copy."""
        return frozenset(step for at in (0, 1) if (step := self._step_at(at)) is not None)

    def write(self, step: int, incarnation: int, plan: bytes, parts: Sequence[memoryview]) -> None:
        """Copy the state of ``step`` over the older copy, or over one of this very step. SnapshotFull."""
        size_bytes = aligned(len(plan)) + sum(aligned(part.nbytes) for part in parts)
        if size_bytes > self._body_bytes:
            raise SnapshotFull(f"a copy of {size_bytes} bytes, and there is room for {self._body_bytes}")
        which = self._place_for(step)
        header, place = which * _HEADER_BYTES, _BODIES_AT + which * self._body_bytes
        self._memory[header : header + _HEADER.size] = bytes(_HEADER.size)
        at = place + aligned(len(plan))
        self._memory[place : place + len(plan)] = plan
        for part in parts:
            self._memory[at : at + part.nbytes] = part
            at += aligned(part.nbytes)
        self._memory[header : header + _HEADER.size] = self._header(step, incarnation, plan, size_bytes)

    def read(self, step: int) -> "tuple[bytes, memoryview] | None":
        """Plan and parts, where they lie, of the copy of ``step``; None when there is no whole one."""
        for which in (0, 1):
            if self._step_at(which) == step:
                fields = _HEADER.unpack_from(self._memory, which * _HEADER_BYTES)
                place = _BODIES_AT + which * self._body_bytes
                plan = bytes(self._memory[place : place + fields[5]])
                return plan, self._memory[place + aligned(len(plan)) : place + fields[6]]
        return None

    def _place_for(self, step: int) -> int:
        first, second = self._step_at(0), self._step_at(1)
        if step in (first, second):
            return 0 if first == step else 1
        if first is None or second is None:
            return 0 if first is None else 1
        return 0 if first < second else 1

    def _step_at(self, which: int) -> int | None:
        """The step of this copy, if it is whole and ours."""
        magic, run, rank, incarnation, step, plan_bytes, body_bytes, checksum = _HEADER.unpack_from(
            self._memory, which * _HEADER_BYTES
        )
        if magic != _MAGIC or (run, rank) != (self._owner.run, self._owner.rank):
            return None
        if not 0 <= plan_bytes <= body_bytes <= self._body_bytes:
            return None
        place = _BODIES_AT + which * self._body_bytes
        plan = bytes(self._memory[place : place + plan_bytes])
        whole = self._header(step, incarnation, plan, body_bytes)
        return int(step) if _HEADER.unpack(whole)[-1] == checksum else None

    def _header(self, step: int, incarnation: int, plan: bytes, body_bytes: int) -> bytes:
        fields = (
            _MAGIC,
            self._owner.run,
            self._owner.rank,
            incarnation,
            step,
            len(plan),
            body_bytes,
        )
        return _HEADER.pack(*fields, zlib.crc32(plan, zlib.crc32(_HEADER.pack(*fields, 0))))
