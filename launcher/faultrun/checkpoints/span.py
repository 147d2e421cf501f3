"""A part of a file with offsets of its own: an archive may be a file, or lie among others in one."""

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.reading import OpenFile


class Span:
    """``size_bytes`` of a file from ``start`` on; by default all of it."""

    __slots__ = ("_file", "_start", "size_bytes")

    def __init__(self, file: OpenFile, start: int = 0, size_bytes: int | None = None) -> None:
        self._file = file
        self._start = start
        self.size_bytes = file.size_bytes - start if size_bytes is None else size_bytes

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Exactly these bytes. Raises Unreadable when they are not all inside."""
        self._check(offset + size_bytes)
        return self._file.read(self._start + offset, size_bytes)

    def crc32(self, start: int, end: int) -> int:
        """CRC-32 of the bytes from ``start`` up to ``end``."""
        self._check(end)
        return self._file.crc32(self._start + start, self._start + end)

    def _check(self, end: int) -> None:
        if end > self.size_bytes:
            raise Unreadable(f"ends at byte {self.size_bytes}, but byte {end} is needed")
