"""The header of a ``.safetensors`` file, checked against the file's length before it is believed.

Eight bytes give the length of a JSON object: for each tensor its type, shape
and the part of the data it occupies, and under ``__metadata__`` texts. The
parts must follow one another without gap and end with the file, so a file
that is cut anywhere cannot pass. Source: huggingface/safetensors.
"""

import json
import math
from dataclasses import dataclass
from typing import TypeGuard

from faultrun.checkpoints.format import Foreign, Unreadable
from faultrun.checkpoints.reading import OpenFile
from faultrun.checkpoints.shown import shown

MAX_HEADER_BYTES = 16 << 20
"""About 100,000 tensors. The format allows 100 MB, which no known model needs."""

_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64, "C128": 128,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor; ``start`` and ``end`` are offsets in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """Tensors in the order of their data, and the texts of the metadata."""

    tensors: tuple[Tensor, ...]
    metadata: dict[str, str]
    names: frozenset[str]


def read_header(file: OpenFile) -> Header:
    """Read and check the header. Raises Foreign if there is none, Unreadable if it does not fit the file."""
    if file.size_bytes == 0:
        raise Unreadable("it is empty")
    length = int.from_bytes(file.read(0, 8), "little")
    if length > MAX_HEADER_BYTES and length <= file.size_bytes - 8:
        raise Unreadable(f"its header has {length} bytes (limit {MAX_HEADER_BYTES})")
    if length > MAX_HEADER_BYTES or length < 2:
        raise Foreign("it does not start with the length of a header")
    text = file.read(8, length)
    if not text.startswith(b"{"):
        raise Foreign("its header is not JSON")
    members = parse_object(text)
    metadata = members.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Unreadable("its metadata are not texts")
    tensors = sorted(
        (_tensor(name, fields, 8 + length) for name, fields in members.items()),
        key=lambda tensor: (tensor.start, tensor.end),
    )
    end = 8 + length
    for tensor in tensors:
        if tensor.start != end:
            raise Unreadable(f"there is a gap or an overlap before its tensor {shown(tensor.name)}")
        end = tensor.end
    if end != file.size_bytes:
        raise Unreadable(f"its tensors end at byte {end}, the file at byte {file.size_bytes}")
    return Header(tensors=tuple(tensors), metadata=metadata, names=frozenset(members))


def parse_object(text: bytes) -> dict[str, object]:
    """Parse a JSON object that somebody else wrote. Raises Unreadable; no name may come twice."""
    try:
        parsed = json.loads(
            text, object_pairs_hook=_distinct, parse_int=_short_int, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise Unreadable("its header is damaged") from error
    if not isinstance(parsed, dict):
        raise Unreadable("its header is damaged")
    return parsed


def _tensor(name: str, fields: object, data_at: int) -> Tensor:
    if isinstance(fields, dict):
        dtype, shape, part = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
        if isinstance(dtype, str) and _are_sizes(shape) and _are_sizes(part) and len(part) == 2:
            start, end = part
            bits = _BITS.get(dtype)
            if start > end or (bits is not None and (end - start) * 8 != math.prod(shape) * bits):
                raise Unreadable(
                    f"its tensor {shown(name)} has {end - start} bytes, which do not fit its shape"
                )
            return Tensor(name, dtype, tuple(shape), data_at + start, data_at + end)
    raise Unreadable(f"its tensor {shown(name)} is not described")


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    """A list of a few integers that are not negative; 64 is as many dimensions as any framework has."""
    return (
        isinstance(value, list)
        and len(value) <= 64
        and all(type(number) is int and 0 <= number < 2**53 for number in value)
    )


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError
    return members


def _short_int(text: str) -> int:
    if len(text) > 20:
        raise ValueError
    return int(text)


def _no_constant(_text: str) -> None:
    raise ValueError
