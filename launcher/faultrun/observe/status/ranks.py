"""Every rank by the journal's end, the progress page and the processes themselves."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from faultrun.journal.lines import moment
from faultrun.journal.logdir import logs_of
from faultrun.model.events import WorkerExit
from faultrun.model.observed.progress import RankStep, WorkPhase, phase_of
from faultrun.observe.account.records import what_ended
from faultrun.observe.run_view import RunView, WorkerView
from faultrun.observe.status.status import RankState

_PACE_OVER_S = 20.0


@dataclass(slots=True)
class Pace:
    """Earlier looks of the same ``status``, so that rates are of the last seconds and not of all time."""

    steps: dict[tuple[int, int], list[tuple[float, int]]] = field(default_factory=dict)
    cpu: dict[int, tuple[float, float]] = field(default_factory=dict)

    def rate(self, key: tuple[int, int], at_s: float, step: int) -> float | None:
        """Steps a second over the last 20 s of looks; None before the second step was seen."""
        if not (seen := self.steps.setdefault(key, [])) or seen[-1][1] != step:
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
    log_dir: Path, view: RunView, record: Mapping[str, Any], pace: Pace, *, processes_are_here: bool
) -> tuple[RankState, ...]:
    """All ranks of the present incarnation, in order; those that were not started yet are left out.

    ``record`` is ``run.json``.
    """
    page, run_id = view.progress(log_dir), str(record.get("run_id", ""))
    last = view.last_steps(log_dir, logs_of(record))
    told = {one.rank: one for one in last.steps}
    states = []
    for slot, rank in enumerate(view.places):
        if (worker := view.workers.get(rank)) is None:
            states.append(RankState(rank=rank, pid=None, state="missing"))
            continue
        seen, step = page[slot] if slot < len(page) else None, told.get(rank)
        phase = WorkPhase.UNKNOWN if seen is None else phase_of(seen.phase)
        may_live = worker.end is None and processes_are_here
        usage = _usage(worker.pid, run_id) if may_live and worker.pid else None
        # A monotonic time from before a reboot, or of another machine, may lie in the future.
        age_s = time.monotonic() - seen.at_monotonic_s if seen is not None and usage is not None else None
        age_s = age_s if age_s is not None and age_s >= 0 else None
        states.append(
            RankState(
                rank=rank,
                pid=worker.pid,
                state=_state(worker, step, may_live=usage is not None or not processes_are_here),
                what=_what(worker),
                step=step.step if step is not None else None,
                by_log=step is not None and last.by_log,
                epoch=step.epoch if step is not None else None,
                doing=phase.value if usage is not None and phase is not WorkPhase.UNKNOWN else "",
                step_age_s=age_s,
                rate=_rate(view, pace, step, age_s if seen is not None or usage is None else 0.0),
                rss_bytes=usage[0] if usage is not None else None,
                cpu=_cpu(worker.pid, pace, usage),
            )
        )
    return tuple(states)


def _state(worker: WorkerView, step: RankStep | None, *, may_live: bool) -> str:
    if worker.end is not None:
        event = worker.end.event
        well = worker.asked or (isinstance(event, WorkerExit) and event.clean)
        return "ended" if well else "failed"
    if not may_live:
        return "gone"
    return "training" if step is not None else "running"


def _what(worker: WorkerView) -> str:
    if worker.end is None:
        return ""
    return f"asked to leave: {what_ended(worker.end)}" if worker.asked else what_ended(worker.end)


def _rate(view: RunView, pace: Pace, newest: RankStep | None, age_s: float | None) -> float | None:
    """Over the last looks, else since every rank had done a step."""
    if newest is None or age_s is None:
        return None
    rate = pace.rate((view.incarnation, newest.rank), time.monotonic() - age_s, newest.step)
    if rate is not None or view.first_step is None:
        return rate
    utc, step = view.first_step
    began = moment(utc)
    passed_s = 0.0 if began is None else time.time() - age_s - began.timestamp()
    return (newest.step - step) / passed_s if passed_s > 0.5 and newest.step > step else None


def _cpu(pid: int | None, pace: Pace, usage: tuple[int, float, float] | None) -> float | None:
    """Since the last look; on the first one over the process's life."""
    if usage is None or pid is None:
        return None
    _, used_s, lived_s = usage
    share = pace.share(pid, time.monotonic(), used_s)
    return share if share is not None else used_s / lived_s if lived_s > 0 else None


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
