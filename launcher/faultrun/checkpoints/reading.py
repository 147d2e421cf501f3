"""Bounded, positioned reading of files that may be torn, growing or hostile, and their digests.

Knows no format but ``<file>.sha256`` as ``sha256sum`` writes it: a checksum for formats that have none.
Nothing here maps files into memory: a mapped file that is cut while we look at it would
end the supervisor with SIGBUS.
"""

import json
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from faultrun.checkpoints.format import Meter, Stamp, Unreadable, no_meter
from faultrun.checkpoints.in_parallel import in_parallel
from faultrun.checkpoints.names import base_name, shown
from faultrun.files import sha256
from faultrun.model.checkpoint import Depth, Verdict

SIDECAR = ".sha256"
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_READERS, _BATCH = 8, 32
_BLOCK_BYTES = 1 << 20
_MOST_BESIDE = 10_000
_POINTER_BYTES, _POINTER_LINES = 4096, 20
_NO_POINTER = re.compile(r".*\.(?:py|sh|log|out|err|md|ipynb)|out\.txt|.*log.*\.txt", re.IGNORECASE)
"""Programs and logs name checkpoints, too."""
_MAX_SIDECAR_BYTES = 64 << 10
_PLACES, _PLACE_BYTES = 16, 1024
_WHOLE_BYTES, _OF_ALL = 16 << 20, "w"
_SIDECAR_LINE = re.compile(r"\\?([0-9a-fA-F]{64})(?:[ \t]+\*?(.*?))?[ \t\r]*")


class OpenFile:
    """A regular file opened read-only; ``size_bytes``: its length when opened; ``mode``: its permissions."""

    __slots__ = ("_fd", "_meter", "_start", "mode", "size_bytes", "stamp")

    def __init__(self, fd: int, meter: Meter = no_meter) -> None:
        self._fd = fd
        self._meter = meter
        self._start = 0
        info = os.fstat(fd)
        self.size_bytes = info.st_size
        self.mode = info.st_mode & 0o777
        self.stamp = Stamp(info.st_ino, info.st_size, info.st_mtime_ns)

    def part(self, start: int, size_bytes: int) -> "OpenFile":
        """A part with offsets of its own: an archive may be a file, or lie among others in one."""
        part = OpenFile(self._fd, self._meter)
        part._start, part.size_bytes = start, size_bytes
        return part

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Exactly ``size_bytes`` from ``offset``. Raises Unreadable when the file ends before."""
        if size_bytes < 0 or offset < 0:
            raise Unreadable(f"has {self.size_bytes} bytes, too few for what it should begin or end with")
        if offset + size_bytes > self.size_bytes:
            raise Unreadable(f"ends at byte {self.size_bytes}, but byte {offset + size_bytes} is needed")
        at = self._start + offset
        data = os.pread(self._fd, size_bytes, at)
        while len(data) < size_bytes:
            more = os.pread(self._fd, size_bytes - len(data), at + len(data))
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
        start, end = self._start + start, self._start + end
        os.posix_fadvise(self._fd, start, end - start, os.POSIX_FADV_SEQUENTIAL)
        buffer = memoryview(bytearray(min(_BLOCK_BYTES, max(end - start, 1))))
        while start < end:
            got = os.preadv(self._fd, [buffer[: min(len(buffer), end - start)]], start)
            if got == 0:
                raise Unreadable("became shorter while it was read")
            self._meter(got)
            yield buffer[:got]
            start += got


@contextmanager
def opened(path: str, meter: Meter = no_meter) -> Iterator[OpenFile]:
    """Open a regular file for positioned reading. Raises Unreadable, also for directories and pipes."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as err:
        raise Unreadable(f"cannot be read: {err.strerror}") from err
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unreadable("is not a regular file")
        yield OpenFile(fd, meter)
    except OSError as err:
        raise Unreadable(f"cannot be read: {err.strerror}") from err
    finally:
        os.close(fd)


@contextmanager
def within(name: str) -> Iterator[None]:
    """Raise what is Unreadable with ``name``, the member of a checkpoint that it is in."""
    try:
        yield
    except Unreadable as damaged:
        raise type(damaged)(f"its {shown(name)}: {damaged.why}") from damaged


def read_whole(path: str, most_bytes: int, meter: Meter = no_meter) -> bytes:
    """All bytes of a small file. Raises Unreadable when it has more than ``most_bytes``."""
    with opened(path, meter) as file:
        if file.size_bytes > most_bytes:
            raise Unreadable(f"has {file.size_bytes} bytes (limit {most_bytes})")
        return file.read(0, file.size_bytes)


def read_json(path: str, most_bytes: int) -> Any:
    """The JSON in a small file. Raises Unreadable."""
    try:
        return json.loads(read_whole(path, most_bytes))
    except (ValueError, RecursionError) as err:
        raise Unreadable("is torn: not JSON") from err


def names_in(path: str) -> list[str]:
    """The names in a directory, sorted. Raises Unreadable."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - a string is all there is
    except OSError as err:
        raise Unreadable(f"cannot be read: {err.strerror}") from err


def alike_with(path: str, name: str) -> str:
    """The directory beside ``path``, with a name alike but for numbers, that has ``name``; else ''."""
    parent, _, own = path.rpartition("/")
    alike = re.compile(re.sub(r"\d+", r"\\d+", re.escape(own)))
    found = (one for one in names_in(parent or "/")[:_MOST_BESIDE] if one != own and alike.fullmatch(one))
    return next((one for one in found if os.path.isfile(f"{parent}/{one}/{name}")), "")  # noqa: PTH113 - as above


def digest_matches(file: OpenFile, digest: str) -> bool:
    """Whether the whole file has ``digest``: ``crc32:<8 hex>`` or e.g. ``sha256:<hex>`` (hashlib's names)."""
    algorithm, _, expected = digest.partition(":")
    if algorithm == "crc32":
        return f"{file.crc32(0, file.size_bytes):08x}" == expected
    return file.hexdigest(algorithm) == expected


def each_of(items: Sequence[_Item], look: Callable[[_Item], _Found]) -> list[_Found]:
    """A look at each of many checkpoints; in parallel if the first few mostly waited for the disk."""
    begin_s, begin_cpu_s = time.perf_counter(), time.thread_time()
    first = [look(one) for one in items[:_BATCH]]
    busy_s, whole_s = time.thread_time() - begin_cpu_s, time.perf_counter() - begin_s
    if len(items) <= _BATCH or busy_s > whole_s / 2:
        return first + [look(one) for one in items[_BATCH:]]
    batches = [items[at : at + _BATCH] for at in range(_BATCH, len(items), _BATCH)]
    done = in_parallel(lambda batch: [look(one) for one in batch], batches, most=_READERS, name="headers")
    return first + list(chain.from_iterable(done))


def sampled_digest(paths: Sequence[str], most: int | None = None) -> str:
    """A digest of what stands at 16 fixed places of ``paths`` together, and of their sizes; '' if unreadable.

    ``most``: as if each had no more bytes than that.

    It tells two states of one training apart at the cost of a header, and says the same of every copy.
    """
    begins, told = 0, sha256()
    try:
        sizes = [os.stat(path).st_size for path in paths]  # noqa: PTH116 - strings are all there is
        sizes = sizes if most is None else [min(size, most) for size in sizes]
        last = max(sum(sizes) - _PLACE_BYTES, 0)
        places = {last * number // (_PLACES - 1) for number in range(_PLACES)}
        for path, size in zip(paths, sizes, strict=True):
            inside = sorted(place - begins for place in places if begins <= place < begins + size)
            told.update(f"{size} {inside}\n".encode())
            if inside:
                with opened(path) as file:
                    for at in inside:
                        told.update(file.read(at, min(_PLACE_BYTES, size - at)))
            begins += size
    except (OSError, Unreadable):
        return ""
    return told.hexdigest()


def contents_digest(path: str) -> str:
    """A short digest of all that is in a file of at most 16 MiB, else of 16 places; '' if unreadable.

    Where most of a model is frozen, two saves may differ at none of these places.
    """
    with suppress(OSError, Unreadable), opened(path) as file:
        if file.size_bytes <= _WHOLE_BYTES:
            told = sha256()
            for block in file.blocks(0, file.size_bytes):
                told.update(block)
            return f"{_OF_ALL}{told.hexdigest()[:15]}"
    return sampled_digest((path,))[:16]


def comparable(one: str, other: str) -> bool:
    """Whether two of ``contents_digest`` are of the same parts of a file."""
    return bool(one and other) and one.startswith(_OF_ALL) == other.startswith(_OF_ALL)


def stored_digest(path: str) -> str | None:
    """``sha256:<hex>`` from the sidecar of ``path``; None when there is none that can be understood.

    A sidecar cut by a crash proves nothing either way, so it is ignored.
    """
    try:
        with opened(path + SIDECAR) as file:
            text = file.read(0, min(file.size_bytes, _MAX_SIDECAR_BYTES)).decode(errors="replace")
    except Unreadable:
        return None
    lines = [found for line in text.splitlines() if (found := _SIDECAR_LINE.fullmatch(line))]
    named = [found for found in lines if base_name(found[2] or "") == base_name(path)]
    chosen = named or [found for found in lines if not found[2]]
    return f"sha256:{chosen[0][1].lower()}" if chosen else None


def compare_digest(path: str, digest: str, meter: Meter) -> Verdict:
    """Whether the bytes of ``path`` have the ``digest`` of its sidecar. May raise Unreadable."""
    with opened(path, meter) as file:
        same = digest_matches(file, digest)
    why = "matches its .sha256" if same else "its bytes do not match its .sha256"
    return Verdict(whole=same, why=why, depth=Depth.CHECKSUM, digest=digest if same else "")


def naming(folder: str, name: str) -> Iterator[str]:
    """The names of small files and links in ``folder`` that name the file ``name``, as ``latest`` does."""
    with suppress(OSError), os.scandir(folder) as found:
        for one in found:
            with suppress(OSError):
                if one.is_symlink():
                    said = os.readlink(one.path)  # noqa: PTH115 - a string is all there is
                elif one.is_file() and 0 < one.stat().st_size <= _POINTER_BYTES:
                    said = Path(one.path).read_text(encoding="utf-8", errors="replace")
                else:
                    continue
                short = said.count("\n") <= _POINTER_LINES and not _NO_POINTER.fullmatch(one.name)
                if short and re.search(rf"^\W*(?:[\w-]+\W+)?\S*{re.escape(name)}\W*$", said, re.MULTILINE):
                    yield one.name
