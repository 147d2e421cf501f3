"""The record layer of MindSpore's ``.ckpt``: walk it, bound everything, judge nothing.

A file is a row of protobuf ``Checkpoint`` messages (mindspore/train/serialization.py, ``_exec_save``)::

    Checkpoint  { repeated Value value = 1 }
    Value       { string tag = 1; TensorProto tensor = 2; MapTensorProto maptensor = 3 }
    TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3 }

Tensors above 512 MiB are split into several records with one tag. With ``crc_check=True`` the file ends in
``crc_num`` and a 10-byte big-endian CRC-32 of all bytes before.

An encrypted file (``save_checkpoint(enc_key=...)``) is one frame for each 64 MiB, little-endian:
magic, in AES-GCM 16 bytes of tag, the length of what follows, then the initialisation vector and
the cipher text with their lengths. What is inside cannot be proved without the key, but a
frame that is cut is torn. Measured with 2.10 (``_encrypt`` in the C++ core).
"""

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from faultrun.checkpoints.format import Foreign, Unreadable
from faultrun.checkpoints.reading import OpenFile
from faultrun.model.checkpoint import Depth, Verdict
from faultrun.text.protobuf import WireError, varint

TRAILER_BYTES = 17
_TRAILER_MARK = b"crc_num"
_MAX_RECORDS = 1 << 18
_MAX_TAG_BYTES = 4096
_MAX_TAGS_BYTES = 16 << 20
_HEAD_BYTES = 16 << 10
_SMALL_BYTES, _COUNT_BYTES, _NEAR_BYTES = 16, 64, 512
_ITEM_BYTES = {
    "Bool": 1, "Int8": 1, "UInt8": 1, "Int16": 2, "UInt16": 2, "Int32": 4, "UInt32": 4,
    "Int64": 8, "UInt64": 8, "Float16": 2, "BFloat16": 2, "Float32": 4, "Float64": 8,
    "Complex64": 8, "Complex128": 16,
}  # fmt: skip
COUNTS = frozenset({"epoch_num", "step_num", "global_step", "batch_num", "cur_rank"})
"""Tags of the numbers that tell where in the training a file was written."""

_SCALARS = {"Int64": "<q", "Int32": "<i", "Float32": "<f", "Float64": "<d"}
_GCM, _CBC, _SM4 = 0x7F3A5ED8, 0x7F3A5ED9, 0x7F3A5EDA
_TAG_BYTES = {_GCM: 16, _CBC: 0, _SM4: 0}
_NUMBER_BYTES = 4
_NO_RECORD = "no record"
_NOT_READ = (IndexError, UnicodeDecodeError, WireError)
_LONGEST_VECTOR = 64


class _Record(NamedTuple):
    """One record: ``content_bytes`` of tensor ``tag``; ``content`` is kept only up to 16 bytes."""

    tag: str
    tensor_type: str
    dims: tuple[int, ...]
    content_bytes: int
    content: bytes

    @property
    def scalar(self) -> float | int | None:
        """The number that the record holds, if it holds exactly one."""
        form = _SCALARS.get(self.tensor_type)
        if form is None or len(self.content) != struct.calcsize(form):
            return None
        number: float | int = struct.unpack(form, self.content)[0]
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a file holds, without its tensors: ``sizes`` of each tag in file order, small numbers by tag.

    ``offsets`` says where the numbers in ``COUNTS`` lie. ``crc`` is the stored checksum, None when there is
    no trailer; ``end`` is where the records end.
    """

    sizes: dict[str, int]
    numbers: dict[str, float | int]
    offsets: dict[str, int]
    crc: int | None
    end: int


def outline_of(file: OpenFile) -> Outline:
    """Walk all records to the last byte without reading tensors.

    Raises Foreign when the first byte is no record, Unreadable when a record
    is cut, garbled, or a tensor has fewer bytes than its shape.
    """
    file.skip_about()
    crc = _stored_crc(file)
    end = file.size_bytes - (0 if crc is None else TRAILER_BYTES)
    sizes: dict[str, int] = {}
    numbers: dict[str, float | int] = {}
    offsets: dict[str, int] = {}
    last: _Record | None = None
    tags_bytes = 0
    for at, record in _records(file, end):
        if record.tag in sizes:
            if last is None or last.tag != record.tag:
                raise Unreadable(f"holds {record.tag!r} twice")
        else:
            _check_complete(last, sizes)
            tags_bytes += len(record.tag)
            if len(sizes) >= _MAX_RECORDS or tags_bytes > _MAX_TAGS_BYTES:
                raise Unreadable(f"has more than {len(sizes)} records: not a checkpoint of any model")
        sizes[record.tag] = sizes.get(record.tag, 0) + record.content_bytes
        if (number := record.scalar) is not None:
            numbers[record.tag] = number
            if record.tag in COUNTS:
                offsets[record.tag] = at
        last = record
    _check_complete(last, sizes)
    return Outline(sizes=sizes, numbers=numbers, offsets=offsets, crc=crc, end=end)


def is_encrypted(file: OpenFile) -> bool:
    """Whether the first bytes are those of a frame."""
    return file.size_bytes >= _NUMBER_BYTES and _number(file, 0) in _TAG_BYTES


def judge_encrypted(file: OpenFile) -> Verdict:
    """Torn where a frame is cut; else not to be verified. Raises Unreadable for "torn"."""
    at = count = 0
    while at < file.size_bytes:
        at = _end_of_frame(file, at)
        count += 1
    frames = f"{count} complete frame{'s' if count != 1 else ''}"
    why = f"cannot be verified: encrypted ({frames}; what is in them only its key shows)"
    return Verdict(whole=False, why=why, depth=Depth.NAME, unverifiable=True, provisional=True)


def numbers_at(file: OpenFile, offsets: Mapping[str, int]) -> dict[str, float | int] | None:
    """The numbers at ``offsets`` of another file of the same layout; None when they do not lie there.

    One or two small reads instead of a walk. Says nothing about the rest of the file.
    """
    numbers: dict[str, float | int] = {}
    window, window_at = b"", 0
    for tag, at in offsets.items():
        head_end = min(at + _COUNT_BYTES, file.size_bytes)
        if not window_at <= at < head_end <= window_at + len(window):
            window_at, window = at, file.read(at, min(_NEAR_BYTES, file.size_bytes - at))
        record = window[at - window_at :][:_COUNT_BYTES]
        record = record[: 2 + int.from_bytes(record[1:2], "little")]
        told = next(filter(None, (_count_behind(record[:-size], size) for size in (8, 4))), ("", ""))
        if told[0] != tag:
            return None
        numbers[tag] = struct.unpack_from(told[1], record, len(record) - struct.calcsize(told[1]))[0]
    return numbers


@lru_cache(maxsize=64)
def _count_behind(head: bytes, content_bytes: int) -> tuple[str, str] | None:
    """The tag and the form, by ``struct``, of the number that a record beginning with ``head`` ends in."""
    with suppress(*_NOT_READ):
        record, end = _record(head + bytes(content_bytes), 0)
        if record.scalar is not None and end == len(head) + content_bytes:
            return record.tag, _SCALARS[record.tensor_type]
    return None


def _stored_crc(file: OpenFile) -> int | None:
    if file.size_bytes < TRAILER_BYTES:
        return None
    trailer = file.read(file.size_bytes - TRAILER_BYTES, TRAILER_BYTES)
    if not trailer.startswith(_TRAILER_MARK):
        return None
    return int.from_bytes(trailer[len(_TRAILER_MARK) :], "big")


def _check_complete(last: _Record | None, sizes: dict[str, int]) -> None:
    if last is None or last.tensor_type not in _ITEM_BYTES or last.dims == (0,):
        return
    needed = _ITEM_BYTES[last.tensor_type]
    for length in last.dims:
        needed *= length
    if sizes[last.tag] != needed:
        raise Unreadable(f"tensor {last.tag!r} has {sizes[last.tag]} of its {needed} bytes")


def _records(file: OpenFile, end: int) -> Iterator[tuple[int, _Record]]:
    """Each record with its offset, from the start up to ``end``, reading only their heads."""
    if end and file.read(0, 1) != b"\x0a":
        raise Foreign("does not begin with a MindSpore record (encrypted, or another format)")
    at = window_at = 0
    window = b""
    wanted = _HEAD_BYTES
    while at < end:
        if at >= window_at + len(window):
            window_at, window = at, file.read(at, min(wanted, end - at))
        try:
            record, after = _record(window, at - window_at)
        except _NOT_READ as err:
            if window_at == at and len(window) == min(_HEAD_BYTES, end - at):
                raise Unreadable(f"cut or garbled at byte {at} of {file.size_bytes}") from err
            window_at, window = at, file.read(at, min(_HEAD_BYTES, end - at))
            continue
        if window_at + after > end:
            what = f"cut: {record.tag!r} would end at byte {window_at + after}, the file ends at {end}"
            raise Unreadable(what)
        yield at, record
        # Behind a long tensor only the next head is wanted; short ones are read many at a time.
        wanted = _NEAR_BYTES if after > len(window) else _HEAD_BYTES
        at = window_at + after


def _record(data: bytes, at: int) -> tuple[_Record, int]:
    """Parse the record at ``at``; its end may lie beyond ``data``.

    Raises one of _NOT_READ: it is no record, or its head is longer than ``data``.
    """
    if data[at] != 0x0A:
        raise WireError(_NO_RECORD)
    length, at = varint(data, at + 1)
    end = at + length
    if data[at] != 0x0A:
        raise WireError(_NO_RECORD)
    tag_bytes, at = varint(data, at + 1)
    tag = _text(data, at, tag_bytes)
    at += tag_bytes
    field = data[at]
    body_bytes, at = varint(data, at + 1)
    if at + body_bytes != end or field not in {0x12, 0x1A}:
        raise WireError(_NO_RECORD)
    if field == 0x1A:
        return _Record(tag, "map", (), body_bytes, b""), end
    return _tensor(tag, data, at, end), end


def _tensor(tag: str, data: bytes, at: int, end: int) -> _Record:
    """Parse a TensorProto that spans ``at`` to ``end`` and whose content, if any, comes last."""
    dims: list[int] = []
    tensor_type = ""
    while at < end:
        key = data[at]
        value, at = varint(data, at + 1)
        if key == 0x08:
            dims.append(value)
            continue
        if key == 0x12:
            tensor_type = _text(data, at, value)
        elif key == 0x1A and at + value == end:
            content = _bytes(data, at, value) if value <= _SMALL_BYTES else b""
            return _Record(tag, tensor_type, tuple(dims), value, content)
        else:
            raise WireError(_NO_RECORD)
        at += value
    raise WireError(_NO_RECORD)


def _text(data: bytes, at: int, size_bytes: int) -> str:
    if size_bytes > _MAX_TAG_BYTES:
        raise WireError(_NO_RECORD)
    return _bytes(data, at, size_bytes).decode()


def _bytes(data: bytes, at: int, size_bytes: int) -> bytes:
    if at + size_bytes > len(data):
        raise IndexError
    return data[at : at + size_bytes]


def _end_of_frame(file: OpenFile, at: int) -> int:
    if (tag_bytes := _TAG_BYTES.get(_number(file, at))) is None:
        raise Unreadable(f"is encrypted, and garbled at byte {at}")
    lengths_at = at + _NUMBER_BYTES + tag_bytes
    end = lengths_at + _NUMBER_BYTES + _number(file, lengths_at)
    if (vector_bytes := _number(file, lengths_at + _NUMBER_BYTES)) > _LONGEST_VECTOR:
        raise Unreadable(f"is encrypted, and garbled at byte {lengths_at}")
    text_at = lengths_at + 2 * _NUMBER_BYTES + vector_bytes
    if text_at + _NUMBER_BYTES + _number(file, text_at) != end:
        raise Unreadable(f"is encrypted, and garbled at byte {text_at}")
    if end > file.size_bytes:
        raise Unreadable(f"is encrypted, and cut: ends at byte {file.size_bytes}, its last frame at {end}")
    return end


def _number(file: OpenFile, at: int) -> int:
    return int.from_bytes(file.read(at, _NUMBER_BYTES), "little")
