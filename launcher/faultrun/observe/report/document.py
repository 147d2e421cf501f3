"""The report as data: ``report.json``, and what the other forms take their words from.

Lengths are seconds, shares are fractions of ``wall_s``. Fields are only added; ``schema`` grows when one
changes its meaning.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from statistics import median
from typing import Any

from faultrun.journal.lines import moment
from faultrun.journal.logdir import recorded
from faultrun.model.spec.assumptions import Assumptions
from faultrun.observe.account.advice import advise, save_interval
from faultrun.observe.account.records import TRAINING_AGAIN, Account, IncidentRecord
from faultrun.observe.account.savings import Savings, savings
from faultrun.observe.account.savings_words import assumed as assumed_in_words
from faultrun.observe.account.savings_words import assumptions_of, rows, savings_document
from faultrun.observe.account.timeline import RECOVERY, Spending, shares
from faultrun.observe.report.stages import mean_stages, stages

_SCHEMA = 2
"""2: ``productive_share``, ``lost_steps`` and ``recovery_s`` are null where no rank reported steps."""

_MOST_CAUSES, _MOST_RANKS = 50, 8
_SAVES = ("asked", "saved", "failed", "cut", "windows", "kept", "took_s")
_INCARNATION = (
    "number", "begin_s", "running_s", "first_step_s", "end_s", "workers", "resumed_from", "resumed_step",
    "reached_step", "end", "repeated_steps",
)  # fmt: skip
_INCIDENT = (
    "number", "incarnation", "at_s", "rank", "cause", "what", "step", "own_step", "resumed_step",
    "lost_steps", "recovery_s", "recompute_s",
)  # fmt: skip


_MOST_STRETCHES = 120
_BINS = 160
_MOST_POINTS = 240


def document(
    account: Account, record: Mapping[str, Any], assumed: Assumptions | None = None
) -> dict[str, Any]:
    """The whole report as JSON-ready data. ``record`` is ``run.json``; what it lacks is left empty.

    ``assumed``: what the savings are compared with, if not with what the run was told to assume.
    """
    saved = savings(account, assumptions_of(record) if assumed is None else assumed)
    spec = record.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    interval, share = save_interval(account), account.productive_share
    blamed = Counter(fault.rank for fault in account.faults if fault.rank is not None)
    return {
        "schema": _SCHEMA,
        "run_id": str(record.get("run_id", "")),
        "command": str(recorded(spec, "command", "shown") or ""),
        "framework": str(spec.get("framework", "")),
        "workers": max((life.workers for life in account.lives), default=0),
        "version": str(record.get("version", "")),
        "began_utc": account.began_utc,
        "last_utc": account.last_utc,
        "phase": account.phase.value if account.phase is not None else "",
        "ended": None if account.ended is None else {"exit_code": account.ended[0], "why": account.ended[1]},
        "wall_s": round(account.wall_s, 3),
        "productive_share": None if share is None else round(share, 6),
        "productive_unknown": account.unknown_because,
        "spent": {kind.value: round(seconds, 3) for kind, seconds in account.spent.items()},
        "incidents_total": len(account.faults),
        "restarts": account.restarts,
        "stops": account.stops,
        "standbys": dict(account.standbys),
        "lost_steps": account.lost_steps,
        "high_step": account.high_step,
        "step_s": account.step_s,
        "recovery": recovery(account),
        "savings": _savings(saved),
        "gasps": {name: getattr(account.saves, name) for name in _SAVES},
        "refused": dict(account.refused),
        "faults_by_cause": _by_cause(account.faults),
        "causes": dict(Counter(fault.what for fault in account.faults).most_common(_MOST_CAUSES)),
        "blamed_ranks": {str(rank): n for rank, n in blamed.most_common(1000)},
        "save_interval": None if interval is None else asdict(interval),
        "advice": [asdict(one) for one in advise(account, spec)],
        "events": dict(account.events),
        "over_time": spent_over_time(account),
        "progress": progress(account),
        "incidents": [_fault(fault, account.began_utc) for fault in account.faults],
        "incarnations": [_picked(life, _INCARNATION) for life in account.lives],
    }


def _savings(saved: Savings) -> dict[str, Any]:
    told = savings_document(saved)
    assumed = {"assumed": assumed_in_words(told)} if saved.interruptions else {}
    return {**told, **assumed, "each": rows(saved)}


def recovery(account: Account) -> dict[str, Any]:
    """How long recoveries took, from the fault to training again: those that came that far."""
    over = [fault for fault in account.faults if fault.end == TRAINING_AGAIN]
    if not (took := sorted(fault.recovery_s for fault in over if fault.recovery_s is not None)):
        return {"count": 0, "median_s": None, "p90_s": None, "worst_s": None, "slowest_part": None,
                "stages": {}}  # fmt: skip
    parts: Counter[str] = Counter()
    for fault in over:
        parts.update({kind.value: seconds for kind, seconds in fault.spent.items() if kind in RECOVERY})
    return {
        "count": len(took),
        "median_s": round(median(took), 3),
        "p90_s": round(took[math.ceil(0.9 * len(took)) - 1], 3),
        "worst_s": round(took[-1], 3),
        "slowest_part": parts.most_common(1)[0][0] if parts else None,
        "stages": _rounded_all(mean_stages(stages(fault) for fault in over)),
    }


def _by_cause(faults: Sequence[IncidentRecord]) -> list[dict[str, Any]]:
    """Alike faults in one row, the most frequent first: how many, of which ranks, back after how long."""
    alike: dict[str, list[IncidentRecord]] = {}
    for fault in faults:
        alike.setdefault(fault.what, []).append(fault)
    often = sorted(alike.items(), key=lambda item: -len(item[1]))[:_MOST_CAUSES]
    return [{"what": what, **_row(found)} for what, found in often]


def _row(found: Sequence[IncidentRecord]) -> dict[str, Any]:
    ranks = Counter(fault.rank for fault in found if fault.rank is not None)
    took = [one.recovery_s for one in found if one.end == TRAINING_AGAIN and one.recovery_s is not None]
    return {
        "count": len(found),
        "ranks": {str(rank): count for rank, count in ranks.most_common(_MOST_RANKS)},
        "ranks_total": len(ranks),
        "median_s": round(median(took), 3) if took else None,
        "newest": found[-1].number,
    }


def _fault(fault: IncidentRecord, began_utc: str) -> dict[str, Any]:
    return {
        **_picked(fault, _INCIDENT),
        "at_utc": _wall_clock(began_utc, fault.at_s),
        "spent": {kind.value: round(fault.spent[kind], 3) for kind in RECOVERY if kind in fault.spent},
        "timeline": {name: round(took_s, 4) for name, took_s in fault.timeline.items()},
        "stages": _rounded_all(stages(fault)),
        "saved": fault.saved,
        "refused": fault.refused,
        "end": fault.end,
        "resume": fault.resume or None,
    }


def _wall_clock(began_utc: str, after_s: float) -> str | None:
    began = moment(began_utc)
    try:
        at = None if began is None else began + timedelta(seconds=after_s)
    except OverflowError:  # a journal may say anything
        return None
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _picked(record: object, names: tuple[str, ...]) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in names}
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}


def _rounded_all(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def spent_over_time(account: Account) -> dict[str, Any]:
    """``stretches`` of few: ``[begin_s, end_s, kind, incarnation]``; else the ``shares`` of equal bins.

    The other of the two is empty. ``bin_s`` is the length of a bin in seconds, 0 without bins.
    """
    if len(account.segments) <= _MOST_STRETCHES:
        rows = [
            [round(one.begin_s, 3), round(one.end_s, 3), one.kind.value, one.incarnation]
            for one in account.segments
        ]
        return {"stretches": rows, "bin_s": 0.0, "shares": {}}
    found = shares(account.segments, account.wall_s, _BINS)
    rounded = {kind.value: [round(share, 4) for share in found[kind]] for kind in Spending if kind in found}
    return {"stretches": [], "bin_s": round(account.wall_s / _BINS, 3), "shares": rounded}


def progress(account: Account) -> list[tuple[float, int]]:
    """Steps over time ``(at_s, global step)``; of many points those that a line through all would touch.

    Of each equal stretch of time the first, the lowest, the highest and the last stay: every step back does.
    """
    points = account.steps
    if len(points) > _MOST_POINTS and account.wall_s > 0:
        width_s = account.wall_s / (_MOST_POINTS // 4)
        groups: dict[int, list[int]] = {}
        for at, (at_s, _) in enumerate(points):
            groups.setdefault(int(at_s / width_s), []).append(at)
        ways = [(group, sorted(group, key=lambda at: points[at][1])) for group in groups.values()]
        kept = sorted(
            {at for group, by_step in ways for at in (group[0], by_step[0], by_step[-1], group[-1])}
        )
        points = tuple(points[at] for at in kept)
    return [(round(at_s, 3), step) for at_s, step in points]
