"""How far the ranks of one incarnation came, by what they leave: the progress page, else their logs.

A log is read where ranks do not report their steps. One that counts anew in every epoch tells nothing here.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from faultrun.core.logged_steps import last_step
from faultrun.files import bytes_from
from faultrun.model.observed.progress import RankStep
from faultrun.model.wire import SLOT_BYTES, Progress, unpack_progress
from faultrun.workers.logs.log_files import LogFiles

_TAIL_BYTES = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSteps:
    """``steps`` of those ranks of which one is known. ``changed_utc_ns``: when something was last written."""

    steps: tuple[RankStep, ...] = ()
    by_log: bool = False
    changed_utc_ns: int | None = None


def last_steps(logs: LogFiles, ranks: Sequence[int]) -> LastSteps:
    """How far ``ranks``, whose places in the page are in this order, are now or were at their end."""
    reported = tuple(
        RankStep(rank=rank, step=seen.step, epoch=seen.epoch if seen.epoch >= 0 else None)
        for rank, seen in zip(ranks, progress_of(logs), strict=False)
        if seen is not None
    )
    files = [logs.progress, *(logs.worker(rank) for rank in ranks)]
    changed_ns = max((at_ns for file in files if (at_ns := _changed_ns(file)) is not None), default=None)
    if reported:
        return LastSteps(steps=reported, changed_utc_ns=changed_ns)
    return LastSteps(steps=logged_steps(logs, ranks), by_log=True, changed_utc_ns=changed_ns)


def progress_of(logs: LogFiles) -> list[Progress | None]:
    """What the ranks wrote on their page, in their order; None: no step yet."""
    try:
        page = logs.progress.read_bytes()
    except OSError:
        return []
    return [unpack_progress(page[at : at + SLOT_BYTES]) for at in range(0, len(page), SLOT_BYTES)]


def logged_steps(logs: LogFiles, ranks: Sequence[int]) -> tuple[RankStep, ...]:
    """The last global step that each log tells, for those that tell one."""
    found = []
    for rank in ranks:
        text = b"".join(bytes_from(part, -_TAIL_BYTES, _TAIL_BYTES) for part in logs.parts(rank))
        told = last_step(text.decode("utf-8", "replace").splitlines(), logs.step_pattern)
        if told is not None and told.step is not None:
            found.append(RankStep(rank=rank, step=told.step, epoch=told.epoch))
    return tuple(found)


def _changed_ns(file: Path) -> int | None:
    with suppress(OSError):
        return file.stat().st_mtime_ns
    return None
