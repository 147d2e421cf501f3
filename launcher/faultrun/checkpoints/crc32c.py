"""CRC-32C (Castagnoli), which TensorFlow uses and Python's zlib does not have.

Plain Python: some ten megabytes a second, so good for headers and small
tensors only. Source: RFC 3720, appendix B.4; the mask is LevelDB's.
"""

from functools import cache

_POLYNOMIAL = 0x82F63B78


def crc32c(data: bytes | memoryview, crc: int = 0) -> int:
    """Return the checksum of ``data``, continuing that of the bytes before it."""
    table = _table()
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Return a checksum as it is stored beside the data it covers (LevelDB: ``util/crc32c.h``)."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        entry = byte
        for _ in range(8):
            entry = entry >> 1 ^ (_POLYNOMIAL if entry & 1 else 0)
        table.append(entry)
    return tuple(table)
