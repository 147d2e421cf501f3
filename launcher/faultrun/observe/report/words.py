"""The report's facts in words, for all its forms."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from faultrun.core.humanize import percent, several, span
from faultrun.journal.lines import moment
from faultrun.observe.account.incarnations import SUPERVISOR_LOST
from faultrun.observe.account.records import RUNNING_AGAIN, TRAINING_AGAIN

SPENDING_WORDS: Mapping[str, str] = {
    "training": "steps that count",
    "recompute": "steps trained again after a restart",
    "detect": "stuck before it was noticed",
    "drain": "saving, stopping, sweeping",
    "choose": "reading checkpoints, agreeing on one",
    "backoff": "waiting before a restart",
    "spawn": "rewriting configurations, starting processes",
    "start": "workers up, before their first step",
    "unreported": "workers up; the script reports no steps, so training cannot be told from start-up",
    "idle": "kept back by the platform",
    "away": "no supervisor",
}
MOST_INCIDENTS = 30
_STOPPED = (129, 130, 143)


def shown_incidents(
    incidents: Sequence[Mapping[str, Any]], most: int = MOST_INCIDENTS
) -> tuple[list[Mapping[str, Any]], str]:
    """All of a few; of many the costliest and the newest, and a sentence that says so."""
    if len(incidents) <= most:
        return list(incidents), ""
    newest = most // 3
    cost = [sum(map(float, one["spent"].values())) + float(one["recompute_s"]) for one in incidents]
    by_cost = sorted(range(len(incidents)), key=lambda at: -cost[at])[: most - newest]
    chosen = sorted({*by_cost, *range(len(incidents) - newest, len(incidents))})
    note = f"The {most - newest} costliest and the {newest} newest of {len(incidents):,}."
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
    if (ended := report["ended"]) is None:
        return f"not over (last known phase: {report['phase'].replace('_', ' ') or 'none'})"
    return f"exit code {ended['exit_code']}: {str(ended['why']).splitlines()[0] if ended['why'] else ''}"


def state(report: Mapping[str, Any]) -> str:
    """``finished``, ``stopped``, ``failed``, or ``open`` while it is not over."""
    if (ended := report["ended"]) is None:
        return "open"
    code = ended["exit_code"]
    return "finished" if code == 0 else "stopped" if code in _STOPPED else "failed"


def unknown(report: Mapping[str, Any]) -> str:
    """Why the goodput is not known."""
    return str(report["productive_unknown"] or "not every incarnation told its steps")


def no_recovery(report: Mapping[str, Any]) -> tuple[str, str]:
    """What to say instead of a length where no recovery has one, and why."""
    if {one["end"] for one in report["incidents"]} & {RUNNING_AGAIN, SUPERVISOR_LOST}:
        return "unknown", "not known when training went on"
    return "none", "training did not go on"


def unless_advised(report: Mapping[str, Any]) -> str:
    """What follows where nothing is to be changed."""
    match state(report):
        case "stopped":
            return "Give the same command again: the run goes on from its newest whole save."
        case "open":
            return "Nothing so far: this page tells of the run up to its last line."
        case _:
            return "Nothing: this run shows nothing that should be changed."


def faults(report: Mapping[str, Any]) -> str:
    """How many faults there were, and after how many of them training went on."""
    if not (total := report["incidents_total"]):
        return "No faults."
    over = Counter(one["end"] for one in report["incidents"])
    trained, ran = over[TRAINING_AGAIN], over[RUNNING_AGAIN]
    ends = [(trained, "training went on"), (ran, "the workers ran again")]
    told = [f"{what} after {_of(count, total)}" for count, what in ends if count]
    rest = total - trained - ran
    told += [f"{rest:,} did not come that far"] if rest and told else []
    return f"{several(total, 'fault')}: {', '.join(told) or 'the run did not go on'}."


def _of(count: int, total: int) -> str:
    if count < total:
        return f"{count:,} of them"
    return "it" if total == 1 else "each of them"


def goodput(report: Mapping[str, Any]) -> str:
    """``97 % productive``, or why it is unknown."""
    share = report["productive_share"]
    return f"goodput unknown ({unknown(report)})" if share is None else f"{percent(share)} productive"


def twice(report: Mapping[str, Any]) -> str:
    """How many steps were trained twice, as far as that is known."""
    lost = report["lost_steps"]
    return "steps trained twice unknown" if lost is None else f"{several(lost, 'step')} trained twice"


def recovery(incident: Mapping[str, Any]) -> str:
    """How long the recovery took; unknown where training was not seen to go on, none where it did not."""
    if incident["recovery_s"] is not None:
        return span(incident["recovery_s"])
    return "unknown" if incident["end"] in (RUNNING_AGAIN, SUPERVISOR_LOST) else "none"


def ranks(row: Mapping[str, Any]) -> str:
    """Which ranks failed alike, the most frequent first: ``0 (12 times), 3, and 40 more``."""
    found = [f"{rank} ({count:,} times)" if count > 1 else rank for rank, count in row["ranks"].items()]
    if row["ranks_total"] > len(found):
        found.append(f"and {row['ranks_total'] - len(found):,} more")
    return ", ".join(found)


def clock(utc: str | None) -> str:
    """``2026-11-22 21:05:07``; nothing where no moment is told."""
    return "" if not utc or moment(utc) is None else utc[:19].replace("T", " ")


def label(name: str) -> str:
    """A field's name without its unit, in words."""
    for unit in ("_s", "_utc", "_share", "_total"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def shown(name: str, value: object) -> str:
    """A value as people say it, by the unit in its field's name."""
    match value:
        case None:
            return "unknown"
        case bool():
            return "yes" if value else "no"
        case int() | float() if name.endswith("_s"):
            return span(float(value))
        case int() | float() if name.endswith("share"):
            return percent(float(value))
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        case str() if name.endswith("_utc"):
            return clock(value) or value
        case _:
            return str(value)
