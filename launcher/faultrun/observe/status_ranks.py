"""Every rank by the journal's end, the progress page and the processes themselves."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from faultrun.journal.tail import Tail
from faultrun.model.progress import WorkPhase
from faultrun.model.wire import SLOT_BYTES, Progress, unpack_progress
from faultrun.observe.account_fault import left_well, list_of, what_ended
from faultrun.observe.status_model import RankState

_PHASES = tuple(WorkPhase)
_PACE_OVER_S = 20.0


@dataclass(slots=True)
class Pace:
    """Earlier looks of the same ``status``, so that rates are of the last seconds and not of all time."""

    steps: dict[tuple[int, int], list[tuple[float, int]]] = field(default_factory=dict)
    cpu: dict[int, tuple[float, float]] = field(default_factory=dict)

    def rate(self, key: tuple[int, int], at_s: float, step: int) -> float | None:
        """Steps a second over the last 20 s of looks; None before the second step was seen."""
        seen = self.steps.setdefault(key, [])
        if not seen or seen[-1][1] != step:
            seen.append((at_s, step))
        while len(seen) > 2 and at_s - seen[1][0] > _PACE_OVER_S:
            seen.pop(0)
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        return (last - first) / (last_s - first_s) if last > first and last_s > first_s else None

    def share(self, pid: int, at_s: float, used_s: float) -> float | None:
        """Processors used since the last look."""
        before = self.cpu.get(pid)
        self.cpu[pid] = (at_s, used_s)
        if before is None or at_s - before[0] < 0.05:
            return None
        return max(0.0, (used_s - before[1]) / (at_s - before[0]))


def rank_states(
    folder: Path, end: Tail, record: Mapping[str, Any], pace: Pace, *, processes_are_here: bool
) -> tuple[RankState, ...]:
    """All ranks of the present incarnation, in order; those that were not started yet are left out."""
    started: dict[int, int] = {}
    ended: dict[int, Mapping[str, Any]] = {}
    asked: set[int] = set()
    hung: set[int] = set()
    first: Mapping[str, Any] = {}
    incarnation = -1
    for line in end.lines:
        rank, name = line.get("rank"), line.get("event")
        if name == "PlanAdopted":
            incarnation = _int(line.get("incarnation"))
        elif name == "WorkerStarted" and isinstance(rank, int):
            started[rank] = _int(line.get("pid"))
            ended.pop(rank, None)
        elif name in ("WorkerExit", "SpawnFailed") and isinstance(rank, int):
            ended[rank] = line
        elif name == "GaspRequested":
            asked |= {rank for rank in list_of(line, "ranks") if rank not in ended and rank not in hung}
        elif name == "HangDetected" and isinstance(rank, int):
            hung.add(rank)
        elif name == "FirstStep":
            first = line
    slots = _page(folder / f"incarnation_{incarnation}" / "progress", sorted({*started, *ended}))
    run_id = str(record.get("run_id", ""))
    return tuple(
        _Rank(
            rank, incarnation, started.get(rank), ended.get(rank), slots.get(rank), asked=rank in asked
        ).state(pace, first, run_id if processes_are_here else None)
        for rank in sorted({*started, *ended})
    )


@dataclass(frozen=True, slots=True)
class _Rank:
    rank: int
    incarnation: int
    pid: int | None
    exit: Mapping[str, Any] | None
    progress: Progress | None
    asked: bool = False

    def state(self, pace: Pace, first: Mapping[str, Any], run_id: str | None) -> RankState:
        """``run_id`` is None where its process cannot be seen."""
        usage = _usage(self.pid, run_id) if self.exit is None and self.pid and run_id is not None else None
        now_s, seen = time.monotonic(), self.progress
        # A monotonic time from before a reboot, or of another machine, may lie in the future.
        age_s = now_s - seen.at_monotonic_s if seen is not None and run_id is not None else None
        age_s = age_s if age_s is not None and age_s >= 0 else None
        doing = _PHASES[seen.phase].value if seen is not None and 0 <= seen.phase < len(_PHASES) else ""
        return RankState(
            rank=self.rank,
            pid=self.pid,
            state=self._word(usage is not None or run_id is None),
            what=self._how(),
            step=seen.step if seen is not None else None,
            epoch=seen.epoch if seen is not None and seen.epoch >= 0 else None,
            doing=doing if usage is not None and doing != WorkPhase.UNKNOWN.value else "",
            step_age_s=age_s if usage is not None else None,
            rate=self._rate(pace, first, age_s) if usage is not None else None,
            rss_bytes=usage[0] if usage is not None else None,
            cpu=self._cpu(pace, usage),
        )

    def _how(self) -> str:
        if self.exit is None:
            return ""
        return f"asked to leave: {what_ended(self.exit)}" if self.asked else what_ended(self.exit)

    def _word(self, may_live: bool) -> str:
        if self.exit is not None:
            return "ended" if self.asked or left_well(self.exit) else "failed"
        if not may_live:
            return "gone"
        return "training" if self.progress is not None else "running"

    def _rate(self, pace: Pace, first: Mapping[str, Any], age_s: float | None) -> float | None:
        """Over the last looks, else since every rank had done a step."""
        if self.progress is None or age_s is None:
            return None
        said_s = time.monotonic() - age_s
        rate = pace.rate((self.incarnation, self.rank), said_s, self.progress.step)
        if rate is not None or "at_utc" not in first:
            return rate
        with suppress(ValueError):
            began = datetime.fromisoformat(str(first["at_utc"]).replace("Z", "+00:00")).timestamp()
            passed_s, done = time.time() - age_s - began, self.progress.step - _int(first.get("step"))
            return done / passed_s if passed_s > 0.5 and done > 0 else None
        return None

    def _cpu(self, pace: Pace, usage: tuple[int, float, float] | None) -> float | None:
        """Since the last look; on the first one over the process's life."""
        if usage is None or self.pid is None:
            return None
        _, used_s, lived_s = usage
        share = pace.share(self.pid, time.monotonic(), used_s)
        return share if share is not None else used_s / lived_s if lived_s > 0 else None


def _page(path: Path, ranks: list[int]) -> dict[int, Progress]:
    """The progress page by rank; slots are in the order of the node's ranks."""
    found: dict[int, Progress] = {}
    with suppress(OSError):
        content = path.read_bytes()
        for slot, rank in enumerate(ranks):
            progress = unpack_progress(content[slot * SLOT_BYTES :].ljust(SLOT_BYTES, b"\0")[:SLOT_BYTES])
            if progress is not None:
                found[rank] = progress
    return found


def _usage(pid: int, run_id: str) -> tuple[int, float, float] | None:
    """Resident bytes, processor seconds and age of a process of this run; None when it is not there any more.

    A number that was given to another process since is told by its environment.
    """
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            if run_id and process.environ().get("FAULTRUN_RUN_ID") != run_id:
                return None
            if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return None
            used = process.cpu_times()
            age_s = max(0.0, time.time() - process.create_time())
            return process.memory_info().rss, used.user + used.system, age_s
    except psutil.AccessDenied:
        return 0, 0.0, 0.0
    except (psutil.Error, ValueError, OverflowError):
        return None


def _int(value: object) -> int:
    return value if isinstance(value, int) else -1
