"""What Markdown and HTML say alike: kinds of time by name, incidents in a row, which of many are shown."""

from collections.abc import Mapping, Sequence
from typing import Any

from faultrun.core.span import percent, several, span

KINDS: Mapping[str, str] = {
    "training": "steps that count",
    "recompute": "steps trained again after a restart",
    "detect": "stuck before it was noticed",
    "drain": "saving, stopping, sweeping",
    "choose": "reading checkpoints, agreeing on one",
    "backoff": "waiting before a restart",
    "spawn": "rewriting configurations, starting processes",
    "start": "workers up, before their first step",
    "unreported": "workers up; the script reports no steps, so nobody knows what of it was training",
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


def then(incident: Mapping[str, Any]) -> str:
    """How it ended: where training went on, beside where it should have, as far as that is known."""
    return str(incident.get("resume") or incident["end"])


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


def goodput(report: Mapping[str, Any]) -> str:
    """``97 % productive``, or why nobody can say."""
    share = report["productive_share"]
    return (
        "goodput unknown (the script reports no steps)" if share is None else f"{percent(share)} productive"
    )


def twice(report: Mapping[str, Any]) -> str:
    """How many steps were trained twice, as far as that is known."""
    lost = report["lost_steps"]
    return "steps trained twice unknown" if lost is None else f"{several(lost, 'step')} trained twice"


def recovery(incident: Mapping[str, Any]) -> str:
    """How long the recovery took; a question mark where nobody reported when training went on."""
    return "?" if incident["recovery_s"] is None else span(incident["recovery_s"])


def _cost(incident: Mapping[str, Any]) -> float:
    return sum(map(float, incident["spent"].values())) + float(incident["recompute_s"])
