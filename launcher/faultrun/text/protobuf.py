"""The wire format of protobuf: numbered fields of four kinds, and numbers of variable length.

Source: the encoding page of the protobuf documentation. Groups (wire types 3
and 4) are not used by any file that is read here, and are refused.
"""

from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5


class WireError(Exception):
    """The bytes are cut, or are not protobuf; the message is a clause for people."""


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield (field number, wire type, value); the value is a number for VARINT, else bytes."""
    position = 0
    while position < len(data):
        start = position
        tag, position = varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if number == 0 or tag > 0xFFFFFFFF:
            raise WireError(f"byte {start} starts no field")
        if wire_type == VARINT:
            value, position = varint(data, position)
            yield number, wire_type, value
            continue
        if wire_type == LENGTH:
            length, position = varint(data, position)
        elif wire_type in (FIXED32, FIXED64):
            length = 4 if wire_type == FIXED32 else 8
        else:
            raise WireError(f"byte {start} has wire type {wire_type}, which this format does not use")
        if length > len(data) - position:
            left = len(data) - position
            raise WireError(f"cut: the field at byte {start} needs {length} bytes, {left} are left")
        yield number, wire_type, data[position : position + length]
        position += length


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at ``position``, at most 64 bits, and the position after it."""
    value = shift = 0
    for at in range(position, len(data)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                raise WireError(f"the number before byte {at + 1} does not fit 64 bits")
            return value, at + 1
        shift += 7
        if shift > 63:
            raise WireError(f"the number before byte {at + 1} does not end")
    raise WireError("cut inside a number")


def encode_varint(value: int) -> bytes:
    """Return the bytes of a number that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_message(number: int, payload: bytes) -> bytes:
    """Return a length-delimited field."""
    return encode_varint(number << 3 | LENGTH) + encode_varint(len(payload)) + payload
