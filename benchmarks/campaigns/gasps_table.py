"""What the campaign of dying gasps proved, in a few lines. Pure: rows in, text out."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from benchmarks.campaigns.engine import Row
from benchmarks.campaigns.gasps_deadline import EXACT_S, Deadline

WITHOUT_LOSS = 0.95
"""The share of the deaths after which no step may be done again."""


def loses_little(rows: Sequence[Row]) -> bool:
    """Whether few enough deaths lost a step; of a few runs one may."""
    without = [row for row in rows if row["lost"] == 0]
    return len(without) >= int(WITHOUT_LOSS * len(rows))


def summary(rows: Sequence[Row]) -> list[str]:
    """What the deaths proved."""
    without = sum(row["lost"] == 0 for row in rows) / len(rows)
    lines = [
        "promised are exit code 0, one restart, no orphan, the right rank blamed, at most 1 step lost, and"
        " every bit of every rank, step and gasp that of an undisturbed training",
        f"{_lost(rows)}; {without:.1%} without loss, promised {WITHOUT_LOSS:.0%}",
        *_spread("first death to last exit", rows, "drained_s"),
    ]
    for place in dict.fromkeys(row["place"] for row in rows):
        lost = [row["lost"] for row in rows if row["place"] == place and row["lost"] is not None]
        lines.append(f"  {place}: {len(lost)} deaths, lost {max(lost, default=0)} at most")
    return lines


def summary_of_stops(rows: Sequence[Row]) -> list[str]:
    """What the stops proved."""
    return [
        "promised are exit code 143, no orphan, the next start exactly where this one had come, every bit"
        " that of an undisturbed training",
        _lost(rows),
        *_spread("SIGTERM to the end", rows, "ended_s"),
    ]


def _lost(rows: Sequence[Row]) -> str:
    counts = Counter(row["lost"] for row in rows if row["lost"] is not None)
    spread = ", ".join(f"{steps}: {count} runs" for steps, count in sorted(counts.items()))
    return f"steps lost: {spread}"


def _spread(what: str, rows: Sequence[Row], name: str) -> list[str]:
    seconds = [row[name] for row in rows if row[name] is not None]
    return [f"{what}: median {_ms(median(seconds))}, at most {_ms(max(seconds))}"] if seconds else []


def summary_of_deadlines(found: Sequence[Deadline]) -> str:
    """How exactly the windows closed."""
    exact = sum(one.exact for one in found)
    timers, lasts = [one.timer_s for one in found], [one.last_exit_s for one in found]
    return (
        f"{exact} of {len(found)} windows closed at their deadline, 0 to {EXACT_S * 1e3:.0f} ms:"
        f" the timer came after {_ms(median(timers))} (median; at most {_ms(max(timers))}),"
        f" the last survivor was gone after {_ms(median(lasts))} (at most {_ms(max(lasts))},"
        f" first {_ms(min(one.first_exit_s for one in found))})"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
