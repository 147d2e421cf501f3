"""Runs of ``scripts/train_ms.py`` under the small supervisor, with MindSpore's own scheduler beside them."""

import contextlib
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sdk.support.fake_supervisor import FakeSupervisor, supervised
from support.machine.free_port import free_port
from support.places import TESTS
from support.preloaded import preloaded

SCRIPTS = TESTS / "sdk" / "scripts"
IMPORTS = ("mindspore.dataset", "mindspore.communication")
STEPS_PER_EPOCH = 15
LAST_STEP = 3 * STEPS_PER_EPOCH
START_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MindSporeJob:
    """Three epochs. ``mode`` 0 is graph, 1 PyNative."""

    world_size: int = 2
    mode: int = 0
    pace_s: float = 0.0
    words: tuple[str, ...] = ()


@contextlib.contextmanager
def running(
    directory: Path, job: MindSporeJob, checkpoints: Path, env: Mapping[str, str] | None = None
) -> Iterator[FakeSupervisor]:
    """The job, started."""
    with (
        _scheduler(directory, job.world_size) as meeting,
        supervised(directory, job.world_size, imports=IMPORTS) as supervisor,
    ):
        for rank in range(job.world_size):
            own = {
                **meeting,
                "MS_ROLE": "MS_WORKER",
                "MS_NODE_ID": str(rank),
                "DEVICE_ID": str(rank),
                "CKPT": str(checkpoints),
                "OUT": str(directory),
            }
            supervisor.start(
                rank,
                SCRIPTS / "train_ms.py",
                str(STEPS_PER_EPOCH),
                str(job.mode),
                str(job.pace_s),
                *job.words,
                env={**own, **(env or {})},
            )
        yield supervisor


def sums(directory: Path, rank: int, word: str = "step") -> dict[int, str]:
    """Step -> checksum that a rank wrote."""
    parts = [line.split() for line in (directory / f"sums_{rank}").read_text().splitlines()]
    return {int(step): crc for what, step, crc in parts if what == word}


def file_sum(path: str) -> str:
    """The same checksum of a ``.ckpt``, read without MindSpore."""
    tensors = dict(_tensors(Path(path).read_bytes()))
    crc = 0
    for name in sorted(tensors):
        if name not in ("tft_updates_begun", "epoch_num", "step_num", "cur_rank", "batch_num", "loss_scale"):
            crc = zlib.crc32(tensors[name], crc)
    return f"{crc:08x}"


def file_numbers(path: str) -> dict[str, int]:
    """The numbers that were appended to the parameters."""
    names = ("epoch_num", "step_num", "cur_rank", "batch_num", "global_step")
    return {
        name: int.from_bytes(content, "little")
        for name, content in _tensors(Path(path).read_bytes())
        if name in names
    }


def _tensors(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Tag and content of every record: ``{1: {1: tag, 2: {1: dims, 2: type, 3: content}}}``, and again."""
    end = data.rfind(b"crc_num", len(data) - 17)
    at, end = 0, end if end >= 0 else len(data)
    while at < end:
        size, at = _varint(data, at + 1)
        fields = dict(_fields(data[at : at + size]))
        tensor = dict(_fields(fields[2]))
        yield fields[1].decode(), tensor.get(3, b"")
        at += size


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value, at = _varint(data, at)
        if key & 7 == 2:
            yield key >> 3, data[at : at + value]
            at += value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


@contextlib.contextmanager
def _scheduler(directory: Path, world_size: int) -> Iterator[dict[str, str]]:
    """MindSpore's scheduler process; where to meet it."""
    meeting = {
        "MS_WORKER_NUM": str(world_size),
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": str(free_port()),
        "MS_TOPO_TIMEOUT": "120",
    }
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "scheduler.log").open("wb") as log:
        environ = {**os.environ, **meeting, "MS_ROLE": "MS_SCHED"}
        process = preloaded(*IMPORTS).start(SCRIPTS / "ms_scheduler.py", env=environ, log=log.fileno())
    try:
        yield meeting
    finally:
        process.kill()
        process.wait()
