"""Checkpoints listed, read and verified, next to the least that any program must do for it."""

import os
import time
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.campaigns.savers import counts, record
from benchmarks.harness.benchmark import OURS, Attempt, Benchmark, Metric, NotMeasured, Promise, Unit, Verdict
from benchmarks.harness.series import Readings
from faultrun.checkpoints.catalog import Catalog
from faultrun.checkpoints.formats.mindspore.ckpt import MindSporeCkpt
from faultrun.checkpoints.registry import Registry, builtin_formats
from faultrun.model.checkpoint import Entry

LEAST = "least"
LISTING = "10,000 files in 16 directories"
HEADER = "header of 1 GiB, 640 tensors"
VERIFY = "512 MiB with a checksum"

LISTING_LIMIT_S = 1.0
HEADER_LIMIT_S = 0.005
SPEED_LIMIT = 0.8

_FILES, _RANKS = 10_000, 16
_TENSORS = 640
_HEADERS = 25
_REPEATS = 5
_BLOCK_BYTES = 1 << 20


def measure(attempt: Attempt) -> Mapping[str, list[float]]:
    """One case, once; the files are in the page cache, so that the program is measured and not the disk."""
    ask = {LISTING: _listing, HEADER: _header, VERIFY: _verification}[attempt.case]
    return ask(attempt.contender, attempt.folder)


def _listing(contender: str, root: Path) -> dict[str, list[float]]:
    for number in range(_FILES):
        step = number // _RANKS + 1
        path = root / f"rank_{number % _RANKS}" / f"net-{step // 100 + 1}_{step % 100 + 1}.ckpt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(
            b"".join([record("w", "Float32", bytes(16), dims=(4,)), *counts(step // 100 + 1, step)])
        )
    if contender == LEAST:
        return {"took": [_timed(lambda: _look_at_all(root)) for _ in range(_REPEATS)]}
    memories = [str(root / f"memory{number}.jsonl") for number in range(_REPEATS)]
    first = [_timed(partial(_scan, root, memory)) for memory in memories]
    return {"took": first, "again": [_timed(partial(_scan, root, memory)) for memory in memories]}


def _scan(root: Path, memory: str) -> None:
    registry = Registry(formats=builtin_formats())
    found = Catalog([str(root)], memory_path=memory, registry=registry).scan()
    if len(found.entries) != _FILES or any(entry.global_step is None for entry in found.entries):
        raise NotMeasured(f"{len(found.entries)} of {_FILES} were classified")


def _look_at_all(root: Path) -> None:
    for directory, _, names in os.walk(root):
        for name in names:
            Path(directory, name).stat()


def _header(contender: str, root: Path) -> dict[str, list[float]]:
    path = root / "net-1_5.ckpt"
    _write_sparse(path, size_bytes=1 << 30)
    if contender == LEAST:
        return {"took": [_timed(lambda: _first_and_last(path)) for _ in range(_HEADERS)]}
    entry = _entry(root)
    fresh = [MindSporeCkpt() for _ in range(_HEADERS)]
    took = [_timed(partial(one.read, entry)) for one in fresh]
    return {"took": took, "again": [_timed(lambda: fresh[0].read(entry)) for _ in range(_HEADERS)]}


def _first_and_last(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.pread(fd, 4096, 0)
    os.pread(fd, 4096, os.fstat(fd).st_size - 4096)
    os.close(fd)


def _verification(contender: str, root: Path) -> dict[str, list[float]]:
    path = root / "net-1_5.ckpt"
    _write_checked(path, size_bytes=512 << 20)
    _checksum(path)  # into the page cache
    if contender == LEAST:
        return {"took": [_timed(lambda: _checksum(path)) for _ in range(_REPEATS)]}
    return {"took": [_verified(root) for _ in range(_REPEATS)]}


def _verified(root: Path) -> float:
    """Seconds of one verification by a catalog that remembers nothing."""
    catalog = Catalog([str(root)], registry=Registry(formats=builtin_formats()), settle_s=0.0)
    (entry,) = catalog.scan().entries
    begin_s = time.perf_counter()
    verdict = catalog.verify(entry)
    took_s = time.perf_counter() - begin_s
    if not verdict.whole:
        raise NotMeasured("a whole file was refused")
    return took_s


def _checksum(path: Path) -> int:
    crc = 0
    buffer = memoryview(bytearray(_BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        while got := file.readinto(buffer):
            crc = zlib.crc32(buffer[:got], crc)
    return crc


def _entry(root: Path) -> Entry:
    (entry,) = Catalog([str(root)], registry=Registry(formats=builtin_formats())).scan().entries
    return entry


def _write_sparse(path: Path, *, size_bytes: int) -> None:
    """Tensors of zeros that take no space; the walk over their heads is what a dense file needs."""
    each = size_bytes // _TENSORS
    with path.open("wb") as file:
        for number in range(_TENSORS):
            head = record(f"layer{number}.weight", "Int8", bytes(each))[:-each]
            file.write(head)
            file.seek(each, os.SEEK_CUR)
        file.write(b"".join(counts(1, 5)))


def _write_checked(path: Path, *, size_bytes: int) -> None:
    each = size_bytes // 128
    content = os.urandom(each)
    crc = 0
    with path.open("wb") as file:
        for data in [*(record(f"layer{number}", "Int8", content) for number in range(128)), *counts(1, 5)]:
            crc = zlib.crc32(data, crc)
            file.write(data)
        file.write(b"crc_num" + crc.to_bytes(10, "big"))
        file.flush()
        os.fsync(file.fileno())  # or the disk would be measured after all


def _timed(action: Callable[[], object]) -> float:
    begin_s = time.perf_counter()
    action()
    return time.perf_counter() - begin_s


def judge_speed(readings: Readings) -> Verdict:
    """Speed of a verification as a fraction of the checksum's own."""
    ours, least = readings.some(VERIFY, OURS, "took"), readings.some(VERIFY, LEAST, "took")
    fraction = least.median / ours.median
    return Verdict(kept=fraction >= SPEED_LIMIT, measured=f"{fraction:.0%} of the checksum's speed")


def judge_time(readings: Readings, case: str, limit_s: float) -> Verdict:
    """Median of a first scan, headers included, or of a first read of a file of a layout not seen before."""
    took = readings.some(case, OURS, "took")
    return Verdict(kept=took.median < limit_s, measured=f"{took.median * 1000:.1f} ms")


BENCHMARK = Benchmark(
    name="checkpoints",
    title="Checkpoints: listing, headers, verification",
    method=(
        "Files are written, then read from the page cache. `least` is what no program can do without: "
        "walking the directories with `stat`; opening a file and reading its first and last page; "
        "CRC-32 of all bytes in blocks of 1 MiB. `again` is the next scan of another process, "
        "or the next file of a layout that was seen before."
    ),
    contenders=(OURS, LEAST),
    cases=(LISTING, HEADER, VERIFY),
    metrics=(
        Metric(key="took", label="took", unit=Unit.MILLISECONDS),
        Metric(key="again", label="again", unit=Unit.MILLISECONDS),
    ),
    promises=(
        Promise(
            text="10,000 files classified < 1 s",
            judge=partial(judge_time, case=LISTING, limit_s=LISTING_LIMIT_S),
        ),
        Promise(
            text="header of a 1 GiB .ckpt read < 5 ms",
            judge=partial(judge_time, case=HEADER, limit_s=HEADER_LIMIT_S),
        ),
        Promise(text="verification >= 80 % of the checksum's own speed", judge=judge_speed),
    ),
    rounds=3,
    measure=measure,
)
