"""``prefix.index`` of a TensorFlow checkpoint: a sorted table of where each tensor lies.

The table is LevelDB's: blocks of keys and values, each followed by its kind (0: not compressed) and its
masked CRC-32C; an index block with the places of the blocks; 48 bytes of footer with the place of the index
block and a magic number. The key "" holds a ``BundleHeaderProto``, every other key a ``BundleEntryProto``.

The checksum is CRC-32C (Castagnoli), which Python's zlib does not have: in plain Python some
ten megabytes a second, so good for headers and small tensors only.

Sources: ``tensorflow/core/lib/io/format.cc`` and ``table.h``, ``core/protobuf/tensor_bundle.proto``;
RFC 3720, appendix B.4; the mask is that of LevelDB's ``util/crc32c.h``.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from faultrun.checkpoints.format import Foreign, Unreadable
from faultrun.checkpoints.reading import OpenFile
from faultrun.text.protobuf import FIXED32, LENGTH, VARINT, WireError, fields, varint

MAX_INDEX_BYTES = 32 << 20
"""About 300,000 tensors; checksums over more would take too long."""

_FOOTER_BYTES = 48
_MAGIC = 0xDB4775248B80FB57
_TRAILER_BYTES, _LONGEST_KEY_BYTES = 5, 4096
_LITTLE_ENDIAN = 0
_MOST_ELEMENTS = 1 << 62
_POLYNOMIAL = 0x82F63B78


@dataclass(frozen=True, slots=True)
class Placed:
    """One tensor of ``elements``, or one slice of one; ``crc`` is masked and covers its ``size_bytes``."""

    key: bytes
    dtype: int
    elements: int
    shard: int
    offset: int
    size_bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class Index:
    """How many shards there are, and what is in them."""

    shards: int
    tensors: tuple[Placed, ...]


def read_index(file: OpenFile) -> Index:
    """Read the whole index, with all its checksums. Raises Foreign or Unreadable."""
    if file.size_bytes < _FOOTER_BYTES:
        raise Unreadable(f"its index has {file.size_bytes} bytes, too few for its footer")
    footer = file.read(file.size_bytes - _FOOTER_BYTES, _FOOTER_BYTES)
    if int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise Foreign("its index does not end as TensorFlow's do: it is cut, or another file")
    if file.size_bytes > MAX_INDEX_BYTES:
        raise Unreadable(f"its index has {file.size_bytes} bytes (limit {MAX_INDEX_BYTES})")
    try:
        return _read_table(file, footer)
    except WireError as damage:
        raise Unreadable(f"its index is damaged: {damage}") from damage


def crc32c(data: bytes | memoryview, crc: int = 0) -> int:
    """Return the checksum of ``data``, continuing that of the bytes before it."""
    table = _table()
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Return a checksum as it is stored beside the data it covers."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    table = list(range(256))
    for _ in range(8):
        table = [entry >> 1 ^ (_POLYNOMIAL if entry & 1 else 0) for entry in table]
    return tuple(table)


def _read_table(file: OpenFile, footer: bytes) -> Index:
    _, at = _handle(footer, 0)  # of the block of filters, which TensorFlow leaves empty
    index_block, _ = _handle(footer, at)
    shards: int | None = None
    tensors: list[Placed] = []
    for _, place in _entries(_block(file, index_block)):
        handle, _ = _handle(place, 0)
        for key, value in _entries(_block(file, handle)):
            if key == b"":
                shards = _shard_count(value)
            else:
                tensors.append(_placed(key, value))
    if shards is None:
        raise Unreadable("its index has no header")
    for tensor in tensors:
        if tensor.shard >= shards:
            raise Unreadable(f"its index places a tensor in shard {tensor.shard} of {shards}")
    return Index(shards=shards, tensors=tuple(tensors))


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """The offset and length of a block, and the position after them."""
    offset, position = varint(data, position)
    length, position = varint(data, position)
    return (offset, length), position


def _block(file: OpenFile, handle: tuple[int, int]) -> bytes:
    offset, length = handle
    if offset + length + _TRAILER_BYTES > file.size_bytes - _FOOTER_BYTES:
        raise Unreadable("its index is cut: a block reaches into the footer")
    data = file.read(offset, length + _TRAILER_BYTES)
    if int.from_bytes(data[-4:], "little") != masked(crc32c(data[:-4])):
        raise Unreadable(f"the checksum of its index is wrong at byte {offset}")
    if data[length] != 0:
        raise Unreadable("its index is compressed, which TensorFlow never does")
    return data[:length]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values; each key is given by what it shares with the one before, and the rest."""
    if len(block) < 4:
        raise WireError("a block is too short")
    (restarts,) = struct.unpack("<I", block[-4:])
    if (end := len(block) - 4 - 4 * restarts) < 0:
        raise WireError("a block is too short")
    position, key = 0, b""
    while position < end:
        shared, position = varint(block, position)
        rest, position = varint(block, position)
        length, position = varint(block, position)
        if shared > len(key) or shared + rest > _LONGEST_KEY_BYTES or position + rest + length > end:
            raise WireError("an entry reaches beyond its block")
        key = key[:shared] + block[position : position + rest]
        position += rest
        yield key, block[position : position + length]
        position += length


def _shard_count(data: bytes) -> int:
    """``BundleHeaderProto {int32 num_shards = 1; Endianness endianness = 2; ...}``."""
    numbers = {number: value for number, kind, value in fields(data) if kind == VARINT}
    if numbers.get(2, _LITTLE_ENDIAN) != _LITTLE_ENDIAN:
        raise Unreadable("it was written on a big-endian machine")
    if not isinstance((shards := numbers.get(1, 0)), int) or not 0 < shards < 100_000:
        raise Unreadable(f"its index announces {shards!r} shards")
    return shards


def _placed(key: bytes, data: bytes) -> Placed:
    """``BundleEntryProto {dtype = 1; shape = 2; shard_id = 3; offset = 4; size = 5; crc32c = 6; ...}``."""
    numbers = {1: 0, 3: 0, 4: 0, 5: 0, 6: 0}
    elements = 1
    for number, kind, value in fields(data):
        if number in numbers and isinstance(value, int):
            numbers[number] = value
        elif number == 2 and kind == LENGTH and isinstance(value, bytes):
            elements = _elements(value)
        elif number == 6 and kind == FIXED32 and isinstance(value, bytes):
            numbers[number] = int.from_bytes(value, "little")
    return Placed(key, numbers[1], elements, numbers[3], numbers[4], numbers[5], numbers[6])


def _elements(shape: bytes) -> int:
    """``TensorShapeProto {repeated Dim {int64 size = 1; ...} dim = 2; ...}``."""
    elements = 1
    for number, kind, dimension in fields(shape):
        if number == 2 and kind == LENGTH and isinstance(dimension, bytes):
            sizes = [size for inner, _, size in fields(dimension) if inner == 1 and isinstance(size, int)]
            elements = min(elements * (sizes[-1] if sizes else 0), _MOST_ELEMENTS)
    return elements
