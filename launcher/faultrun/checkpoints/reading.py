"""Bounded, positioned reading of files that may be torn, growing or hostile, and their digests.

Knows no format. Nothing here maps files into memory: a mapped file that is
cut while we look at it would end the supervisor with SIGBUS.
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from faultrun.checkpoints.format import Meter, Stamp, Unreadable, no_meter

BLOCK_BYTES = 1 << 20


class OpenFile:
    """A regular file opened read-only; ``size_bytes``: its length when opened; ``mode``: its permissions."""

    __slots__ = ("_fd", "_meter", "mode", "size_bytes", "stamp")

    def __init__(self, fd: int, meter: Meter = no_meter) -> None:
        self._fd = fd
        self._meter = meter
        info = os.fstat(fd)
        self.size_bytes = info.st_size
        self.mode = info.st_mode & 0o777
        self.stamp = Stamp(info.st_ino, info.st_size, info.st_mtime_ns)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Exactly ``size_bytes`` from ``offset``. Raises Unreadable when the file ends before."""
        if size_bytes < 0 or offset < 0 or offset + size_bytes > self.size_bytes:
            raise Unreadable(f"ends at byte {self.size_bytes}, but byte {offset + size_bytes} is needed")
        data = os.pread(self._fd, size_bytes, offset)
        while len(data) < size_bytes:
            more = os.pread(self._fd, size_bytes - len(data), offset + len(data))
            if not more:
                raise Unreadable("became shorter while it was read")
            data += more
        self._meter(size_bytes)
        return data

    def skip_about(self) -> None:
        """Tell the kernel that only scattered heads will be read: it shall not fetch what lies between."""
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def crc32(self, start: int, end: int) -> int:
        """CRC-32 (zlib's) of the bytes from ``start`` up to ``end``."""
        crc = 0
        for block in self.blocks(start, end):
            crc = zlib.crc32(block, crc)
        return crc

    def hexdigest(self, algorithm: str) -> str:
        """Hexadecimal digest of the whole file by one of hashlib's algorithms, e.g. ``sha256``."""
        import hashlib  # noqa: PLC0415 - OpenSSL costs megabytes that most supervisors can do without

        digest = hashlib.new(algorithm)
        for block in self.blocks(0, self.size_bytes):
            digest.update(block)
        return digest.hexdigest()

    def blocks(self, start: int, end: int) -> Iterator[memoryview]:
        """The bytes from ``start`` up to ``end`` in pieces; each piece is only valid until the next."""
        if end > self.size_bytes:
            raise Unreadable(f"ends at byte {self.size_bytes}, but byte {end} is needed")
        os.posix_fadvise(self._fd, start, end - start, os.POSIX_FADV_SEQUENTIAL)
        buffer = memoryview(bytearray(min(BLOCK_BYTES, max(end - start, 1))))
        while start < end:
            got = os.preadv(self._fd, [buffer[: min(len(buffer), end - start)]], start)
            if got == 0:
                raise Unreadable("became shorter while it was read")
            self._meter(got)
            yield buffer[:got]
            start += got


def digest_matches(file: OpenFile, digest: str) -> bool:
    """Whether the whole file has ``digest``: ``crc32:<8 hex>`` or e.g. ``sha256:<hex>`` (hashlib's names)."""
    algorithm, _, expected = digest.partition(":")
    if algorithm == "crc32":
        return f"{file.crc32(0, file.size_bytes):08x}" == expected
    return file.hexdigest(algorithm) == expected


@contextmanager
def opened(path: str, meter: Meter = no_meter) -> Iterator[OpenFile]:
    """Open a regular file for positioned reading. Raises Unreadable, also for directories and pipes."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as err:
        raise Unreadable(f"cannot be read: {err.strerror}") from err
    try:
        if not _is_regular(fd):
            raise Unreadable("is not a regular file")
        yield OpenFile(fd, meter)
    except OSError as err:
        raise Unreadable(f"cannot be read: {err.strerror}") from err
    finally:
        os.close(fd)


def _is_regular(fd: int) -> bool:
    return (os.fstat(fd).st_mode & 0o170000) == 0o100000
