"""What Markdown and HTML say alike: kinds of time by name, incidents in a row, which of many are shown."""

from collections.abc import Mapping, Sequence
from typing import Any

from faultrun.core.span import span

KINDS: Mapping[str, str] = {
    "training": "steps that count",
    "recompute": "steps trained again after a restart",
    "detect": "stuck before it was noticed",
    "drain": "saving, stopping, sweeping",
    "choose": "reading checkpoints, agreeing on one",
    "backoff": "waiting before a restart",
    "spawn": "rewriting configurations, starting processes",
    "start": "workers up, before their first step",
    "idle": "kept back by the platform",
    "away": "no supervisor",
}
_COSTLIEST, _NEWEST = 50, 20


def shown_incidents(incidents: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], str]:
    """All of a few; of many the costliest and the newest, and a sentence that says so."""
    if len(incidents) <= _COSTLIEST + _NEWEST:
        return list(incidents), ""
    by_cost = sorted(range(len(incidents)), key=lambda at: -_cost(incidents[at]))[:_COSTLIEST]
    chosen = sorted({*by_cost, *range(len(incidents) - _NEWEST, len(incidents))})
    note = f"The {_COSTLIEST} costliest and the {_NEWEST} newest of {len(incidents):,}; report.json has all."
    return [incidents[at] for at in chosen], note


def who(incident: Mapping[str, Any]) -> str:
    """``rank 3``, or whatever is to blame when no rank is."""
    return f"rank {incident['rank']}" if incident["rank"] is not None else str(incident["cause"])


def slowest(incident: Mapping[str, Any]) -> str:
    """The part of the recovery that took longest, with its time."""
    spent: Mapping[str, float] = incident["spent"]
    if not spent:
        return ""
    name = max(spent, key=lambda kind: spent[kind])
    return f"{name} {span(spent[name])}"


def steps(incident: Mapping[str, Any]) -> str:
    """``1215 → 1200``: where it stopped and where it went on."""
    if incident["step"] is None:
        return ""
    resumed = incident["resumed_step"]
    return f"{incident['step']:,}" if resumed is None else f"{incident['step']:,} → {resumed:,}"


def outcome(report: Mapping[str, Any]) -> str:
    """How the run stands, in a few words."""
    ended = report["ended"]
    if ended is None:
        return f"not over (last known phase: {report['phase'] or 'none'})"
    return f"exit code {ended['exit_code']}: {str(ended['why']).splitlines()[0] if ended['why'] else ''}"


def _cost(incident: Mapping[str, Any]) -> float:
    return float(incident["recovery_s"]) + float(incident["recompute_s"])
