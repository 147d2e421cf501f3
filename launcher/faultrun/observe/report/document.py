"""The report as data: ``report.json``, and what the other forms take their words from.

Lengths are seconds, shares are fractions of ``wall_s``. Fields are only added; ``schema`` grows when one
changes its meaning.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from statistics import median
from typing import Any

from faultrun.journal.logdir import recorded
from faultrun.observe.account.records import TRAINING_AGAIN, Account, IncidentRecord
from faultrun.observe.account.timeline import RECOVERY
from faultrun.observe.advice import advise, save_interval

_SCHEMA = 2
"""2: ``productive_share``, ``lost_steps`` and ``recovery_s`` are null where nobody reported steps."""

_SAVES = ("asked", "saved", "failed", "cut", "windows", "kept", "took_s")
_INCARNATION = (
    "number", "begin_s", "running_s", "first_step_s", "end_s", "workers", "resumed_from", "resumed_step",
    "reached_step", "end", "repeated_steps",
)  # fmt: skip
_INCIDENT = (
    "number", "incarnation", "at_s", "rank", "cause", "what", "step", "resumed_step", "lost_steps",
    "recovery_s", "recompute_s",
)  # fmt: skip


def document(account: Account, record: Mapping[str, Any]) -> dict[str, Any]:
    """The whole report as JSON-ready data. ``record`` is ``run.json``; what it lacks is left empty."""
    spec = record.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    interval = save_interval(account)
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
        "productive_share": _rounded(account.productive_share, 6),
        "spent": {kind.value: round(seconds, 3) for kind, seconds in account.spent.items()},
        "incidents_total": len(account.faults),
        "restarts": account.restarts,
        "stops": account.stops,
        "standbys": dict(account.standbys),
        "lost_steps": account.lost_steps,
        "high_step": account.high_step,
        "step_s": account.step_s,
        "recovery": recovery(account),
        "gasps": {name: getattr(account.saves, name) for name in _SAVES},
        "refused": dict(account.refused),
        "causes": dict(Counter(fault.what for fault in account.faults).most_common(50)),
        "blamed_ranks": {str(rank): n for rank, n in _blamed(account).most_common(1000)},
        "save_interval": None if interval is None else asdict(interval),
        "advice": [asdict(one) for one in advise(account, spec)],
        "events": dict(account.events),
        "incidents": [_fault(fault) for fault in account.faults],
        "incarnations": [_picked(life, _INCARNATION) for life in account.lives],
    }


def recovery(account: Account) -> dict[str, Any]:
    """How long recoveries took, from the fault to training again: those that came that far."""
    over = [fault for fault in account.faults if fault.end == TRAINING_AGAIN]
    took = sorted(fault.recovery_s for fault in over if fault.recovery_s is not None)
    if not took:
        return {"count": 0, "median_s": None, "p90_s": None, "worst_s": None, "slowest_part": None}
    parts: Counter[str] = Counter()
    for fault in over:
        parts.update({kind.value: seconds for kind, seconds in fault.spent.items() if kind in RECOVERY})
    return {
        "count": len(took),
        "median_s": round(median(took), 3),
        "p90_s": round(took[min(len(took) - 1, len(took) * 9 // 10)], 3),
        "worst_s": round(took[-1], 3),
        "slowest_part": parts.most_common(1)[0][0] if parts else None,
    }


def _blamed(account: Account) -> Counter[int]:
    return Counter(fault.rank for fault in account.faults if fault.rank is not None)


def _fault(fault: IncidentRecord) -> dict[str, Any]:
    return {
        **_picked(fault, _INCIDENT),
        "spent": {kind.value: round(fault.spent[kind], 3) for kind in RECOVERY if kind in fault.spent},
        "timeline": {name: round(took_s, 4) for name, took_s in fault.timeline.items()},
        "saved": fault.saved,
        "refused": fault.refused,
        "end": fault.end,
        "resume": fault.resume or None,
    }


def _picked(record: object, names: tuple[str, ...]) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in names}
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
