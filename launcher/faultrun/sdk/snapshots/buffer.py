"""The memory snapshot of one rank: two copies of its state in memory that outlives it. Pure over a buffer.

Each half of the memory is one copy, and says all of itself, so that its bytes may go anywhere as they are:

    0     header of 128 bytes: whose state, of which step, the sizes of what follows, checksums
    128   texts, each at a multiple of 64: ``label``, ``plan``, ``pickled`` (``Texts``)
    ...   ``parts``, the tensors' bytes, each at a multiple of 64

A header is invalid (zeros) while its body is written. Its checksum covers header and texts; ``add_sum`` puts
that of the parts in afterwards, for it takes longer than the copy. A copy without it is whole all the same:
its writer was killed between the two, or makes a copy at every step and has no time for it.

Two copies are enough where a rank finishes its copy of step n before it enters step n + 1: ranks differ by
one step at most, so the step that all go on from is in one of them.

Behind the header, at 104, stands of which copy another node is known to have one (``mark_elsewhere``).
"""

import ctypes
import hashlib
import mmap
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

_MAGIC = b"frsnap2\n"
_HEADER = struct.Struct("<8s11qI")
"""Magic, run, rank, incarnation, step, bytes of the three texts and of all parts, place and sum of the parts
(-1: not summed), 0, checksum of the rest and the texts."""
_ELSEWHERE = struct.Struct("<qq")
"""One more than a step, and its incarnation: 0 for none. Not written by who writes the copy."""
_ELSEWHERE_AT, _TEXTS_AT = 104, 128
_ALIGNED = 64
_PAGE = 4096
_LARGE = 1 << 16
_NO_SUM = -1
_SUM_AT_ONCE = 1 << 25


class SnapshotFull(Exception):
    """The state is larger than the memory; the message has both sizes."""


class SnapshotDamaged(Exception):
    """A copy that is needed is not there, or its parts are not what was summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOwner:
    """Names the run and the rank that copies belong to; those of another owner are never used."""

    run_id: str
    rank: int

    @property
    def run(self) -> int:
        """The run as a number."""
        return int.from_bytes(hashlib.sha256(self.run_id.encode()).digest()[:7], "little") + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What is not bulk. ``label``: JSON for the writer of a file of it; ``plan``: how it is read again;
    ``pickled``: the file's own description of the parts. Formats are their writers'.
    """

    plan: bytes
    label: bytes = b""
    pickled: bytes = b""

    @property
    def size_bytes(self) -> int:
        """In memory."""
        return sum(aligned(len(one)) for one in (self.label, self.plan, self.pickled))


@dataclass(frozen=True, slots=True)
class SnapshotCopy:
    """One copy where it lies: it may be written over at any time."""

    texts: Texts
    parts: memoryview


@dataclass(frozen=True, slots=True)
class _Head:
    """A valid header. ``place``: where its half begins; ``parts_at``: where the parts do."""

    step: int
    incarnation: int
    texts: Texts
    place: int
    parts_at: int
    parts_bytes: int
    parts_sum: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """A copy as it leaves for another node: its bytes where they lie, which may be written over meanwhile."""

    step: int
    incarnation: int
    texts: memoryview
    parts: memoryview

    @property
    def size_bytes(self) -> int:
        """Size of what is sent, without the header."""
        return self.texts.nbytes + self.parts.nbytes


def bytes_needed(texts: Texts, parts_bytes: Sequence[int]) -> int:
    """How much memory two copies of such a state take; the texts may become somewhat longer."""
    body = _TEXTS_AT + aligned(texts.size_bytes * 2 + _PAGE) + sum(map(aligned, parts_bytes))
    return 2 * (-(-body // _PAGE) * _PAGE)


def aligned(size_bytes: int) -> int:
    """The next multiple of 64."""
    return -(-size_bytes // _ALIGNED) * _ALIGNED


class Snapshots:
    """Over shared memory: ``mmap`` of a descriptor, or any buffer, writable if it is to be written.

    One thread writes; ``add_sum`` may be called by another, for a copy that is not being written over.
    """

    def __init__(self, memory: "mmap.mmap | bytearray", owner: SnapshotOwner) -> None:
        self._memory = memoryview(memory)
        self._owner = owner
        self._half_bytes = len(self._memory) // 2 // _ALIGNED * _ALIGNED
        self._arrives_at = 0
        self._address = 0 if self._memory.readonly else _address_of(self._memory)

    @property
    def steps(self) -> frozenset[int]:
        """Steps of which there is a finished copy; its parts are not looked at (``is_sound``)."""
        return frozenset(head.step for head in self._heads())

    def write(self, step: int, incarnation: int, texts: Texts, parts: Sequence[memoryview]) -> None:
        """Copy the state of ``step`` over the older copy, or over one of this very step. SnapshotFull.

        Other Python threads run while large parts are copied.
        """
        parts_bytes = sum(aligned(part.nbytes) for part in parts)
        size_bytes = _TEXTS_AT + texts.size_bytes + parts_bytes
        if size_bytes > self._half_bytes:
            raise SnapshotFull(f"a copy of {size_bytes} bytes, and there is room for {self._half_bytes}")
        place = self._place_for(step)
        self._invalidate(place)
        at = place + _TEXTS_AT
        for text in (texts.label, texts.plan, texts.pickled):
            self._memory[at : at + len(text)] = text
            at += aligned(len(text))
        parts_at = at
        for part in parts:
            self._put(at, part)
            at += aligned(part.nbytes)
        self._put_header(_Head(step, incarnation, texts, place, parts_at, parts_bytes, _NO_SUM))

    def add_sum(self, step: int) -> None:
        """Put the checksum of the parts into the header of this copy. Other Python threads run meanwhile."""
        if (head := self._head_of(step)) is not None:
            found = self._sum(head)
            if self._head_of(step) == head:  # and it was not written to meanwhile
                self._put_header(replace(head, parts_sum=found))

    def is_sound(self, step: int) -> bool:
        """Whether the parts of this copy are what was summed; true of one without a sum."""
        head = self._head_of(step)
        return head is not None and head.parts_sum in (_NO_SUM, self._sum(head))

    def read(self, step: int) -> SnapshotCopy | None:
        """The copy of ``step``; None when there is none that was finished."""
        if (head := self._head_of(step)) is None:
            return None
        return SnapshotCopy(head.texts, self._memory[head.parts_at : head.parts_at + head.parts_bytes])

    def drop_after(self, step: int) -> None:
        """Forget copies of later steps: they will be done again, and need not come out the same."""
        for head in tuple(self._heads()):
            if head.step > step:
                self._invalidate(head.place)

    def belong_to(self, incarnation: int) -> None:
        """All have gone back to a step of which these are copies: they are this incarnation's from now on."""
        for head in tuple(self._heads()):
            self._put_header(replace(head, incarnation=incarnation))

    @property
    def stamp(self) -> bytes:
        """Changes with the copies, and when it is noted that another node has one; cheap."""
        first, second = (self._memory[at : at + _TEXTS_AT] for at in (0, self._half_bytes))
        return bytes(first) + bytes(second)

    @property
    def newest_incarnation(self) -> int:
        """The newest incarnation among the copies; -1 without any."""
        return max((head.incarnation for head in self._heads()), default=-1)

    def leaving(self) -> Iterator[Leaving]:
        """The copies of which no other node is known to have one, the older one first."""
        for head in sorted(self._heads(), key=lambda one: one.step):
            if self._elsewhere(head.place) != (head.step + 1, head.incarnation):
                texts, parts_end = head.place + _TEXTS_AT, head.parts_at + head.parts_bytes
                yield Leaving(
                    head.step,
                    head.incarnation,
                    self._memory[texts : head.parts_at],
                    self._memory[head.parts_at : parts_end],
                )

    def header_for(self, left: Leaving, parts_sum: int) -> bytes | None:
        """The header of what has left, with the sum of it; None: it was written over meanwhile."""
        head = self._still(left)
        return None if head is None else self._header(replace(head, parts_sum=parts_sum))

    def mark_elsewhere(self, left: Leaving) -> None:
        """Another node has this copy."""
        if (head := self._still(left)) is not None:
            place = head.place + _ELSEWHERE_AT
            self._memory[place : place + _ELSEWHERE.size] = _ELSEWHERE.pack(left.step + 1, left.incarnation)

    def is_elsewhere(self, step: int) -> bool:
        """Whether another node is known to have this copy."""
        head = self._head_of(step)
        return head is not None and self._elsewhere(head.place) == (step + 1, head.incarnation)

    def make_room(self, step: int, size_bytes: int) -> memoryview:
        """Where the bytes of such a copy that comes from another node belong. SnapshotFull.

        The older copy is given up for it.
        """
        if not 0 <= size_bytes <= self._half_bytes - _TEXTS_AT:
            raise SnapshotFull(f"a copy of {size_bytes} bytes, and there is room for {self._half_bytes}")
        place = self._arrives_at = self._place_for(step)
        self._invalidate(place)
        return self._memory[place + _TEXTS_AT : place + _TEXTS_AT + size_bytes]

    def finish(self, step: int, header: bytes) -> bool:
        """Whether what has come is whole by the ``header`` of ``step``. Copies of earlier incarnations go."""
        place = self._arrives_at
        if len(header) != _HEADER.size:
            return False
        self._memory[place : place + _HEADER.size] = header
        head = self._head_at(place)
        if head is None or head.step != step or head.parts_sum != self._sum(head):
            self._invalidate(place)
            return False
        for other in tuple(self._heads()):
            if other.incarnation < head.incarnation:
                self._invalidate(other.place)
        return True

    def _invalidate(self, place: int) -> None:
        self._memory[place : place + _TEXTS_AT] = bytes(_TEXTS_AT)

    def _elsewhere(self, place: int) -> tuple[int, int]:
        at = place + _ELSEWHERE_AT
        step, incarnation = _ELSEWHERE.unpack(self._memory[at : at + _ELSEWHERE.size])
        return step, incarnation

    def _still(self, left: Leaving) -> _Head | None:
        head = self._head_of(left.step)
        return head if head is not None and head.incarnation == left.incarnation else None

    def _place_for(self, step: int) -> int:
        first, second = (self._head_at(place) for place in (0, self._half_bytes))
        if step in (head.step for head in (first, second) if head is not None):
            return 0 if first is not None and first.step == step else self._half_bytes
        if first is None or second is None:
            return 0 if first is None else self._half_bytes
        return 0 if first.step < second.step else self._half_bytes

    def _put(self, at: int, part: memoryview) -> None:
        if part.nbytes < _LARGE or part.readonly:
            self._memory[at : at + part.nbytes] = part
        else:  # a slice assignment would keep Python's lock
            ctypes.memmove(self._address + at, _address_of(part), part.nbytes)

    def _sum(self, head: _Head) -> int:
        found, end = 0, head.parts_at + head.parts_bytes
        for at in range(head.parts_at, end, _SUM_AT_ONCE):
            found = zlib.crc32(self._memory[at : min(at + _SUM_AT_ONCE, end)], found)
        return found

    def _heads(self) -> Iterator[_Head]:
        for place in (0, self._half_bytes):
            if (head := self._head_at(place)) is not None:
                yield head

    def _head_of(self, step: int) -> _Head | None:
        return next((head for head in self._heads() if head.step == step), None)

    def _head_at(self, place: int) -> _Head | None:
        """What this half holds, if it is finished and ours."""
        if self._half_bytes < _TEXTS_AT:
            return None
        header = bytes(self._memory[place : place + _HEADER.size])
        magic, run, rank, incarnation, step, *sizes, parts_bytes, at, found, _, _ = _HEADER.unpack(header)
        if magic != _MAGIC or (run, rank) != (self._owner.run, self._owner.rank):
            return None
        if min(*sizes, parts_bytes) < 0 or _TEXTS_AT + sum(sizes) + parts_bytes > self._half_bytes:
            return None
        texts, text_at = [], place + _TEXTS_AT
        for size_bytes in sizes:
            texts.append(bytes(self._memory[text_at : text_at + size_bytes]))
            text_at += aligned(size_bytes)
        label, plan, pickled = texts
        told = Texts(label=label, plan=plan, pickled=pickled)
        head = _Head(step, incarnation, told, place, text_at, parts_bytes, found)
        if at != text_at - place or at + parts_bytes > self._half_bytes:
            return None
        return head if self._header(head) == header else None

    def _put_header(self, head: _Head) -> None:
        self._memory[head.place : head.place + _HEADER.size] = self._header(head)

    def _header(self, head: _Head) -> bytes:
        texts = head.texts.label, head.texts.plan, head.texts.pickled
        fields = (_MAGIC, self._owner.run, self._owner.rank, head.incarnation, head.step, *map(len, texts))
        fields = (*fields, head.parts_bytes, head.parts_at - head.place, head.parts_sum, 0)
        checksum = zlib.crc32(_HEADER.pack(*fields, 0))
        for text in texts:
            checksum = zlib.crc32(text, checksum)
        return _HEADER.pack(*fields, checksum)


def _address_of(writable: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(writable)) if writable.nbytes else 0
