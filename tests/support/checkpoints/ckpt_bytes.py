"""Byte-exact MindSpore ``.ckpt`` files without MindSpore: the encoder that the tests of the reader need.

``test_checkpoints_mindspore_real.py`` compares it with what MindSpore writes.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from faultrun.text.protobuf import encode_varint

Value = int | float | str | Sequence[float]


def field(key: int, data: bytes) -> bytes:
    return bytes([key]) + encode_varint(len(data)) + data


def record(tag: str, tensor_type: str, dims: Sequence[int], content: bytes) -> bytes:
    shape = b"".join(b"\x08" + encode_varint(dim) for dim in dims)
    tensor = shape + field(0x12, tensor_type.encode()) + field(0x1A, content)
    return field(0x0A, field(0x0A, tag.encode()) + field(0x12, tensor))


def value_record(tag: str, value: Value) -> bytes:
    """One record: int -> Int64 scalar, float -> Float32 scalar, str -> str, numbers -> Float32 vector."""
    if isinstance(value, str):
        return record(tag, "str", [0], value.encode("utf-32-le"))
    if isinstance(value, int):
        return record(tag, "Int64", [], struct.pack("<q", value))
    if isinstance(value, float):
        return record(tag, "Float32", [], struct.pack("<f", value))
    return record(tag, "Float32", [len(value)], struct.pack(f"<{len(value)}f", *value))


def records(values: Mapping[str, Value]) -> list[bytes]:
    return [value_record(tag, value) for tag, value in values.items()]


def with_crc(body: bytes) -> bytes:
    return body + b"crc_num" + zlib.crc32(body).to_bytes(10, "big")


WEIGHTS: Mapping[str, Value] = {
    "conv.weight": [1.0, 2.0, 3.0, 4.0],
    "fc.weight": [0.5] * 8,
    "fc.bias": [0.0, 1.0],
}


def ckpt(epoch: int | None, step_num: int | None, *, crc: bool = False, **more: Value) -> bytes:
    """A small checkpoint: the same weights each time, ``more``, then the appended numbers."""
    values = {**WEIGHTS, **more}
    if epoch is not None:
        values["epoch_num"] = epoch
    if step_num is not None:
        values["step_num"] = step_num
    body = b"".join(records(values))
    return with_crc(body) if crc else body


def save(path: Path, data: bytes, *, mode: int = 0o644, mtime_s: float | None = None) -> Path:
    """Write a file as a finished save: old enough not to be waited for, unless ``mtime_s`` says otherwise."""
    import os

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    at_s = path.stat().st_mtime - 3600 if mtime_s is None else mtime_s
    os.utime(path, (at_s, at_s))
    return path
